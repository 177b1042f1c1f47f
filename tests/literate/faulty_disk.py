# Tangled from book/workshop/tangle-tests-writing.md
"""Runs the tangler on a disk that fails: a line of JSON in for each run, a line of JSON out.

In: `mode` (count, kill, fail, full), `number` (at which change of the file system), `folder`, `arguments`.
Out: `status` (negative: killed by a signal), `seen` (changes that were about to be made), `err`.
"""

import errno
import json
import os
import signal
import sys
import tempfile

import literate.command

CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.chmod", "os.link", "os.symlink"}
NEED_SPACE = {"open", "os.mkdir", "write"}


class FaultyDisk:
    """Counts the changes, and lets one of them go wrong."""

    def __init__(self, mode: str, number: int) -> None:
        self.mode, self.number, self.seen = mode, number, 0
        self.really_write = os.write

    def change(self, event: str, path: str | None) -> None:
        if self.mode == "full" and event not in NEED_SPACE:
            return
        self.seen += 1
        if self.mode == "kill" and self.seen == self.number:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.mode == "fail" and self.seen == self.number:
            raise OSError(errno.EIO, "this change fails", path)
        if self.mode == "full" and self.seen >= self.number:
            raise OSError(errno.ENOSPC, "this disk is full", path)

    def audit(self, event: str, arguments: tuple) -> None:
        writes = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if writes or event in CHANGES:
            self.change(event, arguments[0])

    def write(self, handle: int, data: bytes) -> int:
        try:
            self.change("write", None)
        except OSError:
            self.really_write(handle, data[: len(data) // 2])
            raise
        is_last = self.mode == "kill" and self.seen + 1 == self.number
        return self.really_write(handle, data[: len(data) // 2] if is_last else data)


def run(mode: str, number: int, folder: str, arguments: list[str], log) -> int:
    """The status of a run in a child process; what it says goes to `log`."""
    child = os.fork()
    if not child:
        os.chdir(folder)
        sys.stdin = None  # it is the server's
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        disk = FaultyDisk(mode, number)
        os.write = disk.write
        sys.addaudithook(disk.audit)
        try:
            status = literate.command.main(arguments)
        finally:
            disk.mode = "done"
        sys.stdout.flush()
        print("\0", disk.seen, file=sys.stderr, flush=True)
        os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def serve() -> None:
    for line in sys.stdin:
        with tempfile.TemporaryFile("w+", encoding="utf-8") as log:
            status = run(**json.loads(line), log=log)
            log.seek(0)
            err, _, seen = log.read().partition("\0")
        print(json.dumps({"status": status, "err": err, "seen": int(seen or 0)}), flush=True)


if __name__ == "__main__":
    serve()
