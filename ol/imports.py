# Tangled from book/workshop/ol-grade.md
"""What a learner's tests import, and whether they may: read from the syntax tree."""

from __future__ import annotations

import ast
import functools
import symtable
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import tinyllm
from ol.registry import COURSE, module_name

LIBRARIES = {"numpy", "pytest", "torch"}


@functools.cache
def promised() -> dict[str, set[str]]:
    """Module -> the names in its contract."""
    found = {"tinyllm": set(tinyllm.__all__)}
    folder = COURSE / "contracts"
    for path in folder.rglob("*.pyi"):
        module = module_name(path.relative_to(folder).with_suffix(".py").as_posix())
        top = symtable.symtable(path.read_text(encoding="utf-8"), path.name, "exec")
        named = [s for s in top.get_symbols() if s.is_local() or s.is_imported()]
        found[module] = {s.get_name() for s in named if not s.get_name().startswith("_")}
    return found


def _promised_below(place: str) -> bool:
    """Whether a module with a contract is there, or below it: tinyllm.xfmr. for example."""
    return any(f"{name}.".startswith(place) for name in promised())


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

    def finds(self, node: ast.AST, says: str) -> None:
        self.findings.append(Finding(f"{self.file}:{getattr(node, 'lineno', 1)}", says))

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.allowed(node, alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if node.level:
            self.finds(node, "imports from another of your files: each test file stands alone")
        elif self.allowed(node, module):
            for alias in node.names:
                inside = f"{module}.{alias.name}."
                known = alias.name in promised().get(module, ())
                if module.partition(".")[0] == "tinyllm" and not (known or _promised_below(inside)):
                    why = f"imports {alias.name} from {module}, whose contract has no such name"
                    self.finds(node, why)

    def allowed(self, node: ast.AST, module: str) -> bool:
        """Whether a module may be imported; else that is a finding."""
        top, says = module.partition(".")[0], ""
        if top == "tinyllm" and not _promised_below(f"{module}."):
            says = f"imports {module}, which has no contract"
        elif top in _READERS:
            says = f"imports {top}: tests call the module, they do not look at its code"
        elif top not in {"tinyllm", *LIBRARIES, *sys.stdlib_module_names}:
            names = ", ".join(sorted(LIBRARIES))
            says = f"imports {top}: only contracts, {names} and the standard library"
        if says:
            self.finds(node, says)
        return not says

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in {"__import__", "__builtins__", "pytest_plugins", "exec", "eval", "compile"}:
            self.finds(node, f"uses {node.id}: what it would import or run cannot be read")
