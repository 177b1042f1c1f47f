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
    """The same module, compiled, in base64: unless it is known in words that nobody has seen."""
    tree = ast.parse(source) if known else in_other_words(ast.parse(source))
    words = -1 if known else 2  # 2: without docstrings
    code = compile(tree, file, "exec", dont_inherit=True, optimize=words)
    return base64.b64encode(marshal.dumps(code)).decode()


def in_other_words(tree: ast.Module) -> ast.Module:
    """The same module with other private names and lines, and statements that do nothing, by chance."""
    chance = random.SystemRandom()
    names = {name: f"_{chance.getrandbits(40):x}" for name in _private(tree)}
    tree = _Renamer(names).visit(tree)
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
    """Gives these things other names."""

    def __init__(self, names: dict[str, str]):
        self.names = names

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.ClassDef) -> ast.AST:
        node.name = self.names.get(node.name, node.name)
        return self.generic_visit(node)

    visit_ClassDef = visit_FunctionDef  # noqa: N815, the name is ast's

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self.names.get(node.id, node.id)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        node.attr = self.names.get(node.attr, node.attr)
        return self.generic_visit(node)
