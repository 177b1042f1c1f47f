# Tangled from book/workshop/literate-markdown.md
"""From the text of a chapter to its fenced blocks. Nothing here looks at a disk, or at another chapter."""

from __future__ import annotations

import re
from collections import namedtuple
from collections.abc import Iterable

TAB_STOP = 4
Diagnostic = namedtuple("Diagnostic", "path line message")


def told(diagnostics: Iterable[Diagnostic], kind: str = "") -> list[str]:
    return [f"{path}:{line}: {kind}{message}" for path, line, message in diagnostics]


FRONT_MATTER = (  # of a page or a chapter
    r"(---|\+\+\+)[ \t]*\n(?=\s*(?:#.*\n\s*)*[\w\"'][\w\"'. -]*[:=])(?:.*\n)*?(?:\1|\.\.\.)[ \t]*\n"
)


class Chapter:
    """One Markdown file: `path` as it was found, `name` in the book, `text` with LF line ends, `blocks` in order.

    `errors` and `warnings` say what is wrong with it, in its own text and together with other chapters.
    """

    def __init__(self, path: str, name: str, text: str):
        self.path, self.name, self.text = path, name, text
        self.blocks: list[Block] = []
        self.errors: list[Diagnostic] = []
        self.warnings: list[Diagnostic] = []

    def error(self, line: int, message: str) -> None:
        self.errors.append(Diagnostic(self.path, line, message))

    def warn(self, line: int, message: str) -> None:
        self.warnings.append(Diagnostic(self.path, line, message))


class Block:
    """One fenced block of a chapter, tangled or not.

    `line` is the opener's line, `end_line` the closing fence's, both from 1; `prefix` is what stands before the fence;
    `body` is the text between, without the fence's own indentation: empty, or ending in a newline.
    """

    __slots__ = "chapter line end_line prefix fence language classes name attributes file patch body".split()

    def __init__(self, chapter: Chapter, line: int, prefix: str, fence: str, says: Says, body: str):
        self.chapter, self.line, self.end_line = chapter, line, line
        self.prefix, self.fence, self.body = prefix, fence, body
        self.language, self.classes, self.name, self.attributes = says
        self.file, self.patch = self.attributes.get("file"), self.attributes.get("patch")

    def error(self, message: str, line: int | None = None) -> None:
        self.chapter.error(line or self.line, message)

    def warn(self, message: str, line: int | None = None) -> None:
        self.chapter.warn(line or self.line, message)

    def __str__(self) -> str:
        return f"{self.chapter.path}:{self.line}"


def scan(chapter: Chapter) -> None:
    """Find every fenced block of the chapter that stands outside HTML comments and indented code."""
    text, find = chapter.text, chapter.text.find
    position = counted = 0  # looked at up to here; the line that `line` counts begins there
    line, last_end = 1, 0  # where the last block that was kept ended
    header = re.match(FRONT_MATTER, text) if text[:3] in ("---", "+++") else None
    ticks, tildes, comment = find("```"), find("~~~"), find("<!--", header.end() if header else 0)
    while True:
        ticks = find("```", position) if 0 <= ticks < position else ticks
        tildes = find("~~~", position) if 0 <= tildes < position else tildes
        comment = find("<!--", position) if 0 <= comment < position else comment
        at = ticks if tildes < 0 or 0 <= ticks < tildes else tildes
        if comment >= 0 and (at < 0 or comment < at):
            position = after_comment(chapter, comment, position)
            continue
        if at < 0:
            return
        start, stop = text.rfind("\n", 0, at) + 1, find("\n", at)
        position = stop = stop if stop >= 0 else len(text)
        prefix, info = text[start:at], text[at:stop].lstrip(text[at])
        fence, wrong = text[at : stop - len(info)], ""
        if prefix and not re.fullmatch(OPENER_PREFIX, prefix):
            continue
        line += text.count("\n", counted, start)
        counted = start
        if "`" in info and fence[0] == "`":
            if re.match(r"[ \t]*[\w+-]*[ \t]*\{[.#]", info):
                wrong = "a backtick in the info string makes this no fence; open it with ~~~"
                chapter.error(line, wrong)
            continue
        try:
            says = parse_info(info)
        except ValueError as error:
            says, wrong = NOTHING, str(error)
        block = Block(chapter, line, prefix, fence, says, "")
        if prefix and prefix.isspace() and is_indented_code(text, start, columns(prefix)):
            if block.file or block.name or block.patch:
                block.warn("this fence stands in indented code, so it is text and no block")
            continue
        close, end = find_close(text, stop, prefix, fence)
        if close < 0:
            block.error(f"fence is not closed: no line of {fence} follows that ends it")
            continue
        body = text[stop + 1 : close]
        if fence in body and (swallowed := opener_within(body, prefix, fence)) >= 0:
            position = stop + 1 + swallowed
            other = line + text.count("\n", start, position)
            block.error(f"fence is not closed before another block opens in line {other}")
            continue
        if wrong:
            block.error(wrong)
        if not block.name:
            check_kept(block, info, text[last_end : last_end + 2])
        line += text.count("\n", counted, close)
        block.end_line, counted = line, close
        block.body = strip_prefix(body, prefix) if prefix else body
        position = last_end = end
        chapter.blocks.append(block)


def check_kept(block: Block, info: str, behind: str) -> None:
    """Warn where a block is probably not what its author wanted; `behind` the last one, two characters."""
    if "file" in info and "{" not in info and re.search(r"(?:^|[\s(\[])file\s*=", info):
        block.warn("file= outside of {...} is not read; write {file=...}")
    last = block.chapter.blocks[-1] if block.chapter.blocks else block
    if behind.strip() and not info.strip() and (last.name or last.file or last.patch):
        if not block.prefix and block.fence[0] == last.fence[0]:
            wrong = (
                f"this fence opens a block right behind the one that ended in line {last.end_line}"
            )
            block.warn(f"{wrong}: if that fence is part of its text, make those around it longer")


def find_close(text: str, stop: int, prefix: str, fence: str) -> tuple[int, int]:
    """(start, end) of the line that closes a fence whose info string ends at `stop`; (-1, -1) without one."""
    at = text.find(fence, stop)
    end = at + len(fence)
    if at > 0 and not prefix and text[at - 1] == "\n" and text[end : end + 1] in "\n":
        return at, end  # as nearly every block ends
    depth, width = prefix.count(">"), width_of(prefix)
    while at >= 0:
        start, end = text.rfind("\n", 0, at) + 1, text.find("\n", at)
        end = len(text) if end < 0 else end
        before, rest = text[start:at], text[at:end].rstrip(" \t")
        is_fence = not rest.strip(fence[0]) and not before.strip(" \t>")
        if is_fence and before.count(">") == depth:
            if -TAB_STOP < width_of(before) - width < TAB_STOP:
                rows, in_quote = text[stop + 1 : start].split("\n")[:-1], quote_marks(depth)
                return (start, end) if not depth or all(map(in_quote.match, rows)) else (-1, -1)
        at = text.find(fence, end)
    return -1, -1


def opener_within(body: str, prefix: str, fence: str) -> int:
    """Where in `body` a tangled block opens with a fence as strong as the one around it; -1 if nowhere."""
    opener = re.compile(rf"^([ \t>]*){fence}+[^\n`]*$", re.MULTILINE)
    for match in opener.finditer(body):
        as_deep = width_of(match[1]) < width_of(prefix) + TAB_STOP
        if as_deep and re.search(MEANT_FOR_US, match[0]):
            return match.start()
    return -1


# ---- columns, quotes, containers

OPENER_PREFIX = r"(?:[ \t]*(?:>|(?:[-*+]|\d{1,9}[.)])(?=[ \t])))*[ \t]*"


def quote_marks(depth: int) -> re.Pattern[str]:
    return re.compile(rf"(?:[ \t]*> ?){{{depth}}}")


def columns(space: str) -> int:
    """The column reached after `space`, with a tab stop every four columns."""
    return len(space.expandtabs(TAB_STOP))


def strip_columns(line: str, count: int) -> str:
    """`line` without its first `count` columns of white space; a tab that is cut leaves its rest as spaces."""
    space = line[: len(line) - len(line.lstrip(" \t"))]
    cut = next((k for k in range(len(space)) if columns(space[:k]) >= count), len(space))
    return " " * (columns(space[:cut]) - count) + line[cut:]


def spaces_for(prefix: str) -> str:
    """What stands before a body line where `prefix` stands before the fence: list marks become spaces."""
    return re.sub(r"[^\s>]", " ", prefix)


def width_of(prefix: str) -> int:
    """The columns between the last quote mark of `prefix`, with the one space that belongs to it, and its end."""
    _, mark, inner = spaces_for(prefix).rpartition(">")
    return columns(inner[1:] if mark and inner[:1] == " " else inner)


def strip_prefix(body: str, prefix: str) -> str:
    """`body` without quote marks and without the columns before the fence."""
    in_quote, width = quote_marks(prefix.count(">")), width_of(prefix)
    rows = [in_quote.sub("", row, count=1) for row in body.split("\n")[:-1]]
    return "".join(strip_columns(row, width) + "\n" for row in rows)


def is_indented_code(text: str, start: int, column: int) -> bool:
    """Whether the line at `start`, indented by `column`, is Markdown's indented code.

    It is, unless a list item, admonition, tab, footnote or definition that is still open brings its content within
    four columns of it. The nearest lines above with less and less indentation decide.
    """
    limit, end = column, start - 1
    in_paragraph = False  # whether the line below is the lazy rest of what may be a list item
    while column >= TAB_STOP and (limit > 0 or in_paragraph) and end > 0:
        begin = text.rfind("\n", 0, end) + 1
        line, end = text[begin:end], begin - 1
        indent = columns(line[: len(line) - len(line.lstrip(" \t"))])
        if not line.strip() or indent >= limit and not in_paragraph:
            in_paragraph = False
            continue
        mark = re.match(r"[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]+(?=\S)", line)
        if mark and not re.fullmatch(r"[ \t]*([-*_])([ \t]*\1){2,}[ \t]*", line):
            return column >= columns(mark[0]) + TAB_STOP
        if re.match(r"[ \t]*(?:!!!|\?\?\?|===|\[\^[^\]]+\]:|:[ \t])", line):
            return column >= indent + 2 * TAB_STOP
        limit, in_paragraph = min(limit, indent), True
    return column >= TAB_STOP


def after_comment(chapter: Chapter, at: int, since: int) -> int:
    """Where to go on after the `<!--` at `at`: behind its `-->`, or at the line's end where it hides nothing.

    `since` is where the last comment on the line ended, if there was one.
    """
    text = chapter.text
    start = max(text.rfind("\n", since, at) + 1, since)
    before = text[start:at]
    at_margin = not before.isspace() or text[start - 1 : start] not in "\n"
    is_indented = not at_margin and is_indented_code(text, start, columns(before))
    if re.fullmatch(OPENER_PREFIX, before) and not is_indented:
        end, row = text.find("-->", at + 2), text[text.rfind("\n", 0, at) + 1 : at]
        (prefix,) = re.findall(f"^{OPENER_PREFIX}", row)
        outside = behind_container(text[at:end], prefix)
        is_hiding = ">" in prefix and outside or re.search(OPENER, outside, re.MULTILINE)
        if end >= 0 and not is_hiding:
            return end + 3
        where = " in its list item or quote" if prefix else ""
        wrong = f"HTML comment is not closed{where}: without --> every block after it would vanish"
        chapter.error(text.count("\n", 0, at) + 1, wrong)
    end = text.find("\n", at)
    return end if end >= 0 else len(text)


def behind_container(text: str, prefix: str) -> str:
    """What of `text`, which begins behind `prefix`, is not in the same quote and list item any more."""
    in_quote, width = quote_marks(prefix.count(">")), width_of(prefix)
    rows = text.split("\n")
    for number, row in enumerate(rows[1:], 1):
        inner = in_quote.sub("", row, count=1).expandtabs(TAB_STOP)
        if not in_quote.match(row) or inner[:width].strip():
            return "\n".join(rows[number:])
    return ""


# ---- the opener

NAME = r"[^\x00-,;-@\[-^`{-\x7f\s]+"  # letters of any script, digits, - _ . : /
SIMPLE = re.compile(
    r"[ \t]*([\w+-]*)[ \t]*"
    r"(?:\{(?:\.([\w+-]+))?[ \t]*(?:#([\w\-.:/]+))?[ \t]*(?:file=([\w\-./]+))?\})?[ \t]*",
    re.ASCII,
)
MEANT_FOR_US = r"\{[^{}]*?(?:#\s*[^\s{}]|\b(?:file|patch)(?:\s*[=:]|[\"']\s*=))"
OPENER = rf"^{OPENER_PREFIX}(?:```|~~~).*{MEANT_FOR_US}"
Says = tuple[str, list[str], str | None, dict[str, str]]  # language, classes, name, attributes
NOTHING: Says = ("", [], None, {})
ATTRIBUTE = r"""(?x)\s*(?:
    \#(?P<id>[^\s{}"']+)
  | \.(?P<cls>[^\s{}"'=]+)
  | (?P<key>[A-Za-z_][\w:.\-]*)\s*=\s*(?:"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>(?:[^'\\]|\\.)*)'|(?P<plain>[^\s"'{}]+))
  | (?P<word>[^\s{}"'=\#]+)
)(?=\s|\Z)"""


def parse_info(info: str) -> Says:
    """What an info string says; `python {#name file=a.py}` and `{.python #name file="a.py"}` say the same.

    Raises ValueError where a block meant for the tangler is malformed.
    """
    if simple := SIMPLE.fullmatch(info):
        language, cls, name, file = simple.groups()
        attributes = {"file": file} if file else {}
        if cls and (language or cls == "append"):
            return language, [cls], name, attributes
        return language or cls or "", [], name, attributes
    outer = re.match(r"\s*([^\s{}]*)\s*\{(.*)\}\s*\Z", info)
    meant = re.search(MEANT_FOR_US, info)
    if outer is None:
        if meant:
            wrong = "the line does not end in one {...} of attributes"
            raise ValueError(f"{wrong}: {info.strip()!r}")
        return (info.replace("{", " ").split() or [""])[0], [], None, {}
    language, inside = outer.groups()
    classes, name, attributes, at = list[str](), None, dict[str, str](), 0
    while inside[at:].strip():
        found = re.compile(ATTRIBUTE).match(inside, at)
        if found is None:
            if not meant:
                return language, classes, None, {}
            wrong = f"cannot read attributes from {inside[at:].strip()!r} on"
            raise ValueError(f"{wrong}; wanted #name, .class, key=value")
        at, kind = found.end(), str(found.lastgroup)
        is_first = not (name or classes or attributes)
        if meant and is_half_read(kind, found["key"], found[kind], is_first):
            wrong = "is not what it looks like; blanks separate #name, .class and key=value, and quotes are straight"
            raise ValueError(f"{found[0].strip()} {wrong}")
        if kind == "id":
            if name is not None:
                raise ValueError(f"two names, #{name} and #{found['id']}; a block has one")
            name = normal(found["id"])
        elif kind in ("cls", "word"):
            classes.append(found[kind])
        else:
            key, value = found["key"], found[kind]
            if key in attributes and key in ("file", "patch", "mode"):
                raise ValueError(f"{key}= is given twice: {attributes[key]!r} and {value!r}")
            attributes[key] = value if kind == "plain" else re.sub(r"\\(.)", r"\1", value)
    if name is not None and not re.fullmatch(NAME, name):
        raise ValueError(f"#{name} is not a name: letters, digits and - _ . : / make one")
    if not language and (named := [cls for cls in classes if cls != "append"]):
        language = named[0]
        classes.remove(language)
    return language, classes, name, attributes


OURS = ("file", "patch", "mode", "header")


def is_half_read(kind: str, key: str | None, value: str, is_first: bool) -> bool:
    """Whether a token of the braces was meant otherwise than it reads. A word alone is a language, and comes first."""
    if kind == "word":
        return not is_first or not re.fullmatch(r"[\w+-]+", value)
    odd = "[,;=\u2018-\u201f]" if key in OURS else "[,;]$|[\u2018-\u201f]"
    return kind in ("plain", "cls") and re.search(odd, value) is not None


def normal(name: str) -> str:
    """One spelling for names that look alike: composed characters."""
    if name.isascii():
        return name
    from unicodedata import normalize

    return normalize("NFC", name)
