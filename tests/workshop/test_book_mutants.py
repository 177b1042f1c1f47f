# Tangled from book/workshop/proof.md
"""Every mutant is caught, a pitfall's by the tests that the chapter names for it; right modules pass, stubs fail."""

import ast

import pytest

from ol.jobs import Job
from ol.mutants import generated_mutants, seeded_mutants
from ol.registry import ROOT, chapters, find, module_name
from ol.runner import Runner
from ol.stubs import stub
from ol.variants import in_other_words, variants

CHAPTERS = {name: chapter.facts for name, chapter in chapters().items()}
NAMES = [
    f"{chapter}/{name}" for chapter in CHAPTERS for name in CHAPTERS[chapter].get("mutants", ())
]


@pytest.fixture(scope="module")
def mutants():
    found = [mutant for chapter in chapters().values() for mutant in seeded_mutants(chapter)]
    return {str(mutant): mutant for mutant in found}


def jobs_of(chapter):
    """Everything that is to be run for a chapter on the course's tests."""

    def job(name, source, path=chapter.path, **options):
        modules = {module_name(path): (str(ROOT / path), source)}
        return Job(name, (str(chapter.course_tests),), modules, **options)

    right = chapter.reference.read_text(encoding="utf-8")
    others = ast.unparse(in_other_words(ast.parse(right)))
    yield job(f"{chapter.id} stub", stub(chapter), stop=True)
    yield job(f"{chapter.id} right", right, seconds=120)
    yield job(f"{chapter.id} right, in other words", others, seconds=120)
    for name, source in variants(chapter).items():
        yield job(f"{chapter.id} right, {name}", source, seconds=120)
    for one in seeded_mutants(chapter):
        named = tuple(one.facts["caught_by"])
        yield job(str(one), one.source, one.path, stop=True, after=named)
    for one in generated_mutants(chapter) if chapter.rung else ():
        yield job(f"{chapter.id} {one.name}", one.source, one.path, stop=True)


@pytest.fixture(scope="module")
def verdicts():
    with Runner() as runner:
        jobs = [job for chapter in chapters().values() for job in jobs_of(chapter)]
        return {verdict.job: verdict for verdict in runner.run(jobs)}


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_named_tests_catch_the_mutant(name, verdicts):
    chapter, _, mutant = name.partition("/")
    named = set(CHAPTERS[chapter]["mutants"][mutant]["caught_by"])
    verdict = verdicts[name]
    assert verdict.state == "caught", (
        f"{name} is {verdict.state}: {verdict.detail}; {sorted(named)} should fail"
    )
    passed = sorted(named - verdict.failed_functions)
    assert not passed, f"{name} names tests that do not fail: {', '.join(passed)}. {verdict.detail}"


@pytest.mark.long
@pytest.mark.parametrize("chapter", CHAPTERS)
def test_right_modules_pass(chapter, verdicts):
    right = [verdict for name, verdict in verdicts.items() if name.startswith(f"{chapter} right")]
    assert len(right) >= 2  # the module, and one with other private names
    assert not [verdict for verdict in right if verdict.state != "missed"]


@pytest.mark.long
@pytest.mark.parametrize("chapter", CHAPTERS)
def test_stubs_and_generated_mutants_are_caught(chapter, verdicts):
    wrong = [verdict for name, verdict in verdicts.items() if name.startswith(f"{chapter} ")]
    wrong = [verdict for verdict in wrong if " right" not in verdict.job]
    assert wrong
    assert not [verdict for verdict in wrong if verdict.state != "caught"]


SPECIFIED = {
    "s01": {"test_split_and_merge_layout", "test_golden_torch"},
    "s02": {"test_split_and_merge_layout", "test_golden_torch"},
    "s03": {"test_hand_example_two_heads", "test_golden_torch"},
    "s04": {"test_cross_attention_reads_keys_from_x_kv"},
    "s05": {"test_mask_shapes_agree"},
    "s06": {"test_dropout_only_in_training"},
    "s07": {"test_load_packed_in_proj"},
    "s08": {"test_one_head_is_projected_attention"},
}


SPECIFIED_TESTS = """
    test_hand_example_two_heads test_hand_example_one_head_mixes_everything test_golden_torch
    test_gradcheck_inputs_and_parameters test_split_and_merge_layout test_heads_are_independent
    test_one_head_is_projected_attention test_mask_shapes_agree test_masked_keys_are_never_read
    test_cross_attention_reads_keys_from_x_kv test_dropout_only_in_training
    test_parameter_names_shapes_and_init test_load_packed_in_proj test_validation
"""


@pytest.mark.parametrize("name", SPECIFIED)
def test_pitfalls_of_multi_head_attention(name):
    mutants = CHAPTERS["L5.3"].get("mutants", {})
    assert name in mutants, f"L5.3 has the mutants {list(mutants)}"
    assert SPECIFIED[name] <= set(mutants[name]["caught_by"])


def test_tests_of_multi_head_attention():
    tree = ast.parse(find("L5.3").course_tests.read_text(encoding="utf-8"))
    absent = set(SPECIFIED_TESTS.split()) - {getattr(node, "name", "") for node in tree.body}
    assert not absent, f"L5.3 lacks {sorted(absent)}"


def program(source):
    return ast.dump(ast.parse(source))


def test_mutants_are_distinct_programs(mutants):
    seen = {}
    for mutant in mutants.values():
        path = ROOT / mutant.path
        right = path.read_text(encoding="utf-8")
        seen.setdefault((path, program(right)), f"the module itself, {path}")
        key = path, program(mutant.source)
        assert key not in seen, f"{mutant} is the same program as {seen[key]}"
        seen[key] = str(mutant)


def test_mutants_of_attention(mutants):
    count = sum(
        mutant.chapter.id in {"L5.1", "L5.2", "L5.3", "L5.7"} for mutant in mutants.values()
    )
    assert count >= 26
