# Tangled from book/workshop/benchmarks.md
"""A literate book of any size, the same at every run: python generate_book.py FOLDER CHAPTERS."""

import random
import sys
import textwrap
from pathlib import Path

WORDS = ["a", "chunk", "names", "one", "thought", "where", "the", "prose", "explains", "why"]
BLOCKS, DEPTH, STATEMENTS = 30, 4, 6


def prose(rng, words=75):
    return textwrap.fill(" ".join(rng.choices(WORDS, k=words)), 78).capitalize() + ".\n"


def block(body, attributes):
    return f"``` {{.python {attributes}}}\n{body}```\n"


def chapter(number, rng):
    names = [f"ch{number:03d}-part-{k}" for k in range(BLOCKS - 2 - (BLOCKS - 2) // 10)]
    heads = [name for k, name in enumerate(names) if k % DEPTH == 0]
    calls = " + ".join(f"f{k}()" for k in range(len(heads)))
    outline = "\n\n".join(f"<<{head}>>\n" for head in heads)
    outline += f"\n\ndef total():\n    return {calls}\n"
    out = [f"# Chapter {number}\n", block(outline, f"file=src/ch{number:03d}.py")]
    continued = set(range(DEPTH - 1, DEPTH * ((BLOCKS - 2) // 10), DEPTH))
    for k, name in enumerate(names):
        inner = f"<<{names[k + 1]}>>\n" if k % DEPTH != DEPTH - 1 and k + 1 < len(names) else ""
        if k % DEPTH == 0:
            body = f"def f{k // DEPTH}():\n    x = {k}\n{inner and '    ' + inner}    return x\n"
        else:
            body = "".join(f"x += {rng.randint(1, 99)}\n" for _ in range(STATEMENTS))
            body += inner and f"if x:\n    {inner}"
        out += [prose(rng), block(body, f"#{name}")]
        if k in continued:
            out += [prose(rng, 12), block("\nx += 1\n", f"#{name}")]
    out += [
        prose(rng, 25),
        block(f"from src.ch{number:03d} import total\n", f"file=tests/ch{number:03d}.py"),
    ]
    return "\n".join(out)


def main(folder, chapters):
    Path(folder).mkdir(parents=True, exist_ok=True)
    for number in range(int(chapters)):
        text = chapter(number, random.Random(number))
        Path(folder, f"ch{number:03d}.md").write_text(text, encoding="utf-8", newline="\n")


main(*sys.argv[1:])
