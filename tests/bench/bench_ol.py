# Tangled from book/workshop/ol-tests.md
"""How long a learner waits: the map, a grade, a kept grade; and mutmut on the same module and tests.

"work" is processor time, user and system, of all processes; "wait" is the clock's. What else the
machine does is in the wait, and a little of it in the work; so the load is printed, too.
"""

import importlib.util
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ol.registry import ROOT

SAMPLE = ROOT / "tests/ol/sample"
OL = (sys.executable, "-m", "ol")
SETUP = """\
[mutmut]
source_paths=tinyllm
only_mutate=tinyllm/xfmr/mha.py
also_copy=tinyllm
pytest_add_cli_args_test_selection=tests
"""


def timed(*words, folder, **environment):
    """Wait and work in seconds, and what was printed."""
    begun, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        words,
        cwd=folder,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    wait, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    work = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return wait, work, done.stdout


def ol(*words, folder):
    return timed(*OL, *words, folder=folder, PYTHONPATH=str(ROOT))


def mutmut(folder):
    """Wait and work for the whole run, and how many mutants it tried."""
    for package in ("tinyllm", "ol"):
        shutil.copytree(ROOT / package, folder / package)
    shutil.copytree(SAMPLE / "python/tests/l5-3-mha", folder / "tests")
    (folder / "setup.cfg").write_text(SETUP)
    names = ("tinyllm.xfmr.mha.*split_heads*", "tinyllm.xfmr.mha.*merge_heads*")
    command = Path(sys.executable).with_name("mutmut")
    *times, out = timed(command, "run", "--max-children", "2", *names, folder=folder)
    return *times, len(set(re.findall(r"mha\.\S+__mutmut_\d+", out)))


def row(what, wait, work, count=None):
    each = f"{1000 * work / count:8.0f} ms" if count else ""
    print(f"{what:32}{wait:8.2f} s{work:8.2f} s{each:>14}", flush=True)


def main():
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    print(f"{'':32}{'wait':>10}{'work':>10}{'work a mutant':>14}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "w")
        shutil.copytree(SAMPLE, folder)
        row("ol status, best of 5", *min(ol(folder=folder)[:2] for _ in range(5)))
        words = ("mutate", "L5.3", "--ref-deps", "--json")
        *times, out = ol(*words, folder=folder)
        count = len(json.loads(out)["rows"])
        row(f"a grade, {count} mutants", *times, count)
        row("a kept grade", *ol(*words, folder=folder)[:2])
        if importlib.util.find_spec("mutmut"):
            Path(name, "mutmut").mkdir()
            *times, count = mutmut(Path(name, "mutmut"))
            row(f"mutmut, {count} mutants", *times, count)
        else:
            print("mutmut is not installed: pip install 'tinyllm-book[mutants]'")
    print(f"load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
