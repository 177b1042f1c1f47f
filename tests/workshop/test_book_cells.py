# Tangled from book/workshop/weave-cells.md
"""The cells of every page run, in order and in one namespace, and do what they say."""

from pathlib import Path

import pytest

from weave.model.index import Index
from weave.run.outputs import cells, diagnosis, results

INDEX = Index(str(Path(__file__).resolve().parents[2] / "book"))
PAGES = [page for page in INDEX.pages.values() if cells(page)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path)
def test_cells_run(page):
    found, blocks = results(INDEX, page), cells(page)
    for number, result in enumerate(found):
        if result["error"]:
            line, message = diagnosis(INDEX, blocks, number, result)
            pytest.fail(f"book/{page.path}:{line}: {message}", pytrace=False)
    assert len(found) == len(blocks)
