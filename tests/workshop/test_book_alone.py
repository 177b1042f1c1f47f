# Tangled from book/workshop/proof.md
"""Each chapter's tests pass with only the modules that the chapter says it needs."""

import shutil

import pytest

from ol.jobs import Job
from ol.registry import ROOT, chapters
from ol.runner import Runner

CHAPTERS = {name: chapter.facts for name, chapter in chapters().items()}
GIVEN = {ROOT / "tinyllm/xfmr/fused.py"}  # handed out; its chapter comes after the milestone


def closure(*chapters):
    """The chapters and all that they need, directly or not."""
    found = list(dict.fromkeys(chapters))
    for chapter in found:
        found += [need for need in CHAPTERS[chapter]["needs"] if need not in found]
    return found


def package(chapter, root):
    """A package of the modules that a chapter's tests may use, and a copy of the tests; their path."""
    built = {ROOT / facts["builds"] for facts in CHAPTERS.values()} - GIVEN
    for path in (ROOT / "tinyllm").rglob("*.py"):
        if path not in built:  # what is handed out is always there
            copy(path, root)
    facts = CHAPTERS[chapter]
    for other in closure(chapter, *facts["test_needs"]):
        copy(ROOT / CHAPTERS[other]["builds"], root)
    return copy(ROOT / facts["tests"], root)


def copy(path, root):
    target = root / path.relative_to(ROOT)
    target.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():  # else its own chapter's test says so
        shutil.copy(path, target)
    return target


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory):
    jobs = []
    for chapter in CHAPTERS:
        root = tmp_path_factory.mktemp("alone")
        tests = (str(package(chapter, root)),)
        jobs.append(Job(chapter, tests, root=str(root), explain=True, seconds=120))
    with Runner() as runner:
        return {verdict.job: verdict for verdict in runner.run(jobs)}


@pytest.mark.long
@pytest.mark.parametrize("chapter", sorted(CHAPTERS))
def test_chapter_alone(chapter, verdicts):
    verdict = verdicts[chapter]
    needs = " ".join(sorted(closure(chapter, *CHAPTERS[chapter]["test_needs"])))
    said = "\n".join([verdict.detail, *verdict.messages.values()])
    assert verdict.state == "missed", f"with the modules of {needs}: {said}"
