# Tangled from book/workshop/ol.md
"""A plugin of pytest: tests the learner's modules, not the book's."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ol import overlay
from ol.apart import limit
from ol.jobs import Job, function_name
from ol.worker import Reporter
from ol.workspace import Workspace

_ASKED: dict[str, Any] = json.loads(os.environ.pop(overlay.RUN, "{}"))
_FAILED: dict[str, str] = {}  # function -> its first case that failed


def pytest_load_initial_conftests(early_config: Any) -> None:
    if overlay.MODULES not in os.environ:
        named = [*early_config.known_args_namespace.file_or_dir, "."][0].partition("::")[0]
        place = Path(named).resolve()
        workspace = Workspace.around(here=place)
        found = workspace.here(place)
        own = workspace.own(found[0] if len(found) == 1 else None)
        os.environ.update(overlay.environment(own))
    overlay.install()


def pytest_report_header() -> list[str]:
    own = json.loads(os.environ[overlay.MODULES])
    said = [f"yours: {path}" for path in own.values()] or ["yours: nothing yet, all is the book's"]
    return list(_ASKED.get("header", said))


def pytest_configure(config: Any) -> None:
    if _ASKED:
        reporter = Reporter(Job(**_ASKED["job"]), _send)
        config.pluginmanager.register(reporter)


def pytest_runtest_setup(item: Any) -> None:
    if _ASKED and item.get_closest_marker("memory"):
        limit(DATA=_ASKED["gibibytes"] << 30)


def pytest_collectreport(report: Any) -> None:
    if _ASKED and report.failed:
        _send({"unbuildable": report.longreprtext})


def pytest_sessionfinish(exitstatus: int) -> None:
    if _ASKED:
        _send({"end": int(exitstatus)})


def pytest_report_teststatus(report: Any) -> tuple[str, str, str] | None:
    if report.failed and _ASKED:
        name = function_name(report.nodeid)
        if _FAILED.setdefault(name, report.nodeid) != report.nodeid:
            return "more cases of these failed", "F", "FAILED"
    return None


def _send(row: Mapping[str, Any]) -> None:
    with open(_ASKED["told"], "a", encoding="utf-8") as file:
        file.write(f"{_ASKED['token']} {json.dumps(row)}\n")
