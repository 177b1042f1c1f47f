# Tangled from book/workshop/stitch-tests.md
"""Laws of the tangler, for every book, every edit, every string of bytes."""

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import literate.expand
import literate.read
import literate.where
from tests.literate.project import Project, line_map

law = settings(
    max_examples=int(os.environ.get("TANGLE_EXAMPLES", "40")),
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@contextlib.contextmanager
def project(files: dict[str, bytes]) -> Iterator[Project]:
    with tempfile.TemporaryDirectory() as folder:
        made = Project(Path(folder).resolve() / "root", {})
        made.root.mkdir()
        for name, content in files.items():
            made.put(f"book/{name}", content)
        yield made


# ---- books


def parted(text):
    return text.split("%")


NAMES = ["a", "b-c", "größe", "p/q.r", "n:1"]
TARGETS = ["f.py", "p/g.txt", "p/q/Makefile"]
INDENTS = ["", "", "    ", "  ", "\t"]
ENDINGS = ["", " = 1", "()  ", "  # é", " \\", " <<no", " ```"]
ODD = parted("# ~/~ end%<!--%-->%x <<none>> 1%\\<<none>>%> q%- l%{#a}%~~~ x%<<>>")
PROSE = [
    "# Title\n",
    "Text with `code`, <<no>> chunk and <!-- a comment -->.\n",
    "<!--\n``` {.python #hidden file=hidden.py}\nx\n```\n-->\n",
    "````markdown\n``` {.python #shown file=shown.py}\nx\n```\n````\n",
    "Between `<!--` and `-->`.\n",
    "Text with <!-- and no end.\n",
    "Now a --> b.\n",
    "```python\nplain\n```\n",
]
CONTAINERS = [
    ("", ""),
    ("", ""),
    ("", "  "),
    ("1. Item.\n\n", "    "),
    ("- Item.\n\n", "\t"),
    ("- a\n\n    - b\n\n", "        "),
    ("!!! note\n\n", "    "),
    ('=== "Tab"\n\n', "    "),
    ("> Text.\n>\n", "> "),
    ("1. Item.\n\n    > Text.\n    >\n", "    > "),
]


class Book(NamedTuple):
    files: dict[str, bytes]
    expected: dict[str, str]
    chunks: dict[str, set[str]]  # target -> names of the chunks in it
    words: dict[str, tuple[str, int]]  # word -> chapter and line of it


@st.composite
def books(draw):
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=5))
    targets = draw(st.lists(st.sampled_from(TARGETS), unique=True, min_size=1, max_size=3))
    words = count()
    bodies: dict[str, list[str]] = {}
    chapters: dict[str, list[str]] = {"a.md": [], "b/c.md": []}
    for number, key in enumerate([*targets, *names]):
        refs = names[max(0, number + 1 - len(targets)) :]
        file = f" file={key}" if key in targets else ""
        name = "" if file and draw(st.booleans()) else f"#{key}" if not file else f"#main-{number}"
        home = draw(st.sampled_from([*chapters]))
        for part in range(draw(st.sampled_from([1, 1, 2]))):
            goes_on = part and home == "a.md" and draw(st.booleans())
            mark = " .append" if goes_on and name else ""
            chapter = "b/c.md" if goes_on else home
            size = draw(st.integers(0, 4))
            lines = [draw(line(refs, words, row == 0)) for row in range(size)]
            chapters[chapter].append(draw(shown(f"{name}{mark}{file}", lines)))
            bodies.setdefault(key, []).extend(lines)
    files = {path: draw(written(parts)) for path, parts in chapters.items()}
    expected = {key: "\n".join(expanded(bodies, key)).rstrip("\n") for key in targets}
    return Book(
        files,
        {key: text + "\n" if text else "" for key, text in expected.items()},
        {key: reached(bodies, key) for key in targets},
        {word: (path, row) for path in files for word, row in found_in(files[path])},
    )


@st.composite
def line(draw, refs, words, is_first):
    kind, indent = draw(st.integers(0, 11)), draw(st.sampled_from(INDENTS))
    word = f"w{next(words)}w"
    if refs and kind < 6:
        ref = f"<<{draw(st.sampled_from(refs))}>>"
        if kind < 3:
            return ("" if is_first else indent) + ref + draw(st.sampled_from(["", " ", "\t"]))
        other = f"<<{draw(st.sampled_from(refs))}>>"
        return {
            3: f"{indent}{word}({ref}, {other})",
            4: f"{ref}{word}",
            5: f"{indent}{word} \\{ref}",
        }[kind]
    if kind == 6:
        return ""
    if kind == 7:
        return f"{draw(st.sampled_from(ODD))} {word}"
    return indent + word + draw(st.sampled_from(ENDINGS))


@st.composite
def shown(draw, attributes, lines):
    """A block with these lines, in a container."""
    before, prefix = draw(st.sampled_from(CONTAINERS))
    fence = draw(st.sampled_from(["```", "```", "~~~", "`````"]))
    opener = draw(st.sampled_from(["python {%s}", "{.python %s}"])) % attributes
    rows = [fence + opener, *lines, fence]
    block = "".join((prefix + row if row else prefix.rstrip()) + "\n" for row in rows)
    return before + block


@st.composite
def written(draw, parts):
    """The bytes of a chapter with these parts, and prose in between."""
    mixed = []
    for part in parts:
        mixed += [draw(st.sampled_from(PROSE)), part, "Back at the margin.\n"]
    text = "\n".join(mixed)
    if draw(st.booleans()):
        text = text.removesuffix("\n")
    text = draw(st.sampled_from(["", "", "\ufeff"])) + text
    return text.replace("\n", draw(st.sampled_from(["\n", "\n", "\r\n"]))).encode()


def expanded(bodies, key):
    """The lines of a chunk, by the rules of the book's workshop."""
    return [row for line in bodies[key] for row in expanded_line(bodies, line)]


def expanded_line(bodies, line):
    if alone := re.fullmatch(r"([ \t]*)<<([^<>]+)>>[ \t]*", line):
        return [alone[1] + row if row else "" for row in expanded(bodies, alone[2])]
    rows = [""]
    for part in re.split(r"(\\?<<[^<>]+>>)", line):
        name = part[2:-2] if part.startswith("<<") else None
        if name in bodies:
            pad = re.sub(r"[^\t]", " ", rows[-1])
            first, *rest = expanded(bodies, name) or [""]
            rows[-1] += first
            rows += [pad + row if row else "" for row in rest]
        else:
            rows[-1] += part.removeprefix("\\") if re.match(r"\\<<[^<>]+>>", part) else part
    return [row if row.strip() else "" for row in rows]


def reached(bodies, key):
    refs = set(re.findall(r"(?<!\\)<<([^<>]+)>>", "\n".join(bodies[key]))) & bodies.keys()
    return {key}.union(*(reached(bodies, name) for name in refs))


def found_in(content):
    rows = content.decode().split("\n")
    return [
        (word, number) for number, row in enumerate(rows, 1) for word in re.findall(r"w\d+w", row)
    ]


# ---- tangling


@law
@given(books())
def test_a_book_is_tangled_as_the_rules_say(book):
    with project(book.files) as one:
        assert one.tangle("--bare") == book.expected
        with contextlib.chdir(one.root):
            read = literate.read.read_book()
            for target, text in book.expected.items():
                lines = line_map(read, target, bare=True)
                assert len(lines) == text.count("\n")
                for row, place in zip(text.splitlines(), lines, strict=True):
                    check_origin(book, row, place)


def check_origin(book, row, place):
    """A line comes from where the first word on it stands, or the text before that."""
    word = re.match(r"\s*(w\d+w)", row)
    if word:
        path, number = book.words[word[1]]
        assert place == (f"book/{path}", number)


@law
@given(books())
def test_tangling_is_deterministic(book):
    with project(book.files) as one, project(book.files) as other:
        one.tangle()
        other.tangle()
        assert one.snapshot() == other.snapshot()
        once = one.snapshot()
        one.put("book/a.md", b"\n" + book.files["a.md"].removeprefix(b"\xef\xbb\xbf"))
        one.tangle()
        one.put("book/a.md", book.files["a.md"])
        one.tangle()
        assert one.snapshot() == once


# ---- stitching

INSERTED = parted(
    "new = 1%    new = 2%\tnew%%  %new  %\xe9\u0301%\\%\x0c%\x85%a\u2028b%```%    ````%"
    "```python {#z file=z.py}%~~~~%> ```%1. ```%`%<<none>>%    <<a>>%x <<a>> y%"
    "\\<<none>>%\\\\<<a>>%<<<a>>>%<<gr\xf6\xdfe>>%<!-- x%-->%> q%- l%# h%@@%"
    "# Tangled from book/a.md"
)


@st.composite
def edits(draw, text):
    """The text after one to three edits of its lines."""
    rows = text.split("\n")[:-1]
    for _ in range(draw(st.sampled_from([1, 1, 2, 3]))):
        kind, at = draw(st.integers(0, 8)), draw(st.integers(0, len(rows)))
        indent = re.match(r"\s*", rows[at - 1] if at else "")[0]
        new = draw(st.sampled_from(INSERTED))
        if kind < 2:
            rows[at:at] = [indent + new if kind else new] * draw(st.sampled_from([1, 1, 2]))
        elif kind == 2:
            del rows[at : at + draw(st.sampled_from([1, 1, 3]))]
        elif at < len(rows) and kind == 3:
            rows[at] = new
        elif at < len(rows) and kind == 4:
            rows.insert(draw(st.integers(0, len(rows) - 1)), rows.pop(at))
        elif at < len(rows) and kind == 5:
            rows[at] = re.sub(r"w(\d+)w", r"W\1", rows[at], count=1)
        elif at < len(rows) and kind == 6:
            rows[at] = draw(st.sampled_from(["", " ", "    "])) + rows[at].lstrip()
        elif at < len(rows) and kind == 7:
            cut = draw(st.integers(0, len(rows[at])))
            rows[at] = (
                rows[at][:cut]
                + draw(st.sampled_from(["", "z", "<<", "`", "\\"]))
                + rows[at][cut + 1 :]
            )
        elif at < len(rows):
            rows[at] += draw(st.sampled_from([" # end", ")", "  ", " <<a>>"]))
    return "".join(f"{row}\n" for row in rows)


def outside(one):
    """All text of the chapters that stands outside blocks."""
    kept = []
    for chapter in literate.read.read_book([str(one.root / "book")]).chapters:
        rows = Path(chapter.path).read_bytes().split(b"\n")
        for block in reversed(chapter.blocks):
            del rows[block.line - 1 : block.end_line]
        kept.append(rows)
    return kept


def bare_text(one, path, text):
    """What the book makes of a file without a header line, and a text without that line."""
    book = literate.read.read_book([str(one.root / "book")])
    _, line = literate.expand.header(path, book.chunks[book.targets[path]], "\n")
    rest = re.sub(f"^{re.escape(line)}", "", text, count=1, flags=re.MULTILINE)
    return literate.expand.expand(book, path, bare=True), rest


@law
@given(books(), st.sampled_from([[], ["--bare"], ["--force"]]))
def test_stitch_of_an_unedited_book_touches_nothing(book, options):
    with project(book.files) as one:
        one.tangle(*[option for option in options if option == "--bare"])
        before = one.snapshot(), [path.stat().st_mtime_ns for path in sorted(one.root.rglob("*"))]
        run = one.run("stitch", *options)
        assert run.status == 0
        assert "stitched" not in run.out
        after = one.snapshot(), [path.stat().st_mtime_ns for path in sorted(one.root.rglob("*"))]
        assert after == before


@law
@given(
    st.text(" -", min_size=1, max_size=6).filter(lambda signs: "-" in signs),
    st.integers(0, 3),
    st.lists(st.integers(1, 3), min_size=10, max_size=10),
    st.sets(st.integers(0, 9)),
)
def test_a_patch_fits_after_edits_that_leave_its_lines(signs, start, becomes, edited):
    rows = [f"{sign}word{k}" for k, sign in enumerate(signs, start)]
    words = "".join(f"word{k}\n" for k in range(10))
    patch = "\n".join([*rows, "+plus\n"])
    book = f"```python {{#c file=a.py}}\n{words}```\n\n```diff {{#s patch=c file=s.patch}}\n{patch}```\n"
    new = [
        f"word{k} {part}" if k in edited else f"word{k}"
        for k in range(10)
        for part in range(becomes[k] if k in edited else 1)
    ]
    with project({"ch.md": book.encode()}) as one:
        one.tangle("--bare")
        one.put("a.py", "".join(f"{row}\n" for row in new))
        run = one.run("stitch", "--bare")
        assert run.status == 0, run.err
        after = one.text("book/ch.md").split("```diff")[1].splitlines()[1:-1]
        assert after[-1] == "+plus"
        old = [row[1:] for row in after[:-1]]
        assert old == new[new.index(old[0]) :][: len(old)]
        assert {row[1:] for row in rows} - {f"word{k}" for k in edited} <= set(old)


BLANKS = st.lists(st.integers(0, 3), min_size=3, max_size=3)


@law
@given(BLANKS, st.integers(0, 2), st.integers(0, 3), st.sampled_from(["", "    "]))
def test_blank_lines_between_references_are_their_outlines(before, at, number, indent):
    def chapter(blanks):
        names = zip(blanks, ["a", "b", "c"], strict=True)
        outline = "".join("\n" * number + f"{indent}<<{name}>>\n" for number, name in names)
        bodies = {name: f"{name}1\n\n{name}2\n" for name in "abc"}
        chunks = "".join(f"```python {{#{name}}}\n{body}```\n\n" for name, body in bodies.items())
        patch = "```diff {#s patch=a file=s.patch}\n a1\n\n-a2\n+new\n```\n"
        return f"```python {{file=a.py}}\nx\n{outline}```\n\n{chunks}{patch}"

    after = [*before[:at], number, *before[at + 1 :]]
    with project({"ch.md": chapter(before).encode()}) as one, project({}) as other:
        one.tangle("--bare")
        other.put("book/ch.md", chapter(after))
        one.put("a.py", other.tangle("--bare")["a.py"])
        run = one.run("stitch", "--bare")
        assert run.status == 0, run.err
        assert one.text("book/ch.md") == chapter(after)


@law
@given(books(), st.booleans(), st.data())
def test_stitch_then_tangle_gives_the_edited_file_or_refuses(book, bare, data):
    options = ["--bare"] if bare else []
    with project(book.files) as one:
        made = one.tangle(*options)
        prose = outside(one)
        chosen = data.draw(st.lists(st.sampled_from([*made]), min_size=1, max_size=2, unique=True))
        for path in chosen:
            one.put(path, data.draw(edits(made[path])))
        edited = {path: one.text(path) for path in chosen if one.text(path) != made[path]}
        before = one.snapshot()
        run = one.run("stitch", *options)
        if run.status == 0:
            assert outside(one) == prose
            after = one.tangle(*options)
            for path in made.keys() - edited.keys():
                if not any(book.chunks[path] & book.chunks[other] for other in edited):
                    assert after[path] == made[path]
            for path, text in edited.items():
                again, rest = bare_text(
                    one, path, text
                )  # tangling puts the header where it belongs
                assert again.rstrip("\n") == (text if bare else rest).rstrip("\n")
                assert after[path] == again or not bare
        else:
            assert run.status == 1
            assert run.err.endswith("stitch: no chapter was touched\n")
            assert one.snapshot() == before


@law
@given(books(), st.booleans(), st.data())
def test_a_plain_edit_where_a_chunk_is_used_once_is_carried_back(book, add_line, data):
    with project(book.files) as one:
        made = one.tangle()
        everything = "".join(made.values())
        alone = r"^[ \t]*(w\d+w)( = 1)?$" if add_line else r"(w\d+w)"
        words = [
            (path, match[1], match[0])
            for path, text in made.items()
            for match in re.finditer(alone, text, re.MULTILINE)
            if everything.count(match[1]) == 1
        ]
        if not words:
            return
        path, word, row = data.draw(st.sampled_from(words))
        if add_line:
            indent = re.match(r"[ \t]*", row)[0]
            edited = made[path].replace(f"{row}\n", f"{row}\n{indent}new = 1\n")
        else:
            edited = made[path].replace(word, word.upper())
        one.put(path, edited)
        run = one.run("stitch")
        chapter, number = book.words[word]
        before = book.files[chapter].decode().split("\n")
        assert run.status == 0, run.err
        assert one.tangle() == made | {path: edited}
        if not add_line:
            after = one.text(f"book/{chapter}").split("\n")
            assert len(after) == len(before)
            wanted = before[number - 1].replace(word, word.upper())
            assert after[number - 1].replace("\\<<", "<<") == wanted.replace("\\<<", "<<")


# ---- any bytes

PIECES = (  # parted by %
    b"```%````%~~~%~~~~~%`%``%\n```\n%\n~~~\n%\n%\n\n%\r\n%\r%\t% %    %> %>%- %1. %"
    b'!!! n\n%=== "T"\n%[^1]:%{%}%{.py%{#a%{#b}% #a% #c file=x.py}% file=% .append%'
    b" patch=a%file=a/b}%file=a}%file=A}%file=../x}%file=/tmp/no-such-tangle}%"
    b"file=.git/x}%file=\"%file=book/a.md}%file=p/../x.py}%file='q r'}% mode=755% mode=9%"
    b"='%\"%\\%<<a>>%<<b>>%\n<<c>>\n%<<%>>%\\<<a>>%<!--%-->%--%@@\n%-x\n%+y\n% x\n%x\n%"
    b"\x00%\xff%\xc3%\xef\xbb\xbf%\xe2\x80\xa8%\xc2\x85%\x0c%\x1b[2J%e\xcc\x81%"
    b"#!/bin/sh\n%# ---\n%---\n%<?xml\n%<!DOCTYPE x%\n```python {#a file=x.py}\n%"
    b"\n```python {#b}\n%\n```diff {#s patch=a file=s.patch}\n% header=no% fil=b%"
    b"#my chunk}%=b, %file: a%~/%\xe2\x80\x9c%title: x\n%+++\n%#n\n%-*-%\n<!--\n%"
    b"\n<<my chunk>>\n%\n<<a>\n%\n<<a>>=\n%#| file: a\n%file=x.sed}%"
    b"\n```py {#b .append}\n%"
    b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa%"
    b"file=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}"
).split(b"%")
SOUND = [
    b"```python {#a file=x.py}\nx\n    <<b>>\n```\n\n",
    b"```python {#b}\nx(<<c>>)\ny\n```\n\n",
    b"1. i\n\n    ```python {#c file=a/b}\n    x\n    ```\n\n",
    b"```diff {#s patch=b file=s.patch}\n-y\n+z\n```\n\n",
]
RECORDS = (  # parted by %
    b'<<<<<<< HEAD\n%=======\n%"../x": "00",\n%"/etc/x": "00"\n%'
    b'"book/a.md": "00",\n%"": "aa"\n%".": "aa"\n%'
    b'"x.py": "aa bb mode=755",\n%\xff\n%\x00%"a\\": "00"\n%'
    b'"a/../x.py": "aa"\n%{}%null%"x.py": "%'
    b'"a": "0",\n"a": "0",\n"a": "0",\n'
).split(b"%")


@st.composite
def mangled(draw):
    if draw(st.booleans()):
        return b"".join(draw(st.lists(st.sampled_from(PIECES), max_size=40)))
    text = b"".join(SOUND)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text)))
        gone = draw(st.sampled_from([0, 0, 1, 5]))
        text = text[:at] + draw(st.sampled_from(PIECES)) + text[at + gone :]
    return text


@law
@given(
    st.lists(mangled(), min_size=1, max_size=2),
    st.sampled_from([[], ["--bare"], ["--join"]]),
    st.data(),
)
def test_no_bytes_break_the_tangler(chapters, options, data):
    with project(dict(zip(["a.md", "b/c.md"], chapters, strict=False))) as one:
        (one.root.parent / "x").write_text("mine\n")
        start = one.snapshot()
        run = one.run(*options)
        after = one.snapshot()
        assert run.status in (0, 1)
        assert start.items() <= after.items()
        if run.status:
            assert after == start
            assert run.err
        else:
            assert one.run("--check", *options).status == 0
            assert one.run(*options).status == 0
            assert one.snapshot() == after
            check_lines(one, options)
        where = b"".join(chapters).decode("utf-8", "replace")
        for command in (["--list"], ["where", "x.py:1", "book/a.md:2"], ["where"], ["stitch"]):
            assert one.run(*command, *options, stdin=where).status in (0, 1)
        if data.draw(st.booleans()) and run.status == 0:
            record = after.get(".tangle.json", (b"", 0))[0]
            cut = data.draw(st.integers(0, len(record)))
            junk = b"".join(data.draw(st.lists(st.sampled_from(RECORDS), min_size=1, max_size=3)))
            one.put(".tangle.json", record[:cut] + junk + record[cut:])
            assert one.run("stitch", *options).status in (0, 1)
            assert one.run(*options).status == 0
            assert one.snapshot() == after
        assert start.items() <= one.snapshot().items()
        assert (one.root.parent / "x").read_text() == "mine\n"
        assert len(list(one.root.parent.iterdir())) == 2
        assert not Path("/tmp/no-such-tangle").exists()


def check_lines(one, options):
    """Every generated line has an origin, and `where` finds it."""
    with contextlib.chdir(one.root):
        book = literate.read.read_book(join="--join" in options)
        for target in book.targets:
            lines = line_map(book, target, bare="--bare" in options)
            assert len(lines) == (one.root / target).read_bytes().count(b"\n")
            for number in range(1, len(lines) + 1):
                told = literate.where.locate(book, f"{target}:{number}", bare="--bare" in options)
                path, line = lines[number - 1]
                assert told[0].partition(" ")[0] == f"{path}:{line}"
