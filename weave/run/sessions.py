# Tangled from book/workshop/ol-sessions.md
"""Runs the console sessions of chapters, and gives back what they print."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from weave.run import kept

HOME = "~/learn"  # what the page calls the workspace


def transcripts(blocks: Sequence[tuple[str, str]], root: str = ".") -> list[str]:
    """What each session of one chapter looks like on a terminal.

    `blocks` are pairs of text and folder of files ("" for none), in the order of the chapter. ValueError
    for a command that cannot be run, or that was used wrongly.
    """
    home, wanted = Path(root).absolute(), key(blocks, root)
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder, "learn")
        workspace.mkdir()
        done = [_session(text, files, workspace, home) for text, files in blocks]
    kept.write(_path(blocks, root), wanted, done)
    return done


def known(blocks: Sequence[tuple[str, str]], root: str = ".") -> list[str] | None:
    """The transcripts, where they are kept and nothing has changed."""
    found: list[str] | None = kept.read(_path(blocks, root), key(blocks, root))
    return found


def _session(text: str, files: str, workspace: Path, home: Path) -> str:
    if files:
        if not (home / files).is_dir():
            raise ValueError(f"workspace={files}: there is no such folder")
        left_out = shutil.ignore_patterns("__pycache__")
        shutil.copytree(home / files, workspace, dirs_exist_ok=True, ignore=left_out)
    lines: list[str] = []
    for line in text.splitlines():
        lines.append(line)
        if line.startswith("$ "):
            lines += _run(line[2:], workspace, home)
    return "\n".join(lines)


_SECONDS = re.compile(r" ( *)\d+\.\d+ ?s\b")  # in a column behind more than one space
_CUT = re.compile(r"\s*\|\s*(head|tail)\s+-(\d+)\s*$")


def _run(command: str, workspace: Path, home: Path) -> list[str]:
    """The lines that a command prints."""
    cut = _CUT.search(command)
    try:
        words = shlex.split(_CUT.sub("", command), comments=True)
    except ValueError as error:
        raise ValueError(f"{command}: {error}") from error
    if words[:1] != ["ol"]:
        raise ValueError(f"{command}: a session can only call ol")
    done = subprocess.run(
        [sys.executable, "-m", "ol", *words[1:]],
        cwd=workspace,
        env={**os.environ, "PYTHONPATH": str(home), "NO_COLOR": "1", "OPENBLAS_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        check=False,
    )
    if done.returncode not in (0, 1) or "Traceback (most recent call last)" in done.stdout:
        raise ValueError(f"{command}: status {done.returncode}: {done.stdout[-500:]}")
    shown = done.stdout.replace(str(workspace), HOME).replace(str(home), "~/tinyllm")
    shown = _SECONDS.sub(lambda time: f"{'… s':>{len(time[0]) if time[1] else 4}}", shown)
    lines = shown.splitlines()
    if cut is None or int(cut[2]) >= len(lines):
        return lines
    size = int(cut[2])
    return [*lines[:size], "..."] if cut[1] == "head" else ["...", *lines[-size:]]


def key(blocks: Sequence[tuple[str, str]], root: str) -> str:
    """A hash of all that the sessions depend on."""
    home = Path(root).absolute()
    folders = [home / "ol", *(home / "tests").glob("[LM]*")]
    folders += [home / files for _, files in blocks if files]
    files = {path for folder in folders for path in kept.below(folder)}
    return kept.fingerprint(home, files, json.dumps(blocks))


def _path(blocks: Sequence[tuple[str, str]], root: str) -> Path:
    name = hashlib.sha256(json.dumps(blocks).encode()).hexdigest()[:16]
    return Path(root, "build", "sessions", f"{name}.json")
