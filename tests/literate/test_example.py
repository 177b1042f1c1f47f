# Tangled from book/workshop/literate.md
"""Every example in book/workshop/literate.md comes out as the chapter prints it."""

import os
from pathlib import Path
from typing import Any

import pytest

import literate.book
import literate.markdown
import literate.patch
import literate.read
from tests.literate.project import line_map

ROOT = Path(__file__).resolve().parents[2]
(CHAPTER,) = literate.read.read_book([ROOT / "book/workshop/literate.md"]).chapters


def printed(kind: str) -> list[Any]:
    """(example, block that prints something of it), for the chapter's blocks of class `kind`."""
    found, example = [], None
    for block in CHAPTER.blocks:
        if "tangle-example" in block.classes:
            example = block
        if kind in block.classes:
            found.append(pytest.param(example, block, id=f"line-{block.line}"))
    return found


def book_of(example: literate.markdown.Block, folder: Path) -> literate.book.Book:
    """The book that has the example for its only chapter."""
    (folder / "book").mkdir()
    (folder / "book" / example.attributes["chapter"]).write_text(example.body, encoding="utf-8")
    return literate.read.read_book([folder / "book"])


@pytest.mark.parametrize(("example", "result"), printed("tangle-result"))
def test_an_example_of_the_chapter_tangles_to_the_printed_result(
    example: literate.markdown.Block, result: literate.markdown.Block, tmp_path: Path
) -> None:
    book = book_of(example, tmp_path)
    assert literate.patch.products(book)[result.attributes["of"]] == result.body
    assert not book.errors
    assert not book.warnings


@pytest.mark.parametrize(("example", "table"), printed("tangle-map"))
def test_the_line_map_of_an_example_is_the_printed_one(
    example: literate.markdown.Block, table: literate.markdown.Block, tmp_path: Path
) -> None:
    target = table.attributes["of"]
    found = line_map(book_of(example, tmp_path), target)
    rows = [f"{target}:{n} <- {Path(path).name}:{line}" for n, (path, line) in enumerate(found, 1)]
    assert rows == table.body.splitlines()


@pytest.mark.parametrize(("example", "printed_rows"), printed("tangle-told"))
def test_the_errors_of_an_example_are_told_as_printed(
    example: literate.markdown.Block, printed_rows: literate.markdown.Block, tmp_path: Path
) -> None:
    book = book_of(example, tmp_path)
    rows = literate.markdown.told(book.errors) + literate.markdown.told(book.warnings, "warning: ")
    folder = f"{tmp_path / 'book'}{os.sep}"
    assert [row.removeprefix(folder) for row in rows] == printed_rows.body.splitlines()
