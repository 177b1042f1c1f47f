# Tangled from book/workshop/ol.md
"""The learner's modules in the places of the book's, in every Python that is started from here."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import Any

MODULES = "OL_MODULES"  # in the environment: module -> the learner's file
RUN = "OL_RUN"  # what `ol tests` asks of its pytest


class _Loader(SourceFileLoader):
    def path_stats(self, path: Any) -> Mapping[str, Any]:
        raise OSError  # no cache of bytecode: two saves within a second look alike to it


class _Learner(MetaPathFinder):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        file = json.loads(os.environ.get(MODULES, "{}")).get(name)
        loader = _Loader(name, file) if file else None
        return spec_from_file_location(name, file, loader=loader) if file else None


def install() -> None:
    """From now on this process imports the learner's modules."""
    if not any(isinstance(finder, _Learner) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Learner())


def environment(own: Mapping[str, Path]) -> dict[str, str]:
    """What the environment of a process has to say, so that it does and its children do."""
    from ol.registry import ROOT, chapters

    modules = {chapters()[name].module: str(path) for name, path in own.items()}
    here = [str(ROOT / "ol" / "startup"), str(ROOT)]
    rest = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p and p not in here]
    tools = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])
    paths = {"PYTHONPATH": os.pathsep.join(here + rest), "PATH": tools}
    return {MODULES: json.dumps(modules), **paths}
