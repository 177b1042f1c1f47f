# Tangled from book/workshop/ol-authors.md
"""The exercise tool's copy of what the chapters say is fresh."""

import json
import runpy
from pathlib import Path

from ol.registry import COURSE, ROOT, chapters

SCRIPT = Path(__file__).with_name("book_data.py")


def test_the_tool_s_data_are_those_of_the_book():
    kept = json.loads((COURSE / "book.json").read_text(encoding="utf-8"))
    made = runpy.run_path(str(SCRIPT))["of_the_book"]()
    assert kept == made, "old: python tests/workshop/book_data.py"
    files = (ROOT / "tests").rglob("test_*.py")
    tests = "\n".join(path.read_text(encoding="utf-8") for path in files)
    assert kept.keys() == chapters().keys()
    for name, chapter in chapters().items():
        assert kept[name]["places"].keys() == chapter.facts["mutants"].keys()
        for takeaway in kept[name]["takeaways"]:
            assert takeaway["tests"]
            assert "$" not in takeaway["text"]
            assert "`test_" not in takeaway["text"]
            assert all(f"def {test}(" in tests for test in takeaway["tests"])
