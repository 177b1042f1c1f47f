# Tangled from book/workshop/ol-tests.md
"""The data of the exercise tool: graded sets, variants, takeaways; and what makes them."""

import ast
import json

import pytest

from ol import authoring, faults, imports
from ol.authoring import Candidate, is_promised, lenient, of_the_field, record
from ol.registry import COURSE, ROOT, chapters, find

GRADED = [chapter for chapter in chapters().values() if chapter.rung]

SOURCE = '''"""Doc."""
import math

def _scores(q, k):
    """Doc."""
    if q is None:
        raise ValueError(f"no {q}")
    scale = 1.0 / math.sqrt(q.shape[1])
    return (q @ k.T) * scale

class A:
    def mask(self, allowed):
        return allowed[:, None]

    def again(self, allowed):
        return allowed[:, None]
'''


@pytest.mark.parametrize("chapter", GRADED, ids=str)
def test_graded_sets(chapter):
    demand = faults.demand(chapter)
    found = faults.graded(chapter)
    assert len({mutant.name for mutant in found}) == len(found)
    assert set(demand.pitfalls) <= {mutant.name for mutant in found if mutant.seeded}
    assert 0.5 <= demand.score < 1
    trees = {ast.dump(ast.parse(mutant.source)) for mutant in found}
    assert len(trees) == len(found)
    assert ast.dump(ast.parse(chapter.reference.read_text(encoding="utf-8"))) not in trees
    for mutant in found:
        assert mutant.diff()
        assert all(mutant.hints), mutant.name


def test_demand_of_multi_head_attention():
    demand = faults.demand(find("L5.3"))
    assert demand.score == 0.80
    assert demand.pitfalls == tuple(f"s0{i}" for i in range(1, 8))
    assert len(demand.mutants) >= 60
    assert {mutant["maker"] for mutant in demand.mutants} == {"field", "mutmut", "cosmic-ray"}


@pytest.mark.parametrize("chapter", GRADED, ids=str)
def test_variants_are_other_programs(chapter):
    found = faults.variants(chapter)
    assert len(found) >= 3  # two by hand, and one of other names
    assert "renamed" in found
    sources = [ast.dump(ast.parse(text)) for text in found.values()]
    assert len(set(sources)) == len(sources)


def test_renamed_keeps_public_names():
    text = faults.renamed(SOURCE)
    assert "_scores_by_another_name" in text
    assert "def mask" in text
    assert "Doc." not in text


def test_stale_mutants_are_told():
    kept = {"name": "g01", "in": "A.mask", "old": "        return allowed\n", "new": "", "nth": 0}
    with pytest.raises(LookupError, match="g01"):
        faults.replaced(SOURCE, kept)
    with pytest.raises(LookupError, match=r"no B\.mask"):
        faults.replaced(SOURCE, {**kept, "in": "B.mask"})


def test_operators_of_the_field():
    found = {(made.what, made.source) for made in of_the_field(SOURCE)}
    words = {what for what, _ in found}
    assert {
        "the operands of @ swapped",
        "a transpose dropped",
        "the scale dropped",
        "the square root dropped",
        "a mask inverted",
        "a mask without its new axis",
        "the new axis in another place",
        "the length of another axis",
    } <= words
    for _, text in found:
        ast.parse(text)
    swapped = dict(found)["the operands of @ swapped"]
    assert "(k.T) @ (q)" in swapped


def test_records_give_back_the_mutant():
    for made in of_the_field(SOURCE):
        kept = record(SOURCE, made)
        assert faults.replaced(SOURCE, {**kept, "name": "g"}) == made.source
        above = "x = 1\n\n\n" + SOURCE  # an edit elsewhere leaves it valid
        assert faults.replaced(above, {**kept, "name": "g"}) == "x = 1\n\n\n" + made.source
    for old, new in (("    if q is None:\n", ""), ("    scale", "    q = q\n    scale")):
        made = Candidate("toy", "", SOURCE.replace(old, new))
        assert faults.replaced(SOURCE, {**record(SOURCE, made), "name": "g"}) == made.source


def test_what_no_contract_promises_is_left_out():
    def promised(old, new, left_out=()):
        assert old in SOURCE
        return is_promised(SOURCE, Candidate("toy", "", SOURCE.replace(old, new)), set(left_out))

    assert promised("1.0 /", "2.0 /")
    assert not promised("no {q}", "none {q}")
    assert not promised("import math", "import cmath as math")
    assert not promised("1.0 /", "2.0 /", {"_scores"})
    assert promised("if q is None", "if q is not None")


def test_lenient_tests_do_not_read_words():
    text = (
        "def test_a():\n    with pytest.raises(ValueError, match='x') as error:\n        f()\n"
        "    assert 'x' in str(error.value)\n    assert f()\ndef test_b(): pass\n"
    )
    found = lenient(text, {"test_b"})
    assert "pytest.raises(ValueError)" in found
    assert "error.value" not in found
    assert "assert f()" in found
    assert "test_b" not in found


def test_takeaways_are_those_of_the_book():
    kept = json.loads((COURSE / "takeaways.json").read_text(encoding="utf-8"))
    assert kept == authoring.takeaways(ROOT / "book"), "old: ol dev takeaways book"
    files = (ROOT / "tests").rglob("test_*.py")
    tests = "\n".join(path.read_text(encoding="utf-8") for path in files)
    for name in chapters():
        assert kept[name]
        for takeaway in kept[name]:
            assert takeaway["tests"]
            assert "$" not in takeaway["text"]
            assert "`test_" not in takeaway["text"]
            assert all(f"def {test}(" in tests for test in takeaway["tests"])


@pytest.mark.parametrize("name", chapters())
def test_course_tests_import_only_what_contracts_promise(name):
    """Else nobody could pass them who builds from the contract."""
    faults = imports.check(find(name).course_tests.parent)
    said = [str(fault) for fault in faults if fault.says.startswith("imports ")]
    assert not [words for words in said if "tinyllm" in words]


def test_dev_check():
    """Of the whole book it is a step of its own in .ci/run."""
    from ol.dev import check

    answer = check([find("L5.2")])
    assert answer.status == 0, "\n".join(answer.lines)
    assert answer.data["runs"] >= 10


def test_dev_check_finds_faults(monkeypatch):
    from ol import dev
    from ol.mutation import Verdict

    for verdict, words in (
        (
            Verdict("L1 stub", "missed", passed=("a::t",)),
            "L1 stub: all tests pass, where tests fail",
        ),
        (Verdict("L1 reference", "caught", ("a::t",)), "L1 reference: tests fail (a::t)"),
        (Verdict("L1/s01", "missed", passed=("a::t",)), "L1/s01: all tests pass"),
        (Verdict("L1/s01", "caught", ("a::t",), ("a::u[1]",)), "u should fail and does not"),
        (Verdict("L1 g01", "timeout"), "L1 g01: timeout"),
    ):
        assert words in dev.fault_in(verdict)
    assert dev.fault_in(Verdict("L1 g01", "caught", ("a::t",))) == ""
    assert dev.fault_in(Verdict("L1 reference", "missed", passed=("a::t",))) == ""
