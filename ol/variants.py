# Tangled from book/workshop/ol-grade.md
"""Right modules that are built otherwise: tests that ask for no more than the contract pass on them."""

from __future__ import annotations

import ast

from ol.registry import COURSE, Chapter


def variants(chapter: Chapter) -> dict[str, str]:
    """Right modules that are built otherwise: name -> source."""
    folder = COURSE / "variants" / chapter.id
    found = {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py"))}
    found["renamed"] = renamed(chapter.reference.read_text(encoding="utf-8"))
    return found


def renamed(source: str) -> str:
    """The same module with other private names, other lines and no docstrings."""
    tree = ast.parse(source)
    mine = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and node.name.startswith("_")
        and not node.name.endswith("__")
    }
    return ast.unparse(_Renamer(mine).visit(without_docstring(tree))) + "\n"


class _Renamer(ast.NodeTransformer):
    """Gives the private definitions of a module other names, and drops docstrings."""

    def __init__(self, names: set[str]):
        self.names = names

    def other(self, name: str) -> str:
        return f"{name}_by_another_name" if name in self.names else name

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name = self.other(node.name)
        return self.generic_visit(without_docstring(node))

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.name = self.other(node.name)
        return self.generic_visit(without_docstring(node))

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
