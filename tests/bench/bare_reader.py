# Tangled from book/workshop/benchmarks.md
"""The least that a tangler can do: python bare_reader.py BOOK ROOT. Only there to be measured against."""

import re
import sys
from pathlib import Path

OPENER = re.compile(r"^(\s*)```\s*\{([^{}]*)\}\s*$")
REFERENCE = re.compile(r"^(\s*)<<([\w:/_.-]+)>>\s*$")


def read(book):
    chunks, targets = {}, {}
    for chapter in sorted(Path(book).glob("*.md")):
        body = None
        for line in chapter.read_text().splitlines(keepends=True):
            if body is None:
                if line.lstrip().startswith("```") and (opener := OPENER.match(line)):
                    words, body = opener[2].split(), []
                    file = next((word[5:] for word in words if word.startswith("file=")), None)
                    name = next((word[1:] for word in words if word[0] == "#"), file)
                    chunks.setdefault(name, []).append(body)
                    if file:
                        targets[file] = name
            elif line.strip() == "```":
                body = None
            else:
                body.append(line)
    return chunks, targets


def expand(chunks, name, indent, lines):
    for body in chunks[name]:
        for line in body:
            reference = REFERENCE.match(line) if "<<" in line else None
            if reference:
                expand(chunks, reference[2], indent + reference[1], lines)
            else:
                lines.append(indent + line if line.strip() else "\n")


def main(book, root):
    chunks, targets = read(book)
    for target, name in targets.items():
        lines = []
        expand(chunks, name, "", lines)
        text, path = "".join(lines), Path(root, target)
        if path.exists() and path.read_text() == text:
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


main(*sys.argv[1:])
