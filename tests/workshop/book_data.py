# Tangled from book/workshop/ol-authors.md
"""Copies what the exercise tool shows of the chapters into its data: takeaways, and where a pitfall's code is."""

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "ol/course/book.json"
PLAIN = {
    r"\sqrt": "sqrt ",
    r"\cdot": "*",
    r"\le": "<=",
    r"\bar ": "grad ",
    r"^\top": ".T",
    "\\,": " ",
}


def in_plain_text(formula):
    for old, new in PLAIN.items():
        formula = formula.replace(old, new)
    formula = re.sub(r"\\(?:mathrm|text)\{(\w+)\}", r"\1", formula)
    return re.sub(r"[\\{}]", "", formula)


def takeaway(item):
    """A sentence or two, and the tests that show it."""
    text = re.sub(r"\s*\((?:`test_\w+`(?:,\s*|\s+and\s+)?)+\)", "", item)
    text = re.sub(r"\$([^$]*)\$", lambda formula: in_plain_text(formula[1]), text)
    tests = re.findall(r"`(test_\w+)`", item)
    return {"text": re.sub(r"\s+", " ", text).strip(), "tests": tests}


def of_the_book():
    """Chapter -> its takeaways, and the chunk that each of its pitfalls changes."""
    from literate.read import read_book

    found = {}
    for chapter in read_book([ROOT / "book"]).chapters:
        head = re.search(r'^\["(\S+)"\]$', chapter.text, re.MULTILINE)
        part = re.search(r"^## Key takeaways\n(.*?)^## ", chapter.text, re.MULTILINE | re.DOTALL)
        if head and part:
            items = re.split(r"^\d+\. ", part[1], flags=re.MULTILINE)[1:]
            found.setdefault(head[1], {})["takeaways"] = [takeaway(item) for item in items]
        for block in chapter.blocks:
            if made := re.fullmatch(r"ol/course/mutants/(.+)/(\w+)\.patch", block.file or ""):
                found.setdefault(made[1], {}).setdefault("places", {})[made[2]] = block.patch
    return dict(sorted(found.items()))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    DATA.write_text(json.dumps(of_the_book(), indent=1, ensure_ascii=False) + "\n", "utf-8")
