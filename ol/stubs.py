# Tangled from book/workshop/ol.md
"""A module to fill in, made from a contract."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ol.registry import Chapter


def stub(chapter: Chapter) -> str:
    """The module of a chapter with every function still to be written."""
    text = chapter.contract.read_text(encoding="utf-8")
    text = re.sub(r"\A# Tangled from .*\n", "", text)
    text = _spaced(_ordered(_with_bodies(_with_values(text), chapter.id)))
    tree = ast.parse(text)
    lines = text.splitlines(keepends=True)
    first = tree.body[0]
    told = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    after = (first.end_lineno or 0) if told else 0  # the module's docstring comes first
    gap = "\n" if after else ""
    lines.insert(after, f"{gap}from __future__ import annotations\n")
    head = f"# {chapter}. `ol tests {chapter.id}` runs the course's tests against this file.\n"
    return head + "".join(lines)


def _with_bodies(text: str, chapter: str) -> str:
    lines = text.splitlines(keepends=True)
    for name, node in sorted(_functions(ast.parse(text)), key=lambda pair: -pair[1].lineno):
        last = node.body[-1]
        words = f'raise NotImplementedError("{chapter}: {name} is not written yet")\n'
        body = " " * (node.col_offset + 4) + words
        assert last.end_lineno is not None
        at = last.end_lineno - 1
        if isinstance(last, ast.Expr) and getattr(last.value, "value", None) is ...:
            before = lines[at].encode()[: last.col_offset].decode().rstrip()  # columns are of bytes
            lines[at] = f"{before}\n{body}" if before else body
        else:
            lines.insert(at + 1, body)
    return "".join(lines)


def _with_values(text: str) -> str:
    """Constants of the module get a value, so that it can be imported from."""
    lines = text.splitlines(keepends=True)
    for node in ast.parse(text).body:
        if isinstance(node, ast.AnnAssign) and node.value is None and node.end_lineno:
            line = lines[node.end_lineno - 1].encode()
            end = node.end_col_offset
            lines[node.end_lineno - 1] = (line[:end] + b" = ...  # not written yet\n").decode()
    return "".join(lines)


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Every function and method of a contract, with its name as a person writes it."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef):
                    yield f"{node.name}.{inner.name}", inner


def _ordered(text: str) -> str:
    tree, lines = ast.parse(text), text.splitlines(keepends=True)
    later: dict[str, int] = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            later[node.name] = node.lineno
    moved: list[str] = []
    for node in reversed(tree.body):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            used = {n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)}
            if any(later.get(name, 0) > node.lineno for name in used):
                moved[:0] = lines[node.lineno - 1 : node.end_lineno]
                del lines[node.lineno - 1 : node.end_lineno]
    return "".join(lines) + ("\n" + "".join(moved) if moved else "")


def _spaced(text: str) -> str:
    tree, lines = ast.parse(text), text.splitlines(keepends=True)
    wanted: dict[int, int] = {}  # line -> blank lines before it
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            wanted[_first_line(node)] = 2
        if isinstance(node, ast.ClassDef):
            for before, inner in zip(node.body, node.body[1:], strict=False):
                if isinstance(inner, ast.FunctionDef):
                    wanted[_first_line(inner)] = 1
                elif isinstance(before, ast.FunctionDef):
                    wanted[inner.lineno] = 1
    for line in sorted(wanted, reverse=True):
        there = 0
        while line - 2 - there >= 0 and not lines[line - 2 - there].strip():
            there += 1
        lines[line - 1 - there : line - 1] = ["\n"] * wanted[line]
    return "".join(lines)


def _first_line(node: ast.ClassDef | ast.FunctionDef) -> int:
    return min([node.lineno, *(mark.lineno for mark in node.decorator_list)])


RUNGS = {
    "R1": "examples: values that you worked out by hand",
    "R2": "edges: empty, single, largest, refused",
    "R3": "properties: what holds for every input",
    "R4": "gradients: against differences of function values",
    "R5": "oracles: the same result by an independent way",
}


def rungs_up_to(rung: str) -> list[str]:
    """What a rung asks for: each includes those before it."""
    return [f"{name} {text}" for name, text in RUNGS.items() if name <= rung]


def test_stub(chapter: Chapter) -> str:
    """The learner's test file before the first test."""
    asks = "\n".join(f"    {line}" for line in rungs_up_to(chapter.rung))
    names = ", ".join(chapter.facts["names"])
    return f'''"""Your tests of {chapter}, rung {chapter.rung}.

They are graded: `ol mutate {chapter.id}` runs them against the right module, then against wrong ones.
A wrong module that fails a test is caught; the score is the share of those that are.

What this rung asks for:
{asks}

You may import from {chapter.module} ({names}) and any other name of a contract, numpy, pytest, torch and
the standard library. Test what the contract promises: right modules that are built otherwise must pass.
"""
'''
