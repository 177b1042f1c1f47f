# Tangled from book/workshop/ol-grade.md
"""What a learner's tests import, and whether they may: read from the syntax tree."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import tinyllm
from ol.registry import chapters

LIBRARIES = {"numpy", "pytest", "torch"}


@functools.cache
def promised() -> dict[str, set[str]]:
    """Module -> the names that its contract promises."""
    found = {"tinyllm": set(tinyllm.__all__)}
    for chapter in chapters().values():
        tree = ast.parse(chapter.contract.read_text(encoding="utf-8"))
        names: set[str] = set()
        for node in tree.body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                names.add(node.name)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                names.add(node.target.id)
            elif isinstance(node, ast.Assign):
                names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
                if ast.unparse(node.targets[0]) == "__all__":  # it may name what is imported
                    names |= set(ast.literal_eval(node.value))
        found[chapter.module] = {name for name in names if not name.startswith("_")}
    return found


@dataclass(frozen=True)
class Finding:
    """Why there is no grade: a test or a place, and what is wrong there."""

    where: str  # test_mha.py:3, or the name of a test
    says: str

    def __str__(self) -> str:
        return f"{self.where}: {self.says}"


def check(folder: Path, allowed: Collection[str] = ()) -> list[Finding]:
    """What is wrong with the files in a folder; `allowed` are names that need not be Python."""
    found: list[Finding] = []
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder).as_posix()
        python, link = file.suffix == ".py", file.is_symlink()
        hidden = any(part[0] == "." or part == "__pycache__" for part in Path(name).parts)
        if not python and (name in allowed or hidden or (file.is_dir() and not link)):
            continue
        if link or not file.is_file():
            found.append(Finding(name, "is no file"))  # a folder, a pipe, a link
            continue
        if not python or file.name == "conftest.py":
            found.append(Finding(name, "is no file of tests: it is not there when they are graded"))
            continue
        reader = _Reader(name)
        try:
            reader.visit(ast.parse(file.read_bytes(), name))
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
            place = f"{name}:{getattr(error, 'lineno', 1) or 1}"
            found.append(Finding(place, f"cannot be read: {str(error) or 'too deep'}"))
        found += reader.findings
    return found


_CODE = {
    "__code__", "co_code", "co_consts", "co_names", "__loader__", "__spec__", "__file__",
    "getsource", "getsourcelines", "getsourcefile", "getfile", "getmodule", "get_source",
    "currentframe", "settrace", "setprofile", "_getframe", "__globals__", "__closure__",
    "tb_frame", "f_back", "f_locals", "f_globals", "f_code", "gi_frame", "gi_code",
    "_current_frames", "getouterframes", "getinnerframes", "walk_stack", "walk_tb", "meta_path",
    "pluginmanager", "pytest_plugins", "__builtins__", "__import__", "__reduce__", "__reduce_ex__",
}  # fmt: skip
_READERS = {
    "bdb", "builtins", "code", "codeop", "cProfile", "ctypes", "dis", "doctest", "gc", "importlib",
    "linecache", "marshal", "pdb", "pickle", "pkgutil", "profile", "pydoc", "runpy", "symtable",
    "timeit", "tokenize", "trace",
}  # fmt: skip


class _Reader(ast.NodeVisitor):
    """Collects the findings in one file."""

    def __init__(self, file: str):
        self.file = file
        self.findings: list[Finding] = []
        self.modules: dict[str, str] = {}  # name in the file -> module of tinyllm
        self.tests: list[str] = []  # the function that is being read

    def finds(self, node: ast.AST, says: str) -> None:
        place = f"{self.file}:{getattr(node, 'lineno', 1)}"
        inside = next((f" in {name}" for name in self.tests if name.startswith("test")), "")
        self.findings.append(Finding(place + inside, says))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.tests.append(node.name)
        self.generic_visit(node)
        self.tests.pop()

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            if self.allowed(node, alias.name) and alias.name.partition(".")[0] == "tinyllm":
                bound = alias.asname or "tinyllm"
                self.modules[bound] = alias.name if alias.asname else "tinyllm"

    def allowed(self, node: ast.AST, module: str) -> bool:
        """Whether a module may be imported; else that is a finding."""
        top = module.partition(".")[0]
        if top == "tinyllm":
            known = [name for name in promised() if f"{name}.".startswith(f"{module}.")]
            if not known:
                self.finds(node, f"imports {module}, which has no contract")
            return bool(known)
        if top in _READERS:
            self.finds(node, f"imports {top}: tests call the module, they do not look at its code")
            return False
        if top not in LIBRARIES and top not in sys.stdlib_module_names:
            names = ", ".join(sorted(LIBRARIES))
            self.finds(node, f"imports {top}: only contracts, {names} and the standard library")
            return False
        return True

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if node.level:
            self.finds(node, "imports from another of your files: each test file stands alone")
        elif not self.allowed(node, module):
            pass
        elif module.partition(".")[0] == "tinyllm":
            for alias in node.names:
                whole = f"{module}.{alias.name}"
                if any(f"{name}.".startswith(f"{whole}.") for name in promised()):
                    self.modules[alias.asname or alias.name] = whole
                elif alias.name not in promised().get(module, set()):
                    self.finds(
                        node, f"imports {alias.name} from {module}, whose contract has no such name"
                    )
        else:
            for alias in node.names:
                self.look_at(node, alias.name)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.look_at(node, node.attr)
        path = ast.unparse(node) if _is_path(node) else ""
        head, _, rest = path.partition(".")
        if head in self.modules:
            whole = f"{self.modules[head]}.{rest}"
            module, _, name = whole.rpartition(".")
            deeper = any(f"{known}.".startswith(f"{whole}.") for known in promised())
            if module in promised() and not deeper and name not in promised()[module]:
                self.finds(node, f"uses {whole}, and no contract has it")
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in {"__import__", "__builtins__", "pytest_plugins", "exec", "eval", "compile"}:
            self.finds(node, f"uses {node.id}: what it would import or run cannot be read")

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self.look_at(node, node.value)  # getattr(f, "__code__")

    def look_at(self, node: ast.AST, name: str) -> None:
        if name in _CODE:
            self.finds(node, f"uses {name}: tests call the module, they do not look at its code")


def _is_path(node: ast.expr) -> bool:
    """Whether an expression is names and dots only."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)
