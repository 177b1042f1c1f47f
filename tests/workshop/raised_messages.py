# Tangled from book/workshop/messages.md
"""A plugin of pytest: writes down what each expected error says."""

import os

import pytest

_exit = pytest.RaisesExc.__exit__


def _told(self, kind, error, trace):
    if error is not None:
        with open(os.environ["RAISED_MESSAGES"], "a", encoding="utf-8") as file:
            file.write(f"{error}\n\0\n")
    return _exit(self, kind, error, trace)


pytest.RaisesExc.__exit__ = _told
