# Tangled from book/workshop/measure.md
"""What suites of tests score that were written apart from the mutants."""

from pathlib import Path

import pytest

from ol.jobs import job_for
from ol.mutants import graded_mutants
from ol.registry import find
from ol.runner import Runner

SUITES = Path(__file__).parents[1] / "suites"
KINDS = ("smoke", "lone", "honest")
MEASURED = sorted(folder.name for folder in SUITES.iterdir())


def suites(chapter):
    """The files of a chapter's suites, by kind."""
    return {kind: sorted((SUITES / chapter).glob(f"{kind}_*.py")) for kind in KINDS}


def measure(chapter, files):
    """Suite -> its score, and the mutants that it misses."""
    jobs = []
    for file in files:
        jobs.append(job_for(chapter, f"{file.stem} right", chapter.reference.read_text(), file))
        for one in graded_mutants(chapter):
            name = f"{file.stem} {one.name}"
            jobs.append(job_for(chapter, name, one.source, file, path=one.path, stop=True))
    with Runner() as runner:
        states = {verdict.job: verdict.state for verdict in runner.run(jobs)}
    found = {}
    for file in files:
        of = {name: state for name, state in states.items() if name.startswith(f"{file.stem} ")}
        assert of.pop(f"{file.stem} right") == "missed", f"{file} fails on the right module"
        missed = sorted(name.split()[1] for name, state in of.items() if state == "missed")
        found[file.stem] = 1 - len(missed) / len(of), missed
    return found


def assert_apart(chapter, scores):
    """Each kind scores what it should; prints the table."""
    lines = [
        f"{chapter} {name:9} {score:.2f}  {' '.join(m)}" for name, (score, m) in scores.items()
    ]
    print("", *lines, sep="\n")
    for name, (score, missed) in scores.items():
        kind = name.partition("_")[0]
        low, below = {"smoke": (0.0, 0.2), "lone": (0.0, 0.8), "honest": (0.9, 1.1)}[kind]
        assert low <= score < below, f"{chapter} {name} scores {score:.2f}, misses {missed}"


def test_one_of_each_kind():
    chapter = find("L5.3")
    scores = measure(chapter, [files[-1] for files in suites("L5.3").values()])
    assert_apart("L5.3", scores)


@pytest.mark.long
@pytest.mark.parametrize("name", MEASURED)
def test_suites(name):
    files = suites(name)
    assert all(len(some) == (5 if name == "L5.3" else 2) for some in files.values())
    assert_apart(name, measure(find(name), [file for some in files.values() for file in some]))
