# Tangled from book/workshop/ol-tests.md
"""What the tests of the exercise tool share."""

import json
import os
import subprocess
import sys

import pytest

from ol import cli
from ol.registry import ROOT
from ol.runner import Runner


@pytest.fixture
def root(tmp_path):
    """A workspace, in a folder with a space in its name."""
    folder = tmp_path / "a path with spaces"
    folder.mkdir()
    return folder


@pytest.fixture
def ol(root, capsys):
    """Runs `ol` in this process; status and what is printed, or the object."""

    def run(*words):
        status = cli.main([*words, "--workspace", str(root)])
        printed = capsys.readouterr()
        text = printed.out + printed.err
        return (status, json.loads(text)) if "--json" in words else (status, text)

    return run


@pytest.fixture
def python(root):
    """Runs a Python in the workspace, or in another folder."""

    def run(*words, folder=root, package=ROOT, **options):
        env = {**os.environ, "PYTHONPATH": str(package)}
        options |= {"capture_output": True, "text": True, "check": False}
        return subprocess.run([sys.executable, *words], cwd=folder, env=env, **options)

    return run


@pytest.fixture
def shell(python):
    """Runs `ol` as a command; status and object, or what is printed."""

    def run(*words, plain=False, **options):
        done = python("-m", "ol", *words, *([] if plain else ["--json"]), **options)
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout if plain else json.loads(done.stdout)

    return run


@pytest.fixture(scope="module")
def runner():
    with Runner(workers=2) as runner:
        yield runner


@pytest.fixture(scope="session")
def submit():
    """Hands in tests of multi-head attention, in a folder of a class."""

    def run(folder, name, text):
        path = folder / name / "python/tests/l5-3-mha/test_mha.py"
        path.parent.mkdir(parents=True)
        path.write_text(text)

    return run
