# Tangled from book/workshop/tangle.md
"""Every example in book/workshop/tangle.md comes out as the chapter prints it."""

import os
from pathlib import Path
from typing import Any

import pytest

import tangle

ROOT = Path(__file__).resolve().parents[2]
(CHAPTER,) = tangle.read_book([ROOT / "book/workshop/tangle.md"]).chapters


def printed(kind: str) -> list[Any]:
    """(example, block that prints something of it), for the chapter's blocks of class `kind`."""
    found, example = [], None
    for block in CHAPTER.blocks:
        if "tangle-example" in block.classes:
            example = block
        if kind in block.classes:
            found.append(pytest.param(example, block, id=f"line-{block.line}"))
    return found


def book_of(example: tangle.Block, folder: Path) -> tangle.Book:
    """The book that has the example for its only chapter."""
    (folder / "book").mkdir()
    (folder / "book" / example.attributes["chapter"]).write_text(example.body, encoding="utf-8")
    return tangle.read_book([folder / "book"])


@pytest.mark.parametrize(("example", "result"), printed("tangle-result"))
def test_an_example_of_the_chapter_tangles_to_the_printed_result(
    example: tangle.Block, result: tangle.Block, tmp_path: Path
) -> None:
    book = book_of(example, tmp_path)
    assert tangle.products(book)[result.attributes["of"]] == result.body
    assert not book.faults
    assert not book.warnings


@pytest.mark.parametrize(("example", "table"), printed("tangle-map"))
def test_the_line_map_of_an_example_is_the_printed_one(
    example: tangle.Block, table: tangle.Block, tmp_path: Path
) -> None:
    target = table.attributes["of"]
    found = tangle.line_map(book_of(example, tmp_path), target)
    rows = [f"{target}:{n} <- {Path(path).name}:{line}" for n, (path, line) in enumerate(found, 1)]
    assert rows == table.body.splitlines()


@pytest.mark.parametrize(("example", "printed_rows"), printed("tangle-told"))
def test_the_faults_of_an_example_are_told_as_printed(
    example: tangle.Block, printed_rows: tangle.Block, tmp_path: Path
) -> None:
    book = book_of(example, tmp_path)
    rows = tangle.told(book.faults) + tangle.told(book.warnings, "warning: ")
    folder = f"{tmp_path / 'book'}{os.sep}"
    assert [row.removeprefix(folder) for row in rows] == printed_rows.body.splitlines()
