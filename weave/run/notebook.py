# Tangled from book/workshop/labs.md
"""Runs the cells of a notebook: python -m weave.run.notebook reads a JSON list of sources, prints a line of JSON for each.

The outputs are those of the notebook format 4: streams, displayed data, results. An error ends the run; its
output says besides in `frames` the places of its traceback, where "cell N" is the file of cell N.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import traceback
from collections.abc import Iterator
from typing import Any

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

LIMIT = 100_000  # characters that a cell may print: more is no page
outputs: list[dict[str, Any]] = []  # of the cell that runs


class Stream(io.TextIOBase):
    """Keeps what is written to it; what comes in a row is one output."""

    def __init__(self, name: str) -> None:
        self.name = name

    def write(self, text: str) -> int:
        """Appends the text to the outputs."""
        text = text.encode("utf-8", "backslashreplace").decode()
        last = outputs[-1] if outputs else {}
        if len(last.get("text", "")) + len(text) > LIMIT:
            raise ValueError(f"a cell prints no more than {LIMIT:,} characters")
        if last.get("output_type") == "stream" and last["name"] == self.name:
            last["text"] += text
        elif text:
            outputs.append({"output_type": "stream", "name": self.name, "text": text})
        return len(text)


class Publisher(DisplayPublisher):
    """Keeps what `display` shows."""

    def publish(self, data: Any, metadata: Any = None, *_: Any, **__: Any) -> None:
        """Appends the data to the outputs."""
        outputs.append({"output_type": "display_data", "data": data, "metadata": metadata or {}})


class Hook(DisplayHook):
    """Keeps the value of a cell's last expression."""

    def __call__(self, result: Any = None) -> None:
        """Appends the value's forms to the outputs."""
        if result is not None and not self.quiet():
            shell: Any = self.shell
            data, metadata = shell.display_formatter.format(result)
            outputs.append(
                {
                    "output_type": "execute_result",
                    "data": data,
                    "metadata": metadata,
                    "execution_count": shell.execution_count,
                }
            )


def run(cells: list[str]) -> Iterator[list[dict[str, Any]]]:
    """The outputs of each cell; no more after one that failed, which has an error among its outputs."""
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    shell: Any = InteractiveShell.instance(
        config=config, display_pub_class=Publisher, displayhook_class=Hook
    )
    shell.showsyntaxerror = lambda *_, **__: None  # the caller reports
    shell.showtraceback = _unshown
    for number, source in enumerate(cells):
        outputs.clear()
        shell.compile.get_code_name = lambda *_, n=number: f"cell {n}"
        with (
            contextlib.redirect_stdout(Stream("stdout")),
            contextlib.redirect_stderr(Stream("stderr")),
        ):
            result = shell.run_cell(source, store_history=True)
        error = result.error_before_exec or result.error_in_exec
        if error is not None:
            outputs.append(_error(error))
        yield list(outputs)
        if error is not None:
            return


def _unshown(raised: Any = None, *_: Any, **__: Any) -> None:
    """What the shell would show; what a cell raises is known, but not what a value raises that cannot be shown."""
    if raised is not None:
        outputs.append(_error(raised[1]))


def _error(error: BaseException) -> dict[str, Any]:
    frames = [[f.filename, f.lineno] for f in traceback.extract_tb(error.__traceback__)]
    message = str(error)
    if isinstance(error, SyntaxError):
        frames.append([error.filename, error.lineno])
        message = error.msg  # without the place, which the caller knows better
    return {
        "output_type": "error",
        "ename": type(error).__name__,
        "evalue": message,
        "traceback": [],
        "frames": frames,
    }


def main() -> None:
    """Standard input to standard output, past whatever a process that a cell starts writes there."""
    with os.fdopen(os.dup(1), "w") as answer:
        os.dup2(2, 1)
        for found in run(json.load(sys.stdin)):
            print(json.dumps(found), file=answer, flush=True)


if __name__ == "__main__":
    main()
