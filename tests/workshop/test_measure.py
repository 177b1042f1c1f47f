# Tangled from book/workshop/measure.md
"""What suites of tests score that were written from the contracts."""

from pathlib import Path

import pytest

from ol import imports
from ol.jobs import Job
from ol.mutants import demand, graded_mutants
from ol.registry import chapters, find, module_name
from ol.runner import Runner

SUITES = Path(__file__).parents[1] / "suites"
LIMITS = {"smoke": (0.0, 0.2), "lone": (0.0, 0.8), "honest": (0.9, 1.1)}


def suites(chapter):
    """The files of a chapter's suites, by kind."""
    return {kind: sorted((SUITES / chapter).glob(f"{kind}_*.py")) for kind in LIMITS}


def measure(chapter, files):
    """Suite -> its score, and the mutants that it misses."""
    sources = {one.name: (one.path, one.source) for one in graded_mutants(chapter)}
    sources["right"] = chapter.path, chapter.reference.read_text(encoding="utf-8")
    jobs = [
        Job(f"{file.stem} {name}", (str(file),), {module_name(source[0]): source}, stop=True)
        for file in files
        for name, source in sources.items()
    ]
    with Runner() as runner:
        missed = {verdict.job for verdict in runner.run(jobs) if verdict.state == "missed"}
    found = {}
    for file in files:
        assert f"{file.stem} right" in missed, f"{file} fails on the right module"
        names = [name for name in sources if f"{file.stem} {name}" in missed and name != "right"]
        found[file.stem] = 1 - len(names) / (len(sources) - 1), " ".join(names)
    return found


def assert_apart(chapter, files):
    """Each suite scores what its kind should; prints the table."""
    for name, (score, missed) in measure(find(chapter), files).items():
        print(f"{chapter} {name:9} {score:.2f}  {missed}")
        low, below = LIMITS[name.partition("_")[0]]
        assert low <= score < below, f"{chapter} {name} scores {score:.2f}, misses {missed}"
        wants = demand(find(chapter))
        passes = score >= wants["score"] and not set(wants["pitfalls"]) & set(missed.split())
        assert passes == name.startswith("honest"), f"{chapter} {name} misses {missed}"


def test_one_of_each_kind():
    assert_apart("L5.3", [files[-1] for files in suites("L5.3").values()])


NAMES = sorted(folder.name for folder in SUITES.iterdir())


def test_every_chapter_has_suites():
    assert set(NAMES) == set(chapters())


@pytest.mark.parametrize("name", NAMES)
def test_suites_could_be_a_learner_s(name):
    assert not imports.check(SUITES / name)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_suites(name):
    found = suites(name)
    assert {len(some) for some in found.values()} == {5 if name == "L5.3" else 2}
    assert_apart(name, [file for some in found.values() for file in some])
