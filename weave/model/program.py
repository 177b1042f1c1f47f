# Tangled from book/workshop/weave-program.md
"""The tangled program as its syntax tree shows it: where names are defined and used, in which block."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import literate.book
import literate.expand
from literate.markdown import Block

NAME = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?:\(.*\)|\[.*\])?", re.DOTALL)
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(eq=False)
class Definition:
    """A function, class, method, constant or test, and the blocks that use it."""

    name: str  # split_heads
    qualified: str  # MultiHeadAttention.split_heads
    kind: str
    module: str
    block: Block
    line: int  # of the chapter
    bases: list[str] = field(default_factory=list)  # of a class: the names in its brackets
    uses: dict[int, Block] = field(default_factory=dict)  # blocks by their identity, in order


@dataclass(eq=False)
class Scope:
    """A class or a function, as the place of the blocks whose lines stand in it."""

    label: str  # "class MultiHeadAttention"
    block: Block  # that its first line came from
    outer: Scope | None


@dataclass(eq=False)
class Source:
    """The text of a Python file, taken apart."""

    tree: ast.Module
    imports: dict[str, tuple[str, str]]  # local name -> module, name
    named: list[tuple[ast.Name | ast.Attribute, str]]  # what is read, each with the class around it


@lru_cache(maxsize=1024)
def _source(text: str) -> Source | None:
    """A file as its syntax tree shows it; None where Python does not understand it."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    imports = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for one in node.names:
                imports[one.asname or one.name] = (node.module, one.name)
        elif isinstance(node, ast.Import):
            for one in node.names:
                if one.asname or "." not in one.name:
                    imports[one.asname or one.name] = (one.name, "")
    return Source(tree, imports, list(_named(tree, "")))


def _named(tree: ast.AST, owner: str) -> Iterator[tuple[ast.Name | ast.Attribute, str]]:
    """All names and attributes that are read, each with the class around it."""
    waiting = [(tree, owner)]
    while waiting:
        node, owner = waiting.pop()
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield node, owner
        inner = node.name if isinstance(node, ast.ClassDef) else owner
        waiting += ((child, inner) for child in ast.iter_child_nodes(node))


@dataclass(eq=False)
class Module:
    """One tangled Python file."""

    name: str
    target: str
    source: Source
    origins: list[tuple[Block, int]]  # for each line the block and the chapter's line
    definitions: dict[str, Definition] = field(default_factory=dict)  # by qualified name
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)  # local name -> module, name


class Program:
    """All Python files of a book. Empty while the book has diagnostics: then nothing is known for certain."""

    def __init__(self, book: literate.book.Book) -> None:
        self.modules: dict[str, Module] = {}  # "tinyllm.xfmr.mha" -> the file
        self.at: dict[tuple[str, int], str] = {}  # chapter and line of a block -> its place
        self.pages: dict[str, list[Module]] = {}  # chapter -> the modules that it writes to
        self._members: dict[str, list[Definition]] = {}  # name -> methods called so
        for target in () if book.errors else book.targets:
            if target.endswith(".py"):
                self._read(book, target)
        for module in self.modules.values():
            self._link(module)

    def _read(self, book: literate.book.Book, target: str) -> None:
        pieces = literate.expand.target_pieces(book, target)
        text = "".join(piece.text for piece in pieces)
        source = _source(text)
        if source is None or "\r" in text:  # which ends a line for Python, and not for the tangler
            return
        name = target.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        module = Module(
            name, target, source, literate.expand.origins(pieces), imports=source.imports
        )
        self.modules[name] = module
        for page in {block.chapter.name: None for block, _ in module.origins}:
            self.pages.setdefault(page, []).append(module)
        scopes: list[Scope | None] = [None] * (len(module.origins) + 2)
        self._define(module, source.tree.body, "", None, scopes)
        for number, (block, _) in enumerate(module.origins, 1):
            if (block.chapter.name, block.line) not in self.at:
                scope = scopes[number]
                while scope is not None and scope.block is block:
                    scope = scope.outer
                self.at[block.chapter.name, block.line] = scope.label if scope else ""

    def _define(
        self,
        module: Module,
        body: list[ast.stmt],
        outer: str,
        scope: Scope | None,
        scopes: list[Scope | None],
    ) -> None:
        for node in body:
            if isinstance(node, (*FUNCTION, ast.ClassDef)):
                first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
                whole = node if isinstance(node, ast.ClassDef) else None
                label = f"class {outer}{node.name}" if whole else f"{outer}{node.name}"
                inner = Scope(label, module.origins[first - 1][0], scope)
                last = node.end_lineno or first
                scopes[first : last + 1] = [inner] * (last + 1 - first)
                if scope is None or scope.label.startswith("class "):
                    made = self._add(module, outer, node.name, node.lineno, _kind(node, scope))
                    if whole:
                        made.bases += [
                            base.id for base in whole.bases if isinstance(base, ast.Name)
                        ]
                self._define(module, node.body, f"{outer}{node.name}.", inner, scopes)
            elif isinstance(node, ast.Assign | ast.AnnAssign) and scope is None:
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    if isinstance(target, ast.Name):
                        self._add(module, outer, target.id, node.lineno, "constant")
            elif isinstance(node, ast.If | ast.Try | ast.With | ast.For | ast.While):
                for part in ("body", "orelse", "finalbody"):
                    self._define(module, getattr(node, part, []), outer, scope, scopes)

    def _add(self, module: Module, outer: str, name: str, line: int, kind: str) -> Definition:
        block, at = module.origins[line - 1]
        made = Definition(name, outer + name, kind, module.name, block, at)
        module.definitions.setdefault(made.qualified, made)
        if outer:
            self._members.setdefault(name, []).append(made)
        return made

    def _link(self, module: Module) -> None:
        for node, owner in module.source.named:
            found = self._meant(module, node, owner)
            if found is not None:
                block = module.origins[node.lineno - 1][0]
                if block is not found.block:
                    found.uses.setdefault(id(block), block)

    def _meant(
        self, module: Module, node: ast.Name | ast.Attribute, owner: str
    ) -> Definition | None:
        """The definition that a name in the code stands for."""
        if isinstance(node, ast.Name):
            return self.resolved(module, node.id)
        of = node.value
        if isinstance(of, ast.Name):
            if of.id in ("self", "cls") and owner in module.definitions:
                return self.member(module.definitions[owner], node.attr)
            path, name = module.imports.get(of.id, ("", ""))
            inside = self.modules.get(f"{path}.{name}" if name else path)
            if inside is not None:
                return self.resolved(inside, node.attr)
            if of.id in module.imports or of.id in module.definitions:
                whole = self.resolved(module, of.id)
                if whole is not None and whole.kind == "class":
                    return self.member(whole, node.attr)
                if whole is None:
                    return None  # np.exp is numpy's
        members = self._members.get(node.attr, ())
        return members[0] if len(members) == 1 else None

    def member(self, whole: Definition, name: str) -> Definition | None:
        """A method of a class, its own or that of a class it is derived from."""
        waiting = [whole]
        for one in waiting:
            module = self.modules[one.module]
            if f"{one.qualified}.{name}" in module.definitions:
                return module.definitions[f"{one.qualified}.{name}"]
            bases = (self.resolved(module, base) for base in one.bases)
            waiting += [base for base in bases if base is not None and base not in waiting]
        return None

    def resolved(self, module: Module, name: str) -> Definition | None:
        """What a global name of a module stands for, through imports."""
        for _ in range(5):
            if name in module.definitions:
                return module.definitions[name]
            path, name = module.imports.get(name, ("", ""))
            if path not in self.modules or not name:
                return None
            module = self.modules[path]
        return None

    def lookup(self, text: str, page: str) -> Definition | None:
        """The definition that a name in a chapter's prose means: what the chapter's own code would mean by it."""
        found = NAME.fullmatch(text)
        if not found or len(text) < 3:
            return None
        first, _, rest = found[1].partition(".")
        modules = self.pages.get(page, [])
        if rest:
            path, _, name = found[1].rpartition(".")
            if path in self.modules:
                return self.resolved(self.modules[path], name)
            path, _, owner = path.rpartition(".")
            if path in self.modules:
                return self.modules[path].definitions.get(f"{owner}.{name}")
            for module in modules:
                whole = self.resolved(module, first)
                if whole is not None:
                    return self.member(whole, rest)
            return None
        for module in modules:
            whole = self.resolved(module, first)
            if whole is not None and (whole.kind != "constant" or first.isupper()):
                return whole
        members = self._members.get(first, [])
        for some in ([m for m in members if m.block.chapter.name == page], members):
            if len(some) == 1:
                return some[0]
        tops = [m.definitions[first] for m in self.modules.values() if first in m.definitions]
        if len(tops) == 1 and tops[0].kind != "constant" and not members:
            return tops[0]
        return None


def _kind(node: Any, scope: Scope | None) -> str:
    if isinstance(node, ast.ClassDef):
        return "class"
    if node.name.startswith("test_"):
        return "test"
    return "function" if scope is None else "method"
