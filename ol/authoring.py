# Tangled from book/workshop/ol-authors.md
"""For authors: make the generated mutants of a chapter's grade, and collect the takeaways."""

from __future__ import annotations

import ast
import contextlib
import difflib
import importlib
import itertools
import json
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ol.faults import replaced, segment
from ol.mutation import Job, Runner, function_name, seeded_mutants
from ol.registry import COURSE, Answer, Chapter, Refusal


@dataclass(frozen=True)
class Candidate:
    """A mutated module, before it is known whether any test sees the fault."""

    maker: str  # field, mutmut, cosmic-ray
    what: str  # in a few words
    source: str


def candidates(source: str, known: Iterable[str] = ()) -> Iterator[Candidate]:
    """All that the three makers find, each program once, and none that is known."""
    seen = {ast.dump(ast.parse(text)) for text in (source, *known)}
    for made in (*of_the_field(source), *from_mutmut(source), *from_cosmic_ray(source)):
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


COSMIC_RAY = {
    "NumberReplacer", "ReplaceAndWithOr", "ReplaceOrWithAnd", "AddNot", "ReplaceTrueWithFalse",
    "ReplaceFalseWithTrue", "ZeroIterationForLoop", "ReplaceUnaryOperator_Delete_Not",
    *(f"ReplaceBinaryOperator_{pair}" for pair in ("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul")),
    *(f"ReplaceComparisonOperator_{pair}" for pair in ("Eq_NotEq", "NotEq_Eq", "Lt_LtE", "LtE_Lt")),
    *(f"ReplaceComparisonOperator_{pair}" for pair in ("NotEq_Lt", "NotEq_Gt", "Is_IsNot")),
}  # fmt: skip


def from_cosmic_ray(source: str) -> Iterator[Candidate]:
    """What cosmic-ray makes of a module."""
    plugins = importlib.import_module("cosmic_ray.plugins")
    mutating = importlib.import_module("cosmic_ray.mutating")
    for name in sorted(plugins.operator_names()):
        if name.rpartition("/")[2] not in COSMIC_RAY:
            continue
        operator = plugins.get_operator(name)()
        occurrence = 0
        while (code := mutating.mutate_code(source, operator, occurrence)) is not None:
            occurrence += 1
            yield Candidate("cosmic-ray", _in_words(source, code), code)


def _in_words(old: str, new: str) -> str:
    """The change, with a few words around it: `1.0 * math` instead of `1.0 / math`."""
    a, b = re.findall(r"\w+|\s+|.", old, re.DOTALL), re.findall(r"\w+|\s+|.", new, re.DOTALL)
    shorter = min(len(a), len(b))
    first = next((i for i in range(shorter) if a[i] != b[i]), shorter)
    last = next((i for i in range(shorter - first) if a[-1 - i] != b[-1 - i]), shorter - first)
    left = "".join(a[max(0, first - 5) : first]).rpartition("\n")[2]
    right = "".join(a[len(a) - last :][:5]).partition("\n")[0]
    before, after = ("".join(t[first : len(t) - last]) for t in (a, b))
    return f"`{_short(left + after + right)}` instead of `{_short(left + before + right)}`"


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
            said = [ast.unparse(axis) for axis in axes]
            for i in range(len(said) - 1):
                other = [*said[:i], said[i + 1], said[i], *said[i + 2 :]]
                yield (
                    "a transpose with other axes",
                    f"{ast.unparse(x)}.transpose({', '.join(other)})",
                )
            yield "a transpose dropped", ast.unparse(x)
        case ast.Call(ast.Attribute(x, "reshape"), [*sizes]) if len(sizes) > 2:
            said = [ast.unparse(size) for size in sizes]
            for i in range(len(said) - 1):
                other = [*said[:i], said[i + 1], said[i], *said[i + 2 :]]
                yield "a reshape in another order", f"{ast.unparse(x)}.reshape({', '.join(other)})"
        case ast.keyword("axis", ast.UnaryOp(ast.USub(), ast.Constant(1))):
            yield "another axis", "axis=-2"
            yield "another axis", "axis=0"
        case ast.Subscript(ast.Attribute(x, "shape"), ast.Constant(int(axis))):
            yield (
                "the length of another axis",
                f"{ast.unparse(x)}.shape[{axis + 1 if axis != -1 else 0}]",
            )
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
            said = [ast.unparse(arg) for arg in args]
            rest = [ast.unparse(keyword) for keyword in node.keywords]
            for i in range(len(said) - 1):
                other = [*said[:i], said[i + 1], said[i], *said[i + 2 :], *rest]
                yield "two arguments swapped", f"{ast.unparse(f)}({', '.join(other)})"
        case ast.Tuple([ast.Constant(str()), *_] as parts) | ast.Tuple([ast.Name(), *_] as parts):
            said = [ast.unparse(part) for part in parts]
            for i in range(len(said) - 1):
                other = [*said[:i], said[i + 1], said[i], *said[i + 2 :]]
                yield "two things in another order", f"({', '.join(other)})"
        case ast.List([ast.Attribute(), _, *_] as parts):
            said = [ast.unparse(part) for part in parts]
            for i in range(len(said) - 1):
                other = [*said[:i], said[i + 1], said[i], *said[i + 2 :]]
                yield "two things in another order", f"[{', '.join(other)}]"
        case ast.Name(name, ast.Load()) if name in OTHER_NAMES:
            for instead in OTHER_NAMES[name]:
                yield f"{instead} in the place of {name}", instead
        case ast.Attribute(x, name, ast.Load()) if name in OTHER_NAMES:
            for instead in OTHER_NAMES[name]:
                yield f"{instead} in the place of {name}", f"{ast.unparse(x)}.{instead}"
        case ast.Expr(ast.Call()):
            yield "a statement left out", "pass"
        case _:
            return


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
    changed: set[int] = set()
    for tag, i, j, _, _ in difflib.SequenceMatcher(None, old, new, False).get_opcodes():
        if tag != "equal":
            changed |= set(range(i + 1, max(j, i + 1) + 1))
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


class _Lenient(ast.NodeTransformer):
    """Takes the checks of messages out of tests."""

    def __init__(self, beyond: set[str]):
        self.beyond = beyond

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if ast.unparse(node.func) == "pytest.raises":
            node.keywords = [k for k in node.keywords if k.arg != "match"]
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        return ast.Pass() if "error.value" in ast.unparse(node) else node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST | None:
        self.generic_visit(node)
        return None if node.name in self.beyond else node


def lenient(tests: str, beyond: set[str]) -> str:
    """The course's tests without checks of words, and without some tests."""
    return ast.unparse(_Lenient(beyond).visit(ast.parse(tests))) + "\n"


def record(source: str, made: Candidate) -> dict[str, Any]:
    """A mutant as it is kept: lines of a function, and what stands in their place."""
    old, new = (text.splitlines(keepends=True) for text in (source, made.source))
    first = next(i for i in range(len(old)) if old[i] != new[i])
    last = next(i for i in range(len(old)) if old[-1 - i] != new[-1 - i])
    last = min(last, len(old) - first - 1, len(new) - first - 1)  # they may overlap
    before, after = old[first : len(old) - last], new[first : len(new) - last]
    if not after or not before:  # lines only taken out or put in: keep one that stays
        before, after = old[first - 1 : len(old) - last], new[first - 1 : len(new) - last]
        first -= 1
    function = _function_at(source, first)
    kept = {"in": function, "old": "".join(before), "new": "".join(after), "nth": 0}
    begin, _ = segment(source, function)
    places = [i for i in range(begin, first + 1) if old[i : i + len(before)] == before]
    kept |= {"nth": len(places) - 1, "what": made.what, "maker": made.maker}
    assert replaced(source, {**kept, "name": ""}) == made.source
    return kept


def _function_at(source: str, line: int) -> str:
    """The dotted name of the innermost class or function around a line, counted from 0."""
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


def spread(source: str, made: list[Candidate], each: int = 3) -> list[Candidate]:
    """At most `each` mutants of one place from one maker."""
    count: Counter[tuple[str, str, str]] = Counter()
    found = []
    for one in made:
        kept = record(source, one)
        place = kept["in"], kept["old"], one.maker
        count[place] += 1
        if count[place] <= each:
            found.append(one)
    return found


def chosen(mutants: list[dict[str, Any]], size: int) -> list[dict[str, Any]]:
    """At most `size` of the mutants: those of the field first, then evenly from what is left."""
    fine = [mutant for mutant in mutants if not mutant["blunt"]]
    first = _some([m for m in fine if m["maker"] == "field"], size // 2)
    few = _some([m for m in mutants if m["blunt"]], size // 10)
    rest = _some([m for m in fine if m["maker"] != "field"], size - len(first) - len(few))
    return first + rest + few


def _some(mutants: list[dict[str, Any]], size: int) -> list[dict[str, Any]]:
    """At most `size` of them, evenly spread."""
    places = min(size, len(mutants))
    return [mutants[i * len(mutants) // places] for i in range(places)]


def freeze(chapter: Chapter, size: int = 64) -> Answer:
    """Make generated mutants of a chapter in the place of stale ones, of those that tests catch."""
    path = COURSE / "graded" / f"{chapter.id}.json"
    if not path.exists():
        raise Refusal(f"{path} is not there: write score, pitfalls and beyond into it", 2)
    kept = json.loads(path.read_text(encoding="utf-8"))
    source = chapter.reference.read_text(encoding="utf-8")
    left_out = set(kept["left_out"])
    fit, stale = _sorted_out(source, kept["mutants"])
    if fit and not stale:
        return Answer(0, [f"none of the {len(fit)} mutants is stale"], {"kept": len(fit)})
    known = [mutant.source for mutant in seeded_mutants(chapter.id)]
    known += [replaced(source, mutant) for mutant in fit]
    made = [one for one in candidates(source, known) if is_promised(source, one, left_out)]
    places = {mutant["in"] for mutant in stale}
    made = [one for one in made if not fit or record(source, one)["in"] in places]
    made = spread(source, made)
    mutants = []
    with tempfile.TemporaryDirectory() as folder, Runner() as runner:
        tests = Path(folder, chapter.course_tests.name)
        text = chapter.course_tests.read_text(encoding="utf-8")
        tests.write_text(lenient(text, set(kept["beyond"])), encoding="utf-8")
        place = str(chapter.reference)
        jobs = [
            Job(str(i), (str(tests),), {chapter.module: (place, one.source)}, stop=True, seconds=30)
            for i, one in enumerate(made)
        ]
        right = Job("right", (str(tests),), {chapter.module: (place, source)})
        verdicts = {verdict.job: verdict for verdict in runner.run([right, *jobs])}
    if verdicts["right"].state != "missed":
        raise Refusal(f"the right module does not pass: {verdicts['right']}")
    states = Counter(verdict.state for verdict in verdicts.values())
    for i, one in enumerate(made):
        verdict = verdicts[str(i)]
        if verdict.state == "caught":
            test = verdict.failed[0]
            asserted = verdict.messages[test].startswith(("AssertionError", "Failed"))
            blunt = not (asserted or verdict.passed)
            found = {"test": function_name(test), "blunt": blunt}
            mutants.append(record(source, one) | found)
    picked = chosen(mutants, size - len(fit))
    used = {mutant["name"] for mutant in fit}
    free = (name for i in itertools.count(1) if (name := f"g{i:02}") not in used)
    fit += [{"name": next(free), **mutant} for mutant in picked]
    kept["mutants"] = sorted(fit, key=lambda mutant: str(mutant["name"]))
    path.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    makers = Counter(mutant["maker"] for mutant in picked)
    lines = [
        f"{len(made)} candidates: {dict(states)}",
        f"taken {len(picked)} of {len(mutants)} that are caught: {dict(makers)}",
        f"{len(stale)} were stale, now there are {len(fit)}",
    ]
    return Answer(0, lines, {"candidates": len(made), "kept": len(fit), "makers": dict(makers)})


def _sorted_out(
    source: str, mutants: list[dict[str, Any]]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Those whose lines the module still has, and the rest."""
    found: tuple[list[dict[str, Any]], list[dict[str, Any]]] = [], []
    for mutant in mutants:
        try:
            replaced(source, mutant)
            found[0].append(mutant)
        except LookupError:
            found[1].append(mutant)
    return found


def takeaways(book: Path) -> dict[str, list[dict[str, Any]]]:
    """Chapter -> its key takeaways, each as a sentence or two with the tests that show it."""
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(book.rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        head = re.search(r'^\["(\S+)"\]$', text, re.MULTILINE)
        part = re.search(r"^## Key takeaways\n(.*?)^## ", text, re.MULTILINE | re.DOTALL)
        if head and part:
            items = re.split(r"^\d+\. ", part[1], flags=re.MULTILINE)[1:]
            found[head[1]] = [_takeaway(item) for item in items]
    return found


def _takeaway(item: str) -> dict[str, Any]:
    tests = re.findall(r"`(test_\w+)`", item)
    text = re.sub(r"\s*\((?:`test_\w+`(?:,\s*|\s+and\s+)?)+\)", "", item)
    text = re.sub(r"\$([^$]*)\$", lambda formula: _plain(formula[1]), text)
    return {"text": re.sub(r"\s+", " ", text).strip(), "tests": tests}


_PLAIN = {
    r"\sqrt": "sqrt ",
    r"\cdot": "*",
    r"\le": "<=",
    r"\bar ": "grad ",
    r"^\top": ".T",
    "\\,": " ",
}


def _plain(formula: str) -> str:
    """A short formula in plain text."""
    for old, new in _PLAIN.items():
        formula = formula.replace(old, new)
    formula = re.sub(r"\\(?:mathrm|text)\{(\w+)\}", r"\1", formula)
    return re.sub(r"[\\{}]", "", formula)


def write_takeaways(book: Path) -> Answer:
    """Copy the takeaways of a book into the package's data."""
    found = takeaways(book)
    path = COURSE / "takeaways.json"
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return Answer(
        0, [f"{path}: {sum(map(len, found.values()))} takeaways"], {"chapters": len(found)}
    )
