# Tangled from book/workshop/labs.md
"""The events that make pages of labs.

MkDocs loads this file as a hook of its own, beside weave/serve/hooks.py; its events mend mkdocs-jupyter.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from mkdocs.plugins import event_priority
from mkdocs.structure.files import File
from yaml import YAMLError  # type: ignore[import-untyped]

import literate.expand
import literate.patch
import literate.read
import literate.where
from weave.model.index import current
from weave.render.labs import downloads, markdown, notebook, place, shown
from weave.run.labs import Lab, Output, key, known, read, report, run
from weave.run.later import LATER, Work

_labs: dict[str, Lab] = {}
_work: Work[list[list[Output]]] = Work()


@event_priority(50)
def on_files(files: Any, config: Any) -> Any:
    """Gives MkDocs the labs of the book, and lets them run."""
    index, root = current(config.docs_dir), Path(config.docs_dir).resolve().parent
    _labs.clear()
    for target in index.book.targets if not index.book.errors else ():
        if target.startswith("labs/") and target.endswith(".py"):
            try:
                lab = read(index.book, target)
            except YAMLError as error:
                message = f"{target}: its head is not YAML: {' '.join(str(error).split())}"
                index.report(*literate.expand.line_map(index.book, target, bare=True)[0], message)
                continue
            if not (root / target).is_file():
                index.report(*lab.origins[0], f"{target}: tangle the book first")
                continue
            _labs[target] = lab
            files.append(File(target, str(root), config.site_dir, config.use_directory_urls))
            index.adopt(target, *markdown(lab))
            _work.begin(target, key(lab, root), partial(run, lab, root), known(lab, root))
    return files


def on_page_markdown(text: str, page: Any, config: Any, files: Any) -> str:
    """A lab's page is its Markdown, and MkDocs renders it, not mkdocs-jupyter."""
    if page.file.src_uri not in _labs:
        return text
    vars(page).pop("render", None)  # the plugin's, put on this one page; the class's own comes back
    return markdown(_labs[page.file.src_uri])[0]


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Puts outputs and downloads in their places."""
    lab = _labs.get(page.file.src_uri)
    if lab is None:
        return html
    index = current(config.docs_dir)
    outputs, is_current = _work.result(lab.target)
    if outputs and is_current:
        report(lab, outputs, index, Path(config.docs_dir).resolve().parent)
    for number, found in enumerate(outputs or ()):
        html = html.replace(place(number), shown(found), 1)
    late = "" if outputs or is_current else f"<p>({LATER})</p>"
    return html.replace(place("downloads"), downloads(index, lab) + late, 1)


def on_post_build(config: Any) -> None:
    """Writes each lab beside its page, as a script and as a notebook."""
    for target, lab in _labs.items():
        outputs, _ = _work.result(target)
        path = Path(config.site_dir, target)
        path.write_text(lab.text, encoding="utf-8")
        path.with_suffix(".ipynb").write_text(notebook(lab, outputs or []), encoding="utf-8")
