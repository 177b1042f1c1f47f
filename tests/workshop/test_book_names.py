# Tangled from book/workshop/proof.md
"""What the prose names exists, header facts are complete, and imports keep to what a chapter needs."""

import ast
import builtins
import importlib
import keyword
import math
import posixpath
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import literate.book
import literate.expand
import tinyllm
from weave.model import prose
from weave.model.imports import modules
from weave.model.index import Index
from weave.model.page import between

ROOT = Path(__file__).resolve().parents[2]
INDEX = Index(str(ROOT / "book"))
PAGES = sorted(INDEX.pages)
CHAPTERS = sorted(INDEX.page_of)


def prose_of(page):
    """The pieces of text that the page shows, each with the line it begins at."""
    yield from between(page.text.split("\n"), page.blocks)
    for block in page.blocks:
        if {"chapter", "pitfall"} & set(block.classes):
            yield block.line + 1, block.body.split("\n")
        for shown in ("alt", "caption"):
            yield block.line, [block.attributes.get(shown, "")]


def matches_of(page):
    for first, lines in prose_of(page):
        yield from prose.found(lines, first)


def spans_of(page):
    """Line and text of what stands in backticks."""
    for line, match in matches_of(page):
        if match["ticks"]:
            yield line, match[0].strip("`").strip()


FOLDERS = re.compile(r"(?<![\w/.])(?:book|tinyllm|tests|weave)/(?:[\w./-]*[\w/])?")
MADE = {path for target in INDEX.book.targets for path in (target, *map(str, Path(target).parents))}


def unknown_test(span, page):
    found = re.fullmatch(r"(?:[\w./-]+::)*(test_\w+)(?:\[.*\])?", span)
    if found and not INDEX.test(found[1], page.path):
        return f"no block defines the test {found[1]}"
    return ""


def unknown_path(span, page):
    for path in FOLDERS.findall(span):
        if path.rstrip("/") not in MADE and not (ROOT / path).exists():
            return f"there is no file or folder {path}"
    return ""


def unknown_block(span, page):
    found = re.fullmatch(r"<<([\w./:-]+)>>|#([\w.:-]+)", span)
    if found:
        name = found[1] or found[2]
        if not any(name == b.name for b in page.blocks) and name not in INDEX.book.chunks:
            return f"no block is called {name}" + literate.book.nearest(INDEX.book, name)
    return ""


def unknown_object(span, page):
    found = re.fullmatch(r"(\w+(?:\.\w+)+)(?:\(.*\))?", span)
    if found and not (ROOT / span).exists():
        first, *rest = found[1].split(".")
        if first in HOMES and not resolves(HOMES[first](), rest):
            return f"{found[1]} does not exist"
    return ""


def public_classes():
    """What the chapters' header facts list as public, by name."""
    found = {}
    for facts in INDEX.facts.values():
        for name in facts.get("names", []):
            if name[:1].isupper():
                found[name] = facts["builds"].removesuffix(".py").replace("/", ".")
    return found


def importer(module, *names):
    return lambda: [importlib.import_module(module), *names]


HOMES = {name: importer(name) for name in ("tinyllm", "ol", "weave", "tangle", "numpy", "torch")}
HOMES["np"] = HOMES["numpy"]
HOMES |= {name: importer(module, name) for name, module in public_classes().items()}


def resolves(home, names):
    """Whether an object has an attribute that has an attribute, and so on; modules are imported."""
    at, *first = home
    for name in [*first, *names]:
        known = {
            key for cls in getattr(at, "__mro__", ()) for key in getattr(cls, "__annotations__", ())
        }
        if hasattr(at, name):
            at = getattr(at, name)
        elif name in known:
            return True  # an instance has it
        else:
            try:
                at = importlib.import_module(f"{at.__name__}.{name}")
            except (ImportError, AttributeError):
                return False
    return True


WORDS = {
    word
    for page in INDEX.pages.values()
    for b in page.blocks
    for word in re.findall(r"\w+", b.body)
}
WORDS |= set(keyword.kwlist) | set(sys.stdlib_module_names)
for home in (
    builtins,
    math,
    np,
    np.ndarray,
    torch,
    torch.nn,
    torch.nn.Module,
    torch.Tensor,
    torch.nn.functional,
):
    WORDS |= set(dir(home))


def unknown_word(span, page):
    found = re.fullmatch(r"([A-Za-z_]\w*)(\(.*\))?", span)
    if found and found[1] not in WORDS and not found[1].startswith("test_"):
        like_code = found[2] or "_" in found[1].strip("_") or re.search(r"[a-z][A-Z]", found[1])
        if like_code:
            return f"{found[1]} stands in no block of the book"
    return ""


CHAPTER = re.compile(r"(?<![\w.-])(?:L\d+\.\d+|M\d\d\.\d+|MS-[A-Z]\w*)(?![\w])(?!\.\d)")
PLANNED = {
    name
    for facts in INDEX.facts.values()
    for name in [*facts.get("used_by_planned", []), *CHAPTER.findall(facts.get("milestone", ""))]
}


def faults_of(page):
    """Line and text of whatever the page names and does not exist."""
    further = re.search(r"^## .*Going further", page.text, re.MULTILINE)
    last = page.text.count("\n", 0, further.start()) if further else math.inf
    for line, span in spans_of(page):
        rules = [unknown_test, unknown_object]
        if page.chapter:  # the tools' pages have names in examples
            rules += [unknown_path, unknown_block, *([unknown_word] if line < last else [])]
        yield from ((line, said) for rule in rules if (said := rule(span, page)))
    for first, lines in prose_of(page):
        for line, text in enumerate(lines, first):
            for name in CHAPTER.findall(text):
                if name not in INDEX.page_of and name not in PLANNED:
                    yield line, f"there is no chapter {name}, and none names it as planned"
            if text.lstrip("> ").startswith(("```", "~~~")):
                yield (
                    line,
                    "this fence opens no block: is there a backtick in it? Then ~~~ opens it",
                )
    yield from unknown_references(page)


def unknown_references(page):
    for line, match in matches_of(page):
        if match["kind"]:
            path = posixpath.join(posixpath.dirname(page.path), match["file"] or "")
            other = INDEX.pages.get(posixpath.normpath(path)) if match["file"] else page
            kind, name = match["kind"], match["name"]
            there = other and (
                other.equations if kind == "eq" else {f.removeprefix("fig-") for f in other.figures}
            )
            if not there or name not in there:
                yield line, f"there is no {'equation' if kind == 'eq' else 'figure'} {name}"
    for block in page.blocks if page.chapter else ():
        for number, text in enumerate(block.body.split("\n"), block.line + 1):
            for name in re.findall(r"#.*?\beq\. ([\w-]+)", text):
                if block.language == "python" and name not in page.equations:
                    yield number, f"a comment names the equation {name}, which is not on this page"


@pytest.mark.parametrize("page", PAGES)
def test_names_exist(page):
    faults = [f"{page}:{line}: {text}" for line, text in sorted(faults_of(INDEX.pages[page]))]
    assert not faults, "\n" + "\n".join(faults)


@pytest.mark.parametrize(
    ("rule", "right", "wrong"),
    [
        (unknown_test, "test_hand_example", "test_hand_exampel"),
        (
            unknown_test,
            "tests/L0.1/test_autograd.py::test_deep_graph",
            "test_autograd.py::test_deep_grpah",
        ),
        (unknown_path, "tinyllm/autograd.py", "tinyllm/autograde.py"),
        (unknown_path, "python tangle.py where tinyllm/autograd.py:42", "see book/0-foundation"),
        (unknown_path, "python/tinyllm/autograde.py", "tests/L0.0/"),
        (unknown_block, "<<record>>", "<<nowhere>>"),
        (unknown_block, "#record", "#recrod"),
        (unknown_object, "Tensor.backward(cotangent)", "Tensor.backwards()"),
        (unknown_object, "tinyllm.autograd.Tensor.grad", "tinyllm.autograd.Tensor.grads"),
        (unknown_object, "np.testing.assert_allclose", "np.asaray"),
        (unknown_object, "torch.nn.functional.linear", "torch.nn.MultiHeadAttention"),
        (unknown_word, "is_recording()", "is_recording()".replace("c", "k")),  # else it stood here
        (unknown_word, "requires_grad", "requires_grad".replace("q", "k")),
        (unknown_word, "any", "any()".replace("y", "ny")),
    ],
)
def test_rules(rule, right, wrong):
    page = INDEX.page_of["L0.1"]
    assert not rule(right, page)
    assert rule(wrong, page)


FRAME = [
    "Key takeaways",
    "How to work this chapter",
    "Why now",
    "Principles",
    "Worked example",
    "The interface",
    "Pitfalls",
    "Where it is used next",
    "Going further",
]


def sections_of(page):
    """Line, heading and lines of each section of the second level."""
    inside = {n for b in page.blocks for n in range(b.line, b.end_line + 1)}
    found = []
    for number, line in enumerate(page.text.split("\n"), 1):
        if line.startswith("## ") and number not in inside:
            found.append((number, re.sub(r"^## +(\d+\.? )?", "", line).strip(), []))
        elif found:
            found[-1][2].append(line)
    return found


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_sections(chapter):
    page = INDEX.page_of[chapter]
    headings = [heading for _, heading, _ in sections_of(page)]
    places = [next((i for i, h in enumerate(headings) if h.startswith(f)), None) for f in FRAME]
    assert None not in places, (
        f"{page.path} has no section {FRAME[places.index(None)]!r}: {headings}"
    )
    assert places == sorted(places), f"{page.path}: the sections are to stand in the order {FRAME}"


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_takeaways_name_tests(chapter):
    page = INDEX.page_of[chapter]
    line, _, lines = next(s for s in sections_of(page) if s[1] == FRAME[0])
    items = re.split(r"^(?=\d+\. |[-*] )", "\n".join(lines), flags=re.MULTILINE)[1:]
    assert 3 <= len(items) <= 6, f"{page.path}:{line}: three to six takeaways, not {len(items)}"
    for item in items:
        assert re.search(r"`test_\w+", item), (
            f"{page.path}:{line}: this names no test: {item.strip()}"
        )


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_figures_and_equations(chapter):
    page = INDEX.page_of[chapter]
    assert page.figures, f"{page.path} has no figure"
    for block in page.blocks:
        if "figure" in block.classes:
            assert block.attributes.get("alt"), f"{page.path}:{block.line}: alt text is missing"
    for line, match in matches_of(page):
        if match["display"]:
            assert r"\label{eq:" in match["display"], (
                f"{page.path}:{line}: \\label{{eq:...}} is missing"
            )


TEXTS = [
    "title",
    "kind",
    "language",
    "time",
    "rung",
    "builds",
    "contract",
    "tests",
    "milestone",
    "summary",
]
LISTS = ["names", "learner_files", "needs", "test_needs", "used_by_planned", "reading"]
FACTS = {**dict.fromkeys(TEXTS, str), **dict.fromkeys(LISTS, list), "part": int, "pass": int}
PITFALL = {**dict.fromkeys(["pitfall", "symptom", "hint", "witness"], str), "caught_by": list}


def wrong_types(table, types):
    for key in sorted(table.keys() ^ types.keys()):
        yield f"{key} is {'unknown' if key in table else 'missing'}"
    for key in sorted(table.keys() & types.keys()):
        value, wanted = table[key], types[key]
        if (
            type(value) is not wanted
            or wanted is list
            and not all(isinstance(v, str) for v in value)
        ):
            kind = "a list of strings" if wanted is list else wanted.__name__
            yield f"{key} must be {kind}, not {value!r}"


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_header_facts(chapter):
    page, facts = INDEX.page_of[chapter], dict(INDEX.facts[chapter])
    assert facts.pop("mutants", None), "a chapter has pitfalls"
    assert not list(wrong_types(facts, FACTS))
    assert page.text.startswith(f"# {chapter} {facts['title']}\n")
    assert Path(page.path).name.startswith(f"{chapter}-")
    for key in ("builds", "contract", "tests"):
        assert facts[key] in INDEX.book.targets, f"no block of the book makes {key} = {facts[key]}"
    assert facts["contract"] == f"ol/course/contracts/{facts['builds']}i"
    assert f"python/{facts['builds']}" in facts["learner_files"]
    assert facts["rung"] in {"R1", "R2", "R3", "R4", "R5"}
    assert facts["names"]
    assert re.fullmatch(r"[^.].*\.", facts["summary"]), "the summary is a sentence"
    for need in [*facts["needs"], *facts["test_needs"]]:
        assert need in INDEX.page_of, f"{need} is needed and not written"
    written = [name for name in facts["used_by_planned"] if name in INDEX.page_of]
    assert not written, f"{written} are written: what uses a chapter is read from their needs"


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_pitfalls(chapter):
    page, facts = INDEX.page_of[chapter], {"mutants": {}, **INDEX.facts[chapter]}
    patches = {
        b.name: b
        for other in INDEX.pages.values()
        for b in other.blocks
        if b.patch and (b.file or "").startswith(f"ol/course/mutants/{chapter}/")
    }
    assert patches.keys() == facts["mutants"].keys(), "each mutant has a diff and a pitfall block"
    tests = literate.expand.expand(INDEX.book, facts["tests"])
    defined = set(re.findall(r"^ *def (test_\w+)", tests, re.MULTILINE))
    for name, mutant in facts["mutants"].items():
        where = f"{patches[name]}: {name}"
        assert not list(wrong_types(mutant, PITFALL)), where
        assert patches[name].file == f"ol/course/mutants/{chapter}/{name}.patch", where
        assert mutant["caught_by"], f"{where}: caught_by is empty"
        absent = set(mutant["caught_by"]) - defined
        assert not absent, f"{where}: {facts['tests']} defines no {absent}"
    kinds = {kind for b in page.blocks for kind in (b.language, *b.classes)}
    assert "pitfalls" in kinds, "the table of pitfalls is missing"


def closure(*chapters):
    """The chapters and all that they need, directly or not."""
    found = list(dict.fromkeys(chapters))
    for chapter in found:
        found += [need for need in INDEX.facts[chapter]["needs"] if need not in found]
    return found


def test_needs_have_no_cycle():
    for chapter in CHAPTERS:
        for need in INDEX.facts[chapter]["needs"]:
            assert chapter not in closure(need), f"{chapter} needs {need}, which needs {chapter}"


OPTIONAL = {"threadpoolctl"}  # holds BLAS to one thread, where it is installed
GIVEN = {"tinyllm/xfmr/fused.py"}  # what the course hands out before its chapter
ORACLES = {"hypothesis", "numpy", "pytest", "safetensors", "threadpoolctl", "tokenizers", "torch"}
MODULES = {
    name: path.relative_to(ROOT).as_posix()
    for name, path in modules(ROOT).items()
    if name.startswith("tinyllm.")
}
BUILT = {INDEX.facts[chapter]["builds"] for chapter in CHAPTERS}
HOME = {f"tinyllm.{name}": module for name, module in tinyllm._HOME.items()}


def imports_of(file):
    """Line, module, and whether it is inside a function or block, of each import of a file."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        inside = node not in tree.body
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, inside) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{file}:{node.lineno}: imports are written in full"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield (
                    node.lineno,
                    whole if whole in MODULES else HOME.get(whole, node.module),
                    inside,
                )


def stands_on(path, chapters):
    """Whether a module that no chapter builds, but is given, imports only what these build."""
    return path and not list(foreign_imports(ROOT / path, chapters, {"numpy"}, OPTIONAL))


def foreign_imports(file, chapters, libraries, optional=frozenset()):
    """What a file imports beyond the modules of the chapters, the standard library and some others."""
    built = {INDEX.facts[chapter]["builds"] for chapter in chapters} | GIVEN
    for line, module, inside in imports_of(file):
        top = module.partition(".")[0]
        if top == "tinyllm":
            path = MODULES.get(module, "")
            allowed = path in built or path not in BUILT and stands_on(path, chapters)
        else:
            allowed = top in sys.stdlib_module_names | libraries or top in optional and inside
        if not allowed:
            known = " ".join(sorted(chapters))
            yield f"{file.name}:{line} imports {module}, which is neither allowed nor built by {known}"


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_modules_import_what_their_chapter_needs(chapter):
    file = ROOT / INDEX.facts[chapter]["builds"]
    assert not list(foreign_imports(file, closure(chapter), {"numpy"}, OPTIONAL))


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_tests_import_what_their_chapter_needs(chapter):
    facts = INDEX.facts[chapter]
    chapters = closure(chapter, *facts["test_needs"])
    assert not list(foreign_imports(ROOT / facts["tests"], chapters, ORACLES))


def test_foreign_imports_are_found(tmp_path):
    file = tmp_path / "a.py"
    code = "import numpy\nimport scipy\nimport threadpoolctl\nfrom tinyllm import Linear\n"
    code += "def f():\n    import threadpoolctl\n    from tinyllm.nn import Module\n"
    file.write_text(code)
    found = [text.split(",")[0] for text in foreign_imports(file, ["L0.1"], {"numpy"}, OPTIONAL)]
    assert found == [
        "a.py:2 imports scipy",
        "a.py:3 imports threadpoolctl",
        "a.py:4 imports tinyllm.nn",
        "a.py:7 imports tinyllm.nn",
    ]
