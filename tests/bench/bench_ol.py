# Tangled from book/workshop/ol-tests.md
"""How long a learner waits: the map, a grade, a kept grade; and mutmut on the same module and tests."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tinyllm.ol import grade
from tinyllm.ol.mutation import Runner
from tinyllm.ol.registry import ROOT, find
from tinyllm.ol.workspace import Workspace

SAMPLE = ROOT / "tests/workshop/ol_sample"
L53 = find("L5.3")
SETUP = """\
[mutmut]
source_paths=tinyllm
only_mutate=tinyllm/xfmr/mha.py
also_copy=tinyllm
pytest_add_cli_args_test_selection=tests
"""


def timed(*words, folder):
    begun = time.perf_counter()
    done = subprocess.run(
        words,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return time.perf_counter() - begun, done.stdout


def mutmut(folder):
    """Seconds for the whole run, and how many mutants it tried."""
    shutil.copytree(ROOT / "tinyllm", folder / "tinyllm")
    shutil.copytree(SAMPLE / "python/tests/l5-3-mha", folder / "tests")
    (folder / "setup.cfg").write_text(SETUP)
    names = ("tinyllm.xfmr.mha.*split_heads*", "tinyllm.xfmr.mha.*merge_heads*")
    command = Path(sys.executable).with_name("mutmut")
    begun = time.perf_counter()
    done = subprocess.run(
        [command, "run", "--max-children", "2", *names],
        cwd=folder,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return time.perf_counter() - begun, len(set(re.findall(r"mha\.\S+__mutmut_\d+", done.stdout)))


def row(what, seconds, count=None):
    each = f"{1000 * seconds / count:8.0f} ms" if count else ""
    print(f"{what:44}{seconds:8.2f} s{each:>14}", flush=True)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "w")
        shutil.copytree(SAMPLE, folder)
        print(f"{'':44}{'whole':>10}{'a mutant':>14}")
        ol = (sys.executable, "-m", "tinyllm.ol")
        row("ol status, best of 5", min(timed(*ol, folder=folder)[0] for _ in range(5)))
        with Runner() as runner:
            begun = time.perf_counter()
            result = grade.grade_tests(L53, Workspace(folder).tests(L53), runner)
            row(
                f"a grade, {len(result.rows)} mutants",
                time.perf_counter() - begun,
                len(result.rows),
            )
        timed(*ol, "mutate", "L5.3", "--ref-deps", folder=folder)
        row("a kept grade", timed(*ol, "mutate", "L5.3", "--ref-deps", folder=folder)[0])
        if importlib.util.find_spec("mutmut"):
            Path(name, "mutmut").mkdir()
            seconds, count = mutmut(Path(name, "mutmut"))
            row(f"mutmut, {count} mutants", seconds, count)
        else:
            print("mutmut is not installed: pip install 'tinyllm-book[mutants]'")


if __name__ == "__main__":
    main()
