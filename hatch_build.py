"""The wheel takes the course's tests along, where the exercise tool looks for them."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CourseTests(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version != "standard":
            return  # an editable installation reads tests/ itself
        for pattern in ("L*/*.py", "M*/*.py"):
            for path in sorted(Path(self.root, "tests").glob(pattern)):
                inside = path.relative_to(self.root).as_posix()
                build_data["force_include"][str(path)] = f"ol/course/{inside}"
