# Tangled from book/workshop/clauses.md
"""What the course's tests ask is what the contracts say, clause by clause."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

from ol.registry import chapters, find

CLAUSES = tomllib.loads(Path(__file__).with_name("clauses.toml").read_text(encoding="utf-8"))
SOURCE = re.compile(r"(Source: |\w+ et al\. ).*\Z", re.DOTALL)  # which no test can check


def sentences(contract):
    """What the docstrings of a contract say, but for its sources and formulas on lines of their own."""
    tree = ast.parse(contract)
    texts = [
        ast.get_docstring(node) or ""
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
    ]
    for text in texts:
        prose = re.sub(r"(?<=\n\n) {4}\S.*$", "", text, flags=re.MULTILINE)
        prose = re.sub(r"\s+", " ", SOURCE.sub("", prose)).strip()
        yield from filter(None, re.split(r"(?<=[.:])\s(?=[A-Z`]|[a-z_]+: )", prose))


def elsewhere(clause):
    """What the contract of another chapter says, for a clause that begins with the chapter's name."""
    name, colon, said = clause.partition(": ")
    there = chapters().get(name) if colon else None
    return there and any(said in s for s in sentences(there.contract.read_text("utf-8")))


def faults(contract, tests, clauses):
    """Tests without a clause, clauses that are not in the contract, and its sentences without a test."""
    said = list(sentences(contract))
    functions = [node.name for node in ast.parse(tests).body if isinstance(node, ast.FunctionDef)]
    named = [name for name in functions if name.startswith("test_")]
    yield from (f"{name} has no clause" for name in named if not clauses.get(name))
    yield from (f"there is no {name}" for name in clauses if name not in named)
    quoted = [(name, clause) for name, found in clauses.items() for clause in found]
    for name, clause in quoted:
        if not any(clause in sentence for sentence in said) and not elsewhere(clause):
            yield f"{name}: the contract does not say: {clause}"
    for sentence in said:
        if not any(clause in sentence for _, clause in quoted):
            yield f"no test checks: {sentence}"


@pytest.mark.parametrize("name", sorted(chapters()))
def test_tests_ask_what_the_contract_says(name):
    chapter = find(name)
    beside = [path.read_text("utf-8") for path in chapter.contract.parent.glob("*.pyi")]
    page = chapter.contract.read_text("utf-8").partition("\n")[0]
    contracts = "\n".join(text for text in beside if text.startswith(page))
    found = list(faults(contracts, chapter.course_tests.read_text("utf-8"), CLAUSES.get(name, {})))
    assert not found, "\n".join(found)


def test_each_kind_of_fault_is_found():
    contract = "def f():\n    '''Doubles x. Raises nothing.'''\n"
    tests = "def test_a(): pass\ndef test_b(): pass\n"
    clauses = {
        "test_a": ["Halves x", "L5.1: Halves x", "L5.1: any axis may be empty"],
        "test_c": [],
    }
    assert list(faults(contract, tests, clauses)) == [
        "test_b has no clause",
        "there is no test_c",
        "test_a: the contract does not say: Halves x",
        "test_a: the contract does not say: L5.1: Halves x",
        "no test checks: Doubles x.",
        "no test checks: Raises nothing.",
    ]
