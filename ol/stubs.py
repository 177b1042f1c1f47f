# Tangled from book/workshop/ol.md
"""A module to fill in, made from a contract."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ol.registry import COURSE, Chapter


def stub(chapter: Chapter) -> str:
    """The module of a chapter with every function still to be written."""
    text = re.sub(r"\A# Tangled from .*\n", "", chapter.contract.read_text(encoding="utf-8"))
    rest = r"\1\nfrom __future__ import annotations\n"  # the module's docstring comes first
    text = re.sub(r'\A(""".*?"""\n)', rest, text, flags=re.DOTALL)
    head = f"# {chapter}. `ol tests {chapter.id}` runs the course's tests against this file.\n"
    return head + _spaced(_with_bodies(text, chapter.id))


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


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Every function and method of a contract, with its name as a person writes it."""
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    for place, body in [("", tree.body), *((f"{one.name}.", one.body) for one in classes)]:
        functions = (node for node in body if isinstance(node, ast.FunctionDef))
        yield from ((place + node.name, node) for node in functions)


def _spaced(text: str) -> str:
    for indent, gap in (("    ", "\n"), ("", "\n\n")):
        begins = rf"^\n*((?:{indent}@.*\n)*{indent}(?:class|def) )"
        text = re.sub(begins, lambda found, gap=gap: gap + found[1], text, flags=re.MULTILINE)  # type: ignore[misc]
    return text


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
    words = {"TITLE": str(chapter), "CHAPTER": chapter.id, "RUNG": chapter.rung, "ASKS": asks}
    words |= {"MODULE": chapter.module, "NAMES": ", ".join(chapter.facts["names"])}
    text = (COURSE / "test_stub.txt").read_text(encoding="utf-8")
    return re.sub("|".join(words), lambda found: words[found[0]], text)
