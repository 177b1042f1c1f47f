# Tangled from book/workshop/fault-benchmark.md
"""The table of the fault benchmark lists the mutants of the attention chapters, each once."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"^\| [a-z ]+ \| (.+) \| (L5\.\d) (\w+) \| `(\w+)` \|$", re.MULTILINE)


def test_table_lists_every_mutant():
    chapters = tomllib.loads((ROOT / "ol/course/chapters.toml").read_text(encoding="utf-8"))
    text = (ROOT / "book/workshop/fault-benchmark.md").read_text(encoding="utf-8")
    rows = {(chapter, name): (fault, test) for fault, chapter, name, test in ROW.findall(text)}
    mutants = {
        (chapter, name): facts
        for chapter in ("L5.1", "L5.2", "L5.3", "L5.7")
        for name, facts in chapters[chapter]["mutants"].items()
    }
    assert rows.keys() == mutants.keys()
    assert len(ROW.findall(text)) == len(mutants) >= 26
    for place, (fault, test) in rows.items():
        assert fault == mutants[place]["pitfall"]
        assert test in mutants[place]["caught_by"]
    assert re.search(rf"Here are {len(mutants)}, and every one is found", text.replace("\n", " "))
