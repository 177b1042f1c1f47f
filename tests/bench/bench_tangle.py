# Tangled from book/workshop/benchmarks.md
"""CPU time and peak memory of the tangler against a bare reader and, where it is installed, Entangled.

python tests/bench/bench_tangle.py [--write]     --write puts the table into the chapter
"""

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path

from kept_table import keep

HERE = Path(__file__).parent
TANGLE = HERE.parents[1] / "tangle.py"
CHAPTER = HERE.parents[1] / "book/workshop/benchmarks.md"
ROUNDS = 15


def run(command, folder):
    """(CPU milliseconds, peak MiB) of one process started in an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    options = {"cwd": folder, "env": environment, "stdout": subprocess.DEVNULL}
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, **options)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(map(str, command))}: ended with status {status}")
    return 1000 * (usage.ru_utime + usage.ru_stime), usage.ru_maxrss / 1024


def rivals(book):
    """name -> command, each to be started in an empty folder."""
    found = {
        "bare reader": [sys.executable, HERE / "bare_reader.py", book, "."],
        "tangle.py": [sys.executable, TANGLE, book, "--bare"],
    }
    entangled = shutil.which("entangled") or shutil.which(
        "entangled", path=Path(sys.executable).parent
    )
    if entangled:
        script = (
            "import pathlib, shutil, sys; shutil.copytree(sys.argv[1], 'docs');"
            "pathlib.Path('entangled.toml').write_text("
            '\'version = "2.0"\\nannotation = "naked"\\nwatch_list = ["docs/*.md"]\\n\');'
            "sys.argv = ['entangled', 'tangle']; from entangled.main import cli; cli()"
        )
        python = Path(entangled).resolve().parent / "python"
        found["Entangled"] = [python if python.exists() else sys.executable, "-c", script, book]
    return found


def measured():
    """The lines of the table, and under what circumstances it was measured."""
    yield f"{'book':<26}{'program':<14}{'CPU ms':>8}{'ratio':>8}{'peak MiB':>10}"
    with tempfile.TemporaryDirectory() as scratch:
        for chapters in (20, 200):
            book = Path(scratch, f"book{chapters}")
            generator = [sys.executable, HERE / "generate_book.py", book, str(chapters)]
            subprocess.run(generator, check=True)
            commands = rivals(book)
            runs = {name: [] for name in commands}
            for _ in range(ROUNDS):
                for name, command in commands.items():
                    runs[name].append(run(command, Path(scratch, "out")))
            least = min(cpu for cpu, _ in runs["bare reader"])
            title = f"{30 * chapters} blocks, {chapters} chapters"
            for name, times in runs.items():
                cpu, peak = min(c for c, _ in times), max(m for _, m in times)
                yield f"{title:<26}{name:<14}{cpu:>8.0f}{cpu / least:>8.2f}{peak:>10.1f}"
                title = ""
    yield ""
    yield f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, one process at a time,"
    yield f"Python {platform.python_version()}; least of {ROUNDS} runs each; {date.today()}"


if __name__ == "__main__":
    table = "\n".join(measured())
    print(table)
    if "--write" in sys.argv:
        keep(table, CHAPTER, "tangle-cost")
