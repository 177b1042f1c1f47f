# Tangled from book/workshop/weave-print.md
"""The whole book as one PDF: python -m weave.serve.printed [-o FILE]."""

from __future__ import annotations

import argparse
import logging
import posixpath
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from weave.model.index import current

TAG = re.compile(r"<[a-zA-Z][^>]*>")
ATTRIBUTE = re.compile(
    r""" (id|aria-labelledby|aria-describedby|href|src)=("[^"]*"|'[^']*'|[^\s>]+)"""
)
HEADING = re.compile(r"<h([12])[^>]*? id=\"([^\"]+)\"[^>]*>(.*?)</h\1>", re.DOTALL)
UNPRINTED = re.compile(
    r"<template\b.*?</template>|<a class=\"headerlink\".*?</a>|<p class=\"hide-line\">.*?</p>",
    re.DOTALL,
)
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


@dataclass
class Printed:
    """A page of the site, as MkDocs rendered it."""

    url: str
    title: str
    html: str


collected: dict[str, Printed] = {}  # source -> page; filled while the site is built


def in_order(sources: Iterable[str]) -> list[Printed]:
    """The pages of the book that were rendered, in this order; pages of code are left out."""
    return [
        collected[source]
        for source in sources
        if source in collected and not source.startswith("code/")
    ]


def renamed(page: Printed, numbers: dict[str, int]) -> str:
    """The page's HTML with ids and links as they are in the one document."""
    address = unquote(page.url)
    here = numbers[address]

    def attribute(found: re.Match[str]) -> str:
        name, value = found[1], found[2].strip("\"'")
        if name not in ("href", "src"):
            return f' {name}="{" ".join(f"p{here}-{one}" for one in value.split())}"'
        if value.startswith("#"):
            return f' href="#p{here}-{unquote(value[1:])}"'
        if re.match(r"[a-z]+:|//", value):
            return found[0]
        path, _, anchor = map(unquote, value.partition("#"))
        other = posixpath.normpath(posixpath.join(posixpath.dirname(address), path))
        if name == "src":
            return f' src="{quote(other)}"'
        if other not in numbers:
            return ""
        return f' href="#p{numbers[other]}{"-" + anchor if anchor else ""}"'

    html = UNPRINTED.sub("", page.html).replace("<details", "<details open")
    return TAG.sub(lambda tag: ATTRIBUTE.sub(attribute, tag[0]), html)


def document(pages: list[Printed], name: str, about: str, at: dict[str, int] | None = None) -> str:
    """One HTML document of all pages; `at` gives the page of each heading that the table of contents lists."""
    numbers = {unquote(page.url): number for number, page in enumerate(pages)}
    parts, contents, styles = [], [], []
    for number, page in enumerate(pages):
        html = renamed(page, numbers)
        quoted = page.title.replace("\\", "\\\\").replace('"', '\\"').replace("<", "\\3c ")
        styles.append(f'@page chapter-{number} {{ @top-center {{ content: "{quoted}"; }} }}')
        parts.append(
            f'<section class="chapter md-typeset" id="p{number}" style="page: chapter-{number}">\n{html}\n</section>'
        )
        for level, anchor, inner in HEADING.findall(html):
            if level == "1":
                anchor, inner = f"p{number}", escape(page.title)
            shown = str(at.get(anchor, "")) if at else "000"
            contents.append(
                f'<li class="level-{level}"><a href="#{anchor}"><span class="entry">{inner}</span>'
                f'<span class="dots"></span><span class="number">{shown}</span></a></li>'
            )
    sheets = "".join(
        f'<link rel="stylesheet" href="assets/{sheet}">\n'
        for sheet in ("book.css", "figures.css", "cells.css", "print.css")
    )
    return (
        f'<!doctype html>\n<html lang="en" data-md-color-scheme="default">\n<head><meta charset="utf-8">\n'
        f"<title>{escape(name)}</title>\n{sheets}<style>\n{chr(10).join(styles)}\n</style></head>\n<body>\n"
        f'<section class="title"><h1>{escape(name)}</h1><p>{escape(about)}</p></section>\n'
        f'<nav class="contents"><h2>Contents</h2><ol>\n{chr(10).join(contents)}\n</ol></nav>\n'
        f"{chr(10).join(parts)}\n</body></html>\n"
    )


def browser() -> str:
    """The path of a Chromium; raises FileNotFoundError."""
    for name in BROWSERS:
        path = shutil.which(name)
        if path:
            return path
    raise FileNotFoundError(
        "no chromium is installed, which prints the PDF: apt-get install chromium"
    )


def print_pdf(html: Path, pdf: Path) -> None:
    """Print one file with Chromium."""
    with tempfile.TemporaryDirectory() as profile:
        command = [browser(), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
        command += [
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        ]
        command += [f"--user-data-dir={profile}", "--no-pdf-header-footer"]
        command += ["--generate-pdf-document-outline", f"--print-to-pdf={pdf}", html.as_uri()]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=900)
        except subprocess.TimeoutExpired as late:
            raise RuntimeError(f"chromium has not printed in {late.timeout:.0f} seconds") from late
        if done.returncode or not pdf.is_file():
            raise RuntimeError(f"chromium printed nothing:\n{done.stderr}")


def page_numbers(pdf: Path) -> tuple[int, dict[str, int]]:
    """How many pages a PDF has, and on which one each of its destinations stands, from 1."""
    from pypdf import PdfReader

    reader = PdfReader(pdf)
    found = {}
    for name, destination in reader.named_destinations.items():
        number = reader.get_destination_page_number(destination)
        found[unquote(name.lstrip("/"))] = 0 if number is None else number + 1
    return len(reader.pages), found


def make(config: Any, output: Path) -> int:
    """Build the site, print it; the number of pages."""
    from mkdocs.commands.build import build

    with tempfile.TemporaryDirectory() as folder:
        config.site_dir = folder
        config.plugins.on_startup(command="build", dirty=False)
        collected.clear()
        build(config)
        pages = in_order(current(config.docs_dir).reading_order())
        html, pdf = Path(folder, "book.html"), Path(folder, "book.pdf")

        def printed(at: dict[str, int] | None) -> tuple[int, dict[str, int]]:
            text = document(pages, config.site_name, config.site_description or "", at)
            html.write_text(text, encoding="utf-8")
            print_pdf(html, pdf)
            return page_numbers(pdf)

        count, at = printed(None)
        if printed(at) != (count, at):
            raise RuntimeError("the pages moved when the table of contents got its numbers")
        output.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(pdf, output)
    return count


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="Print the whole book as one PDF.")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/tinyllm.pdf"))
    parser.add_argument("-f", "--config-file", default="mkdocs.yml")
    parser.add_argument("--no-strict", action="store_true", help="whatever is wrong in the book")
    options = parser.parse_args()
    from mkdocs.config import load_config
    from mkdocs.exceptions import Abort, ConfigurationError

    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    try:
        config = load_config(options.config_file)
        config.strict = config.strict and not options.no_strict
        count = make(config, options.output)
    except Abort:
        print(
            "weave.serve.printed: a book in which something is wrong is not printed, but with --no-strict",
            file=sys.stderr,
        )
        return 1
    except (ConfigurationError, OSError, RuntimeError) as error:
        print(f"weave.serve.printed: {error}", file=sys.stderr)
        return 1
    print(f"{options.output}: {count} pages")
    return 0


if __name__ == "__main__":
    # as the module that the hooks know, not as a second one called __main__
    from weave.serve import printed

    sys.exit(printed.main())
