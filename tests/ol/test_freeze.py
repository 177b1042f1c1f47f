# Tangled from book/workshop/ol-tests.md
"""The data of the exercise tool: graded sets and variants; and what makes them."""

import ast
import base64
import marshal

import pytest

from ol import imports, mutants
from ol.authors import freeze
from ol.authors.freeze import Candidate, is_promised, lenient, of_the_field, patch
from ol.mutants import PatchError, apply_patch
from ol.registry import COURSE, chapters, find
from ol.variants import sealed, variants

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
    demand = mutants.demand(chapter)
    found = mutants.graded_mutants(chapter)
    assert len({mutant.name for mutant in found}) == len(found)
    assert set(demand["pitfalls"]) <= {mutant.name for mutant in mutants.seeded_mutants(chapter)}
    assert 0.5 <= demand["score"] < 1
    trees = {ast.dump(ast.parse(mutant.source)) for mutant in found}
    assert len(trees) == len(found)
    assert ast.dump(ast.parse(chapter.reference.read_text(encoding="utf-8"))) not in trees
    for mutant in found:
        assert mutant.diff()
        for fact in ("pitfall", "caught_by", "hint", "witness"):
            assert mutant.facts[fact], mutant.name


def test_demand_of_multi_head_attention():
    demand = mutants.demand(find("L5.3"))
    assert demand["score"] == 0.80
    assert demand["pitfalls"] == [f"s0{i}" for i in range(1, 8)]
    assert len(mutants.graded_mutants(find("L5.3"))) >= 25
    makers = {known["maker"] for known in demand["mutants"].values()}
    assert makers <= {"field", "mutmut", "cosmic-ray"}


def test_subsumed_mutants_are_not_taken():
    kills = {"a": "12", "b": "1", "c": "34", "d": "43", "e": "25"}
    assert freeze.unsubsumed(kills) == ["b", "c", "e"]
    assert freeze.unsubsumed({}) == []


@pytest.mark.parametrize("name", ["L5.1", "L5.3"])
def test_variants_are_other_programs(name):
    found = variants(find(name))
    assert len(found) >= 5
    sources = [ast.dump(ast.parse(text)) for text in found.values()]
    assert len(set(sources)) == len(sources)


def test_other_words_keep_public_names_and_say_nothing():
    code = marshal.loads(base64.b64decode(sealed(SOURCE, "a.py")))
    exec(code, module := {"__name__": "a"})
    assert "_scores" not in module
    assert module["A"].mask
    assert b"Doc." not in marshal.dumps(code)


def test_every_patch_is_of_a_mutant():
    for folder in (COURSE / "mutants").iterdir():
        chapter = find(folder.name)
        graded = mutants.demand(chapter)["mutants"] if chapter.rung else ()
        assert {path.stem for path in folder.iterdir()} == {*chapter.facts["mutants"], *graded}


def toy(old, new):
    """A mutant of SOURCE."""
    assert old in SOURCE
    return Candidate("toy", "", SOURCE.replace(old, new))


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


def test_patches_give_back_the_mutant():
    chapter = find("L5.3")
    above = "x = 1\n\n\n" + SOURCE  # an edit elsewhere leaves it valid
    toys = [toy("    if q is None:\n", ""), toy("    scale", "    q = q\n    scale")]
    for made in [*of_the_field(SOURCE), *toys]:
        kept = patch(chapter, SOURCE, made)
        assert apply_patch(SOURCE, kept) == made.source
        assert apply_patch(above, kept) == "x = 1\n\n\n" + made.source
    with pytest.raises(PatchError, match="made for another text"):
        apply_patch(SOURCE.replace("q is None", "k is None"), patch(chapter, SOURCE, toys[0]))


def test_the_place_of_a_mutant_is_a_dotted_name():
    edits = ("1.0 /", "2.0 /"), ("[:, None]", ""), ("import math", "import cmath as math")
    assert [freeze.place(SOURCE, toy(*edit)) for edit in edits] == ["_scores", "A.mask", ""]


def test_what_no_contract_promises_is_left_out():
    assert is_promised(SOURCE, toy("1.0 /", "2.0 /"), set())
    assert not is_promised(SOURCE, toy("no {q}", "none {q}"), set())
    assert not is_promised(SOURCE, toy("import math", "import cmath as math"), set())
    assert not is_promised(SOURCE, toy("1.0 /", "2.0 /"), {"_scores"})
    assert is_promised(SOURCE, toy("if q is None", "if q is not None"), set())


def test_lenient_tests_leave_some_out():
    found = lenient("def test_a():\n    assert f()\ndef test_b(): pass\n", {"test_b"})
    assert "assert f()" in found
    assert "test_b" not in found


@pytest.mark.parametrize("name", chapters())
def test_course_tests_import_only_what_contracts_promise(name):
    """Else nobody could pass them who builds from the contract."""
    findings = imports.check(find(name).course_tests.parent)
    said = [str(one) for one in findings if one.says.startswith("imports ")]
    assert not [words for words in said if "tinyllm" in words]
