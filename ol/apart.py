# Tangled from book/workshop/ol-sandbox.md
"""Processes that see nothing of each other: namespaces of Linux, and limits."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

_NEWNS, _NEWIPC, _NEWPID, _NEWNET = 0x20000, 0x8000000, 0x20000000, 0x40000000
_NOSUID, _NODEV = 2, 4


def _call(name: str, *arguments: Any) -> None:
    """Call the system's library. OSError if it says no."""
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


def fork() -> int:
    """Like os.fork, but the child is the first process of a list of its own."""
    if sys.platform != "linux":
        raise OSError("processes are set apart on Linux only")
    here = os.pidfd_open(os.getpid())
    try:
        _call("unshare", _NEWPID)
        pid = os.fork()
        if pid:
            _call("setns", here, _NEWPID)
    finally:
        os.close(here)
    return pid


def restrict(limits: Mapping[str, Any]) -> None:
    """Limit this process, and what it starts. If it is to be apart, only a child of it returns."""
    if limits["apart"]:
        _call("unshare", _NEWNS | _NEWIPC | _NEWNET)
        size = f"size={limits['disk']}m,mode=1777".encode()
        _call("mount", b"none", b"/scratch", b"tmpfs", _NOSUID | _NODEV, size)
        _give_up_rights(limits["user"])
        if pid := os.fork():
            _wait(pid)
    if limits["apart"]:  # else the user's other processes would count
        limit(NPROC=limits["processes"])
    limit(FSIZE=limits["disk"] << 20, DATA=limits["memory"] << 20, CORE=0, NOFILE=1024)


def limit(**most: int) -> None:
    """Limit what this process and its children may use, by resource, where the system can do that."""
    with contextlib.suppress(ImportError):  # not a Unix: only what is watched from outside
        import resource

        for name, value in most.items():
            with contextlib.suppress(AttributeError, ValueError, OSError):
                kind = getattr(resource, f"RLIMIT_{name}")
                hard = resource.getrlimit(kind)[1]
                top = value if hard == resource.RLIM_INFINITY else min(value, hard)
                resource.setrlimit(
                    kind, (top, hard if name == "CPU" else top)
                )  # a signal tells why


def _give_up_rights(user: int) -> None:
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    header, none = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    _call("capset", header, none)


def _wait(pid: int) -> None:
    """Be the first process until this one has ended, then end as it did."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Python's own answer to it would end this one
    ended = status = 0
    while ended != pid:
        ended, status = os.wait()
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":  # to find out whether all this is to be had here
    if pid := fork():
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    restrict({"apart": True, "disk": 1, "memory": 1024, "processes": 8, "user": int(sys.argv[1])})
    os._exit(0 if importlib.util.find_spec("pytest") else 1)
