# Tangled from book/workshop/benchmarks.md
"""Puts what was measured into the chapter that shows it."""

import re


def keep(table, chapter, name):
    """The table in the place of what stands in the chapter's block ```text {.measured #NAME}."""
    text = chapter.read_text(encoding="utf-8")
    block = rf"(?<=^```text \{{\.measured #{re.escape(name)}\}}\n).*?(?=^```$)"
    new, times = re.subn(block, lambda _: table + "\n", text, flags=re.MULTILINE | re.DOTALL)
    if times != 1:
        raise SystemExit(f"{chapter}: {times} blocks are marked {{.measured #{name}}}, not one")
    chapter.write_text(new, encoding="utf-8")
