# Tangled from book/workshop/messages.md
"""The course's tests ask of an error what a contract promises; the book's own words are tested here."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from ol.jobs import Job
from ol.registry import ROOT, chapters
from ol.runner import Runner

HERE = Path(__file__).parent
NAMES = re.compile(r"\bnames (the|every|each|all|`)")


class WithoutWords(ast.NodeTransformer):
    """Takes the words out of the messages of a module."""

    def __init__(self, names):
        self.names = names  # whether names and values stay

    def visit_Raise(self, node):
        if isinstance(node.exc, ast.Call) and len(node.exc.args) == 1:
            (said,) = node.exc.args
            node.exc.args = [
                ast.parse(f"_names_only({ast.unparse(said)})" if self.names else "'bad'")
                .body[0]
                .value
            ]
        return node


def without_words(source, contract):
    tree = ast.parse(source)
    names = bool(NAMES.search(" ".join(contract.split())))
    parts = [p for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for p in node.values]
    texts = [p.value for p in parts if isinstance(p, ast.Constant)]
    words = set(re.findall(r"[A-Za-z]+", " ".join(texts)))
    helper = f"""
def _names_only(message):
    return " ".join(w for w in str(message).split() if w.strip(".,:;()") not in {words!r})
"""
    return ast.unparse(ast.fix_missing_locations(WithoutWords(names).visit(tree))) + helper


@pytest.fixture(scope="module")
def runner():
    with Runner() as one:
        yield one


def test_words_go_and_names_stay():
    source = "def f(x):\n    raise ValueError(f'wants a number, got {x}')\n"
    for contract, said in (("ValueError for x.", "bad"), ("A message names the number.", "3")):
        space = {}
        exec(without_words(source, contract), space)
        with pytest.raises(ValueError, match=f"^{said}$"):
            space["f"](3)


@pytest.mark.slow
@pytest.mark.parametrize("name", chapters())
def test_a_course_test_asks_for_no_words(name, runner):
    modules = {}
    for path in (ROOT / "tinyllm").rglob("[!_]*.py"):
        place = path.relative_to(ROOT)
        contract = ROOT / "ol/course/contracts" / place.with_suffix(".pyi")
        promised = contract.read_text(encoding="utf-8") if contract.exists() else ""
        text = without_words(path.read_text(encoding="utf-8"), promised)
        modules[".".join(place.with_suffix("").parts)] = (str(path), text)
    job = Job(name, (str(chapters()[name].course_tests),), modules, explain=True, seconds=300)
    (verdict,) = runner.run([job])
    assert verdict.state == "missed", (verdict.detail, verdict.messages)


MESSAGES = tomllib.loads((HERE / "messages.toml").read_text(encoding="utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize("name", MESSAGES)
def test_the_books_own_messages(name, tmp_path):
    told = tmp_path / "told"
    done = subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-p",
                "raised_messages",
                "-p",
                "no:cacheprovider",
            ),
            *("-m", "not memory", str(chapters()[name].course_tests)),
        ],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(HERE), "RAISED_MESSAGES": str(told)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    messages = told.read_text(encoding="utf-8").split("\n\0\n")
    absent = [one for one in MESSAGES[name] if not any(re.search(one, m) for m in messages)]
    assert not absent
