# Tangled from book/workshop/ol-grade.md
"""Right modules that are built otherwise: tests that ask for no more than the contract pass on them."""

from __future__ import annotations

import ast
import base64
import marshal
import random

from ol.registry import COURSE, Chapter


def variants(chapter: Chapter) -> dict[str, str]:
    """Right modules that are built otherwise: name -> source."""
    folder = COURSE / "variants" / chapter.id
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py"))}


def sealed(source: str, file: str, known: bool = False) -> str:
    """The same module, unless it is known in words that nobody has seen, compiled: in base64."""
    tree = ast.parse(source) if known else _in_other_words(ast.parse(source))
    code = compile(tree, file, "exec", dont_inherit=True)
    return base64.b64encode(marshal.dumps(code)).decode()


def _in_other_words(tree: ast.Module) -> ast.Module:
    chance = random.SystemRandom()
    names = {name: f"_{chance.getrandbits(40):x}" for name in _private(tree)}
    tree = _Renamer(names).visit(without_docstring(tree))
    for node in [*ast.walk(tree)]:
        if isinstance(node, ast.FunctionDef):
            idle = ast.parse(f"_{chance.getrandbits(40):x} = {chance.getrandbits(40)}").body
            at = chance.randrange(len(node.body))
            node.body[at:at] = [ast.copy_location(idle[0], node.body[at])]
    return ast.fix_missing_locations(ast.increment_lineno(tree, chance.randrange(1000)))


def _private(tree: ast.Module) -> set[str]:
    """The names of functions and classes that begin with one underscore."""
    defined = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    return {n.name for n in defined if n.name.startswith("_") and not n.name.endswith("__")}


class _Renamer(ast.NodeTransformer):
    """Gives these things other names; drops docstrings."""

    def __init__(self, names: dict[str, str]):
        self.names = names

    def other(self, name: str) -> str:
        return self.names.get(name, name)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.ClassDef) -> ast.AST:
        node.name = self.other(node.name)
        return self.generic_visit(without_docstring(node))

    visit_ClassDef = visit_FunctionDef  # noqa: N815, the name is ast's

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self.other(node.id)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        node.attr = self.other(node.attr)
        return node


def without_docstring(node: ast.AST) -> ast.AST:
    """A module, class or function without what it says of itself."""
    body: list[ast.stmt] = node.body  # type: ignore[attr-defined]
    if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body[:1] = [] if len(body) > 1 else [ast.Pass()]
    return node
