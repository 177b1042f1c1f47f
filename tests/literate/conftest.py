# Tangled from book/workshop/tangle-tests-writing.md
"""A disk that fails, for the tests of writing and of stitch."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

HERE = Path(__file__).resolve().parent


class Answer(NamedTuple):
    status: int
    err: str
    seen: int


@pytest.fixture(scope="module")
def faulty_disk():
    """`run(project, mode, number, *arguments)`, on a disk that fails as `mode` says."""
    server = subprocess.Popen(
        [sys.executable, HERE / "faulty_disk.py"],
        env={**os.environ, "PYTHONPATH": str(HERE.parents[1])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def run(project, mode, number, *arguments):
        folder = str(project.root)
        request = {"mode": mode, "number": number, "folder": folder, "arguments": arguments}
        print(json.dumps(request), file=server.stdin, flush=True)
        answer = Answer(**json.loads(server.stdout.readline()))
        assert "Traceback" not in answer.err
        return answer

    with server:
        yield run
        server.stdin.close()
