# Tangled from book/workshop/ol-authors.md
"""Make the generated mutants of a chapter's grade."""

from __future__ import annotations

import ast
import contextlib
import difflib
import importlib
import itertools
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ol.jobs import Job, Verdict, function_name
from ol.mutants import Mutant, PatchError, mutant, patch_file, seeded_mutants
from ol.registry import COURSE, ROOT, Answer, Chapter, Refusal, find, module_name
from ol.runner import Runner
from ol.terminal import show
from ol.workspace import write


@dataclass(frozen=True)
class Candidate:
    """A mutated module, before it is known whether any test sees what is wrong."""

    maker: str  # field, mutmut
    what: str  # in a few words
    source: str


def candidates(source: str, known: Iterable[str] = ()) -> Iterator[Candidate]:
    """All that the two makers find, each program once, and none that is known."""
    seen = {ast.dump(ast.parse(text)) for text in (source, *known)}
    for made in (*of_the_field(source), *from_mutmut(source)):
        try:
            tree = ast.dump(ast.parse(made.source))
        except SyntaxError:
            continue
        if tree not in seen:
            seen.add(tree)
            yield made


def from_mutmut(source: str) -> Iterator[Candidate]:
    """What mutmut makes of a module."""
    file_mutation = importlib.import_module("mutmut.mutation.file_mutation")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("src").mkdir()  # it looks for a project before it does anything
        module, mutations, *_ = file_mutation.create_mutations("module.py", source)
    for mutation in mutations:
        code = file_mutation.deep_replace(
            module, mutation.original_node, mutation.mutated_node
        ).code
        if not is_crude(source, code):
            yield Candidate("mutmut", _in_words(source, code), code)


def _in_words(old: str, new: str) -> str:
    """The change, with a few words around it: `1.0 * math` instead of `1.0 / math`."""
    a, b = re.findall(r"\w+|\s+|.", old, re.DOTALL), re.findall(r"\w+|\s+|.", new, re.DOTALL)
    first, last = _alike(a, b)
    left = "".join(a[max(0, first - 5) : first]).rpartition("\n")[2]
    right = "".join(a[len(a) - last :][:5]).partition("\n")[0]
    before, after = ("".join(t[first : len(t) - last]) for t in (a, b))
    return f"`{_short(left + after + right)}` instead of `{_short(left + before + right)}`"


def _alike(a: Sequence[str], b: Sequence[str]) -> tuple[int, int]:
    """How many items at the beginning and at the end are the same in both."""
    shorter = min(len(a), len(b))
    first = next((i for i in range(shorter) if a[i] != b[i]), shorter)
    return first, next(
        (i for i in range(shorter - first) if a[-1 - i] != b[-1 - i]), shorter - first
    )


def _short(text: str, size: int = 60) -> str:
    text = re.sub(r"\s+", " ", text).strip()
    return text if len(text) <= size else text[: size - 3] + "..."


def is_crude(old: str, new: str) -> bool:
    """Whether a mutant only leaves an argument out, or puts None or another word there."""
    texts = [re.sub(r",\s*\)", ")", text) for text in (old, new)]
    names = [Counter(re.findall(r"\bNone\b|,|\"\w*\"", text)) for text in texts]
    return names[0] != names[1]


def of_the_field(source: str) -> Iterator[Candidate]:
    """Mutants that only someone who knows arrays thinks of."""
    for node in ast.walk(ast.parse(source)):
        if hasattr(node, "end_col_offset"):
            for words, text in _proposals(node):
                yield Candidate("field", words, _put(source, node, text))


def _proposals(node: ast.AST) -> Iterator[tuple[str, str]]:
    """What is wrong, and the text of the wrong expression."""
    match node:
        case ast.BinOp(a, ast.MatMult(), b):
            yield "the operands of @ swapped", f"({ast.unparse(b)}) @ ({ast.unparse(a)})"
        case ast.BinOp(top, ast.Div(), ast.Call(ast.Attribute(attr="sqrt"), [width])):
            yield "the square root dropped", f"{ast.unparse(top)} / ({ast.unparse(width)})"
            yield "the scale dropped", ast.unparse(top)
            yield "the scale inverted", ast.unparse(ast.Call(node.right.func, [width], []))  # type: ignore[attr-defined]
        case ast.Attribute(x, "T"):
            yield "a transpose dropped", ast.unparse(x)
        case ast.Call(ast.Attribute(x, "transpose"), [*axes]) if len(axes) > 2:
            for other in _swaps(axes):
                yield "a transpose with other axes", f"{ast.unparse(x)}.transpose({other})"
            yield "a transpose dropped", ast.unparse(x)
        case ast.Call(ast.Attribute(x, "reshape"), [*sizes]) if len(sizes) > 2:
            for other in _swaps(sizes):
                yield "a reshape in another order", f"{ast.unparse(x)}.reshape({other})"
        case ast.keyword("axis", ast.UnaryOp(ast.USub(), ast.Constant(1))):
            yield "another axis", "axis=-2"
            yield "another axis", "axis=0"
        case ast.Subscript(ast.Attribute(x, "shape"), ast.Constant(int(axis))):
            other = f"{ast.unparse(x)}.shape[{axis + 1 if axis != -1 else 0}]"
            yield "the length of another axis", other
        case ast.Subscript(ast.Name(name), ast.Tuple([*parts])) if any(
            isinstance(p, ast.Constant) and p.value is None for p in parts
        ):
            places = ["None" if isinstance(p, ast.Constant) else ast.unparse(p) for p in parts]
            yield "the new axis in another place", f"{name}[{', '.join(reversed(places))}]"
            yield "a mask without its new axis", name
            yield "a mask inverted", f"~{name}[{', '.join(places)}]"
        case ast.Compare(a, [ast.Lt() | ast.LtE() | ast.Gt() | ast.GtE() as sign], [b]):
            turned = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"}[type(sign)]
            yield "a comparison shifted by one", f"{ast.unparse(a)} {turned} {ast.unparse(b)}"
        case ast.Return(ast.Name("allowed")):
            yield "a mask inverted", "return ~allowed"
        case ast.IfExp(test, one, two):
            yield "the two cases swapped", ast.unparse(ast.IfExp(test, two, one))
        case ast.Call(f, [*args]) if len(args) > 1 and isinstance(f, ast.Attribute | ast.Name):
            for other in _swaps(args, node.keywords):
                yield "two arguments swapped", f"{ast.unparse(f)}({other})"
        case ast.Tuple([ast.Constant(str()), *_] as parts) | ast.Tuple([ast.Name(), *_] as parts):
            for other in _swaps(parts):
                yield "two things in another order", f"({other})"
        case ast.List([ast.Attribute(), _, *_] as parts):
            for other in _swaps(parts):
                yield "two things in another order", f"[{other}]"
        case ast.Name(name, ast.Load()) if name in OTHER_NAMES:
            for instead in OTHER_NAMES[name]:
                yield f"{instead} in the place of {name}", instead
        case ast.Attribute(x, name, ast.Load()) if name in OTHER_NAMES:
            for instead in OTHER_NAMES[name]:
                yield f"{instead} in the place of {name}", f"{ast.unparse(x)}.{instead}"
        case ast.Expr(ast.Call()):
            yield "a statement left out", "pass"


def _swaps(parts: Sequence[ast.AST], rest: Sequence[ast.AST] = ()) -> Iterator[str]:
    """A list of things with each two neighbours swapped, and the rest of it as it is."""
    said, last = [ast.unparse(part) for part in parts], [ast.unparse(part) for part in rest]
    for i in range(len(said) - 1):
        yield ", ".join([*said[:i], said[i + 1], said[i], *said[i + 2 :], *last])


OTHER_NAMES = {
    "x_q": ["x_kv"], "x_kv": ["x_q"], "Tq": ["Tk"], "Tk": ["Tq"], "B": ["Tq"],
    "q_proj": ["k_proj"], "k_proj": ["v_proj"], "v_proj": ["q_proj"], "out_proj": ["v_proj"],
    "d_model": ["d_head", "n_heads"], "d_head": ["n_heads", "d_model"], "n_heads": ["d_head"],
    "training": ["dropout"],
}  # fmt: skip


def _put(source: str, node: ast.AST, text: str) -> str:
    """The source with another text in the place of a node."""
    lines = source.encode().splitlines(keepends=True)  # columns are of bytes
    first, last = node.lineno - 1, node.end_lineno - 1  # type: ignore[attr-defined]
    head = lines[first][: node.col_offset]  # type: ignore[attr-defined]
    tail = lines[last][node.end_col_offset :]  # type: ignore[attr-defined]
    return b"".join([*lines[:first], head + text.encode() + tail, *lines[last + 1 :]]).decode()


def is_promised(source: str, made: Candidate, left_out: set[str]) -> bool:
    """Whether a mutant changes something that a contract speaks of."""
    old, new = source.splitlines(), made.source.splitlines()
    first, last = _alike(old, new)
    changed = set(range(first + 1, max(len(old) - last, first + 1) + 1))
    tree = ast.parse(source)
    for node in ast.walk(tree):
        span = range(getattr(node, "lineno", 0), (getattr(node, "end_lineno", 0) or 0) + 1)
        silent = isinstance(node, ast.Raise | ast.Import | ast.ImportFrom) or (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        )
        named = isinstance(node, ast.FunctionDef) and node.name in left_out
        named |= isinstance(node, ast.Assign) and node in tree.body
        if (silent or named) and changed <= set(span):
            return False
    return True


def lenient(tests: str, beyond: set[str]) -> str:
    """The course's tests without some of them."""
    tree = ast.parse(tests)
    tree.body = [node for node in tree.body if getattr(node, "name", "") not in beyond]
    return ast.unparse(tree) + "\n"


def lenient_tests(chapter: Chapter, beyond: set[str], folder: Path) -> Path:
    """The same for a chapter, as a file in a folder."""
    path = folder / chapter.course_tests.name
    path.write_text(lenient(chapter.course_tests.read_text(encoding="utf-8"), beyond), "utf-8")
    return path


def patch(chapter: Chapter, source: str, made: Candidate) -> str:
    """A mutant as it is kept: a unified diff, with one line around the change."""
    old, new = (text.splitlines(keepends=True) for text in (source, made.source))
    return "".join(difflib.unified_diff(old, new, f"a/{chapter.path}", f"b/{chapter.path}", n=1))


def place(source: str, made: Candidate) -> str:
    """The dotted name of the innermost class or function around a change."""
    line, _ = _alike(source.splitlines(), made.source.splitlines())
    body: list[ast.stmt] = ast.parse(source).body
    names: list[str] = []
    while True:
        around = [
            node
            for node in body
            if isinstance(node, ast.FunctionDef | ast.ClassDef)
            and node.lineno - 1 <= line < (node.end_lineno or 0)
        ]
        if not around:
            return ".".join(names)
        names.append(around[0].name)
        body = around[0].body


def facts(source: str, made: Candidate, test: str) -> dict[str, Any]:
    """What is kept of a mutant beside its patch: the same as of a pitfall, and how it was made."""
    where = place(source, made)
    function = where.rpartition(".")[2] or "the module"
    return {
        "pitfall": f"{made.what} in {function}",
        "caught_by": [test],
        "hint": f"Look at {function}: {made.what}.",
        "witness": f"what the course's {test} tries, which fails on it",
        "in": where,
        "maker": made.maker,
    }


def spread(source: str, made: list[Candidate], most: int = 20) -> list[Candidate]:
    """At most so many candidates, from each line and each function in turn."""
    count: Counter[object] = Counter()
    turns = []
    for number, one in enumerate(made):
        keys = _alike(source.splitlines(), one.source.splitlines()), place(source, one)
        count.update(keys)
        turns.append((*(count[key] for key in keys), number))
    return [made[number] for *_, number in sorted(turns)[:most]]


def unsubsumed(kills: Mapping[str, Collection[str]]) -> list[str]:
    """Mutants by the tests that catch them: one of those that die alike, none that others subsume."""
    first: dict[frozenset[str], str] = {}
    for name, tests in kills.items():
        first.setdefault(frozenset(tests), name)
    return [name for tests, name in first.items() if not any(other < tests for other in first)]


MOST, LIMIT = 40, 30.0  # mutants in a grade, seconds for each


def first_demand(chapter: Chapter) -> dict[str, Any]:
    """What a chapter asks for whose grade is new: a score, and the pitfalls of its key takeaways."""
    book = json.loads((COURSE / "book.json").read_text(encoding="utf-8"))[chapter.id]
    tests = {test for takeaway in book["takeaways"] for test in takeaway["tests"]}
    known = {one.name: tests & {*one.facts["caught_by"]} for one in seeded_mutants(chapter)}
    pitfalls = sorted(name for name, shown in known.items() if name[0] == "s" and shown)
    return {"score": 0.8, "pitfalls": pitfalls, "beyond": [], "left_out": [], "mutants": {}}


def freeze(chapter: Chapter) -> Answer:
    """Make generated mutants of a chapter in the place of stale ones, of those that tests catch."""
    path = COURSE / "graded" / f"{chapter.id}.json"
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else first_demand(chapter)
    source = chapter.reference.read_text(encoding="utf-8")
    fit = {one.name: one for one in _fitting(chapter, kept["mutants"])}
    stale = {name: known for name, known in kept["mutants"].items() if name not in fit}
    if fit and not stale:
        return Answer(0, [f"none of the {len(fit)} mutants is stale"], {"kept": len(fit)})
    known = [one.source for one in (*seeded_mutants(chapter), *fit.values())]
    made = [
        one
        for one in candidates(source, known)
        if is_promised(source, one, set(kept["left_out"]))
        and (not fit or place(source, one) in {old["in"] for old in stale.values()})
    ]
    new = {str(i): one for i, one in enumerate(spread(source, made))}
    seeded = {one.name: one for one in seeded_mutants(chapter) if one.facts["hint"]}
    counted = {name: (one.path, one.source) for name, one in (seeded | fit).items()}
    sources = counted | {name: (chapter.path, one.source) for name, one in new.items()}
    caught = _caught(chapter, sources, new, set(kept["beyond"]))
    picked = list(caught)[: MOST - len(counted)]
    for name in stale:
        patch_file(chapter, name).unlink(missing_ok=True)
    kept["mutants"] = {name: one.facts for name, one in fit.items()}
    free = (name for i in itertools.count(1) if (name := f"g{i:02}") not in fit)
    for name, called in zip(picked, free, strict=False):
        kept["mutants"][called] = facts(source, new[name], caught[name])
        write(patch_file(chapter, called), patch(chapter, source, new[name]))
    kept["mutants"] = dict(sorted(kept["mutants"].items()))
    write(path, json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    makers = Counter(new[name].maker for name in picked)
    count = len(kept["mutants"])
    lines = [
        f"{len(made)} candidates, {len(new)} tried",
        f"taken {len(picked)} that are not subsumed: {dict(makers)}",
        f"{len(stale)} were stale, now there are {count}",
    ]
    return Answer(0, lines, {"candidates": len(made), "kept": count, "makers": dict(makers)})


def _fitting(chapter: Chapter, known: dict[str, dict[str, Any]]) -> Iterator[Mutant]:
    """The generated mutants whose lines the module still has."""
    for name, told in known.items():
        with contextlib.suppress(PatchError, FileNotFoundError):
            yield mutant(chapter, name, told)


SUITES = ROOT / "tests" / "suites"  # of a checkout


def _caught(
    chapter: Chapter,
    sources: Mapping[str, tuple[str, str]],
    new: Collection[str],
    beyond: set[str],
) -> dict[str, str]:
    """The new mutants that count, each with the course's test that catches it."""
    with tempfile.TemporaryDirectory() as folder, Runner() as runner:

        def run(names: Iterable[str], tests: Iterable[Path], **how: Any) -> dict[str, Verdict]:
            files = tuple(map(str, sorted(tests)))
            texts = {n: {module_name(sources[n][0]): sources[n]} for n in names} | {"right": {}}
            jobs = [Job(n, files, m, seconds=LIMIT, **how) for n, m in texts.items()]
            found = {verdict.job: verdict for verdict in runner.run(jobs)}
            if found["right"].state != "missed":
                raise Refusal(f"the right module does not pass: {found['right']}")
            return {name: found[name] for name in names}

        suites = SUITES / chapter.id
        quick = run(sources, suites.glob("smoke_*.py"), stop=True)
        quiet = [name for name, verdict in quick.items() if verdict.state == "missed"]
        seen = run(quiet, suites.glob("honest_*.py")).items()
        left = unsubsumed({name: verdict.failed for name, verdict in seen if verdict.failed})
        tests = [lenient_tests(chapter, beyond, Path(folder))]
        last = run([name for name in left if name in new], tests, stop=True)
    return {name: function_name(one.failed[0]) for name, one in last.items() if one.failed}


if __name__ == "__main__":
    sys.exit(show(freeze(find(sys.argv[1])), as_json=False))
