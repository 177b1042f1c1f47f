# Tangled from book/workshop/weave-search.md
"""The glossary as the weaver uses it: terms, their forms, their meanings."""

from __future__ import annotations

import re

ENTRY = re.compile(
    r"^(?P<term>\S[^\n]*)\n+:[ \t]+(?P<meaning>[^\n]+(?:\n[ \t]+\S[^\n]*)*)", re.MULTILINE
)
PART = re.compile(r"^#+[^\n]*?\bPart (\d+)[^\n]*$", re.MULTILINE)


class Meanings(dict[str, str]):
    """Term -> meaning as plain words; `parts`: term -> the part of the book in which alone it means that; `diagnostics`: line,
    message."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: dict[str, int] = {}
        self.diagnostics: list[tuple[int, str]] = []

    def of(self, part: int | None) -> dict[str, str]:
        """The terms that a chapter of this part means in this way."""
        return {t: text for t, text in self.items() if self.parts.get(t, part) == part}


def read(text: str) -> tuple[Meanings, dict[str, str]]:
    """Of a glossary's Markdown: the meanings, and each form of a term -> the term."""
    meanings = Meanings()
    forms: dict[str, str] = {}
    headings = [(found.start(), int(found[1])) for found in PART.finditer(text)]
    for found in ENTRY.finditer(text):
        term, _, others = found["term"].replace("`", "").partition(" (")
        name = term.casefold()
        line = text.count("\n", 0, found.start()) + 1
        if name in meanings:
            meanings.diagnostics.append((line, f"the glossary has two entries {term}"))
        for start, part in headings:
            if start < found.start():
                meanings.parts[name] = part
        meanings[name] = " ".join(re.sub(r"[`*$]", "", found["meaning"]).split())
        for form in (term, *others.removesuffix(")").split(", ")):
            other = forms.setdefault(form.casefold(), name) if form else name
            if other != name:
                meanings.diagnostics.append((line, f"{form} is a form of {other} already"))
    return meanings, forms


def pattern(forms: dict[str, str]) -> re.Pattern[str]:
    """Finds any form of a term as a word of its own, the longest first."""
    words = sorted(map(re.escape, forms), key=lambda word: (-len(word), word))
    return re.compile(rf"(?<![\w-])(?:{'|'.join(words) or '(?!)'})(?![\w-])", re.IGNORECASE)
