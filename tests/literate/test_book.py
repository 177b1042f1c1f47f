# Tangled from book/workshop/tangle-tests.md
"""How chunks are put together, and which books are refused."""

import os

import pytest

from tests.literate.project import REAL, Project, block, chunk, errors, target

CHUNKS = (
    chunk("one", "1\n")
    + chunk("two", "1,\n2\n")
    + chunk("gap", "1\n\n2\n")
    + chunk("none", "")
    + chunk("blank", "\n")
    + chunk("led", "\n1\n")
    + chunk("trailed", "1\n\n")
    + chunk("deep", "if x:\n    <<two>>\n")
    + chunk("call", "f(<<two>>)\n")
    + chunk("tail", "g(<<trailed>>)\n")
    + chunk("begun", "<<led>>x\n")
    + chunk("hollow", "    <<none>>\nx\n")
)
REFERENCES = {
    "alone": ("<<one>>\n", "1\n"),
    "alone, indented": ("    <<two>>\n", "    1,\n    2\n"),
    "alone, tab": ("all:\n\t<<two>>\n", "all:\n\t1,\n\t2\n"),
    "alone, tab and spaces": ("\t  <<two>>\n", "\t  1,\n\t  2\n"),
    "alone, white space behind": ("<<one>> \t \n", "1\n"),
    "blank lines stay empty": ("  <<gap>>\n", "  1\n\n  2\n"),
    "white space on a line is blank": ("x\n    <<white>>\n", "x\n    1\n\n    2\n"),
    "two levels": ("  <<deep>>\n", "  if x:\n      1,\n      2\n"),
    "twice": ("<<one>>\n<<one>>\n", "1\n1\n"),
    "inside": ("f(<<one>>)\n", "f(1)\n"),
    "inside, longer": ("f(<<two>>)\n", "f(1,\n  2)\n"),
    "inside, twice": ("f(<<one>>, <<one>>)\n", "f(1, 1)\n"),
    "inside, side by side": ("<<one>><<one>>\n", "11\n"),
    "inside, longer twice": ("<<two>> + <<two>>\n", "1,\n2 + 1,\n    2\n"),
    "inside, at the start": ("<<two>>)\n", "1,\n2)\n"),
    "inside, at the end": ("f = <<two>>\n", "f = 1,\n    2\n"),
    "inside, tab before": ("\tf(<<two>>)\n", "\tf(1,\n\t  2)\n"),
    "inside, blank line": ("f(<<gap>>)\n", "f(1\n\n  2)\n"),
    "inside, deep": ("x = <<deep>>\n", "x = if x:\n        1,\n        2\n"),
    "inside the inside": ("g(<<call>>)\n", "g(f(1,\n    2))\n"),
    "inside, indented by an outer one": ("  <<call>>\n", "  f(1,\n    2)\n"),
    "inside, one ends in a blank line": ("  <<tail>>\n", "  g(1\n  )\n"),
    "inside, one begins with a blank line": ("  <<begun>>\n", "\n  1x\n"),
    "inside, a blank chunk": ("<<blank>>x\n", "x\n"),
    "inside, a blank chunk in the middle": ("a<<blank>>x\n", "ax\n"),
    "empty, alone": ("a\n    <<none>>\nb\n", "a\nb\n"),
    "empty, inside": ("f(<<none>>)\n", "f()\n"),
    "empty, behind an inside one": ("f(<<hollow>>)\n", "f(x)\n"),
    "empty, the whole file": ("<<none>>\n", ""),
    "no chunk: text": ("x <<n>> 1\n", "x <<n>> 1\n"),
    "no name: text": ("<<>> << o >> <<o ne>> <<one>\n", "<<>> << o >> <<o ne>> <<one>\n"),
    "more brackets": ("<<<one>>>\n", "<1>\n"),
    "shift and compare": ("a<<b>>c\n", "a<<b>>c\n"),
    "escaped": ("\\<<one>>\n    \\<<nowhere>>\n", "<<one>>\n    <<nowhere>>\n"),
    "escaped, inside": ("f(\\<<one>>, <<one>>)\n", "f(<<one>>, 1)\n"),
    "escaped twice": ("\\\\<<one>>\n", "\\<<one>>\n"),
    "backslash elsewhere": ("\\ <<one>> \\n\n", "\\ 1 \\n\n"),
    "in a comment": ("# <<one>>\n", "# 1\n"),
}


@pytest.mark.parametrize(("body", "expected"), REFERENCES.values(), ids=REFERENCES)
@pytest.mark.parametrize("ends", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_references(body, expected, ends, tmp_path):
    book = target("a.py", body) + CHUNKS + chunk("white", "1\n  \t\n2\n")
    project = Project(tmp_path, book.replace("\n", ends))
    assert project.tangle("--bare") == {"a.py": expected}


def test_the_column_of_a_reference_counts_every_character_before_it(tmp_path):
    book = target("a.py", "größe = f(<<two>>)\n") + CHUNKS
    assert Project(tmp_path, book).tangle("--bare") == {"a.py": "größe = f(1,\n          2)\n"}


def test_text_that_is_nearly_a_reference_is_warned_of(tmp_path):
    book = target(
        "a.py", "x = f(<<setupp>>)\ny = f(<< setup >>)\nz = f(\\<<setup>>)\na <<zzz>> b\n"
    )
    run = Project(tmp_path, book + chunk("setup", "1\n")).run()
    assert run.status == 0
    assert "book/ch.md:2: warning: <<setupp>> is text here" in run.err
    assert "book/ch.md:3: warning: << setup >> is text here" in run.err
    assert "ch.md:4" not in run.err
    assert "ch.md:5" not in run.err


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("<<my chunk>>", "<<my chunk>> is text here and no reference"),
        ("    << setup >> ", "<< setup >> is text here and no reference; did you mean 'setup'?"),
        ("<<none>>  # then", "<<none>> is text here and no reference"),
        ("<<none>>=", "<<none>>= is text here and no reference"),
        ("<<setup()>>", "<<setup()>> is text here and no reference; did you mean 'setup'?"),
        ("  <<setup>", ""),
        ("\\<<my chunk>>", ""),
        ("cat <<my >>chunk", ""),
        ("x <<setup> y", ""),
        ("<<EOF", ""),
        ("<div>", ""),
    ],
)
def test_a_line_that_looks_like_a_reference_is_warned_of(line, told, tmp_path):
    book = target("a.py", f"x\n{line}\n<<setup>>\n") + chunk("setup", "1\n")
    run = Project(tmp_path, book).run()
    told = told.replace(">>= is", ">> is")
    assert (run.status, run.err) == (0, told and f"book/ch.md:3: warning: {told}\n")


def test_a_chunk_that_nothing_uses_is_warned_of(tmp_path):
    run = Project(tmp_path, REAL + chunk("lonely", "x\n")).run()
    assert run.status == 0
    assert "book/ch.md:5: warning: chunk 'lonely' is used nowhere" in run.err


def test_ten_thousand_levels(tmp_path):
    deep = "".join(chunk(f"n{k}", f"<<n{k + 1}>>\n") for k in range(10_000))
    book = target("a.py", "<<n0>>\n") + deep + chunk("n10000", "x\n")
    assert Project(tmp_path, book).tangle("--bare") == {"a.py": "x\n"}


DOUBLING = target("a.py", "<<n0>>\n") + "".join(
    chunk(f"n{k}", f"<<n{k + 1}>>\n<<n{k + 1}>>\n") for k in range(40)
)
TOO_LARGE = {
    "text": DOUBLING + chunk("n40", "x\n"),
    "nothing at all": DOUBLING + chunk("n40", ""),
    "padding": target("a.py", "a" * 10_000 + "<<b>>\n")
    + chunk("b", "x\n" * 10_000 + "<<c>>\n")
    + chunk("c", "y\n"),
}


@pytest.mark.parametrize("book", TOO_LARGE.values(), ids=TOO_LARGE)
@pytest.mark.parametrize(
    "command",
    [[], ["--check"], ["--list"], ["where", "a.py:1"], ["where"], ["stitch"]],
    ids=" ".join,
)
def test_a_file_of_any_size_is_refused(book, command, tmp_path):
    project = Project(tmp_path, book)
    before = project.snapshot()
    run = project.run(*command, stdin="a.py:1\n")
    if command == ["--list"] and not run.status:
        return  # it needs no text
    assert run.status == 1
    assert "book/ch.md:1: target 'a.py' would be larger than 64 MiB" in run.err
    assert project.snapshot() == before


JOINED = {  # book, files
    "blocks of one name": (
        chunk("a", "1\n") + target("f", "<<a>>\n0\n") + chunk("a", "2\n") + chunk("a", ""),
        {"f": "1\n2\n0\n"},
    ),
    "a named target, by its name and by its path": (
        block("{#main file=f}", "1\n")
        + chunk("main", "2\n")
        + target("f", "3\n")
        + block("{#main file=./f}", "4\n"),
        {"f": "1\n2\n3\n4\n"},
    ),
    "a target that is named after its first block": (
        target("f", "1\n") + block("{#main file=f}", "2\n") + target("g", "<<main>>\n"),
        {"f": "1\n2\n", "g": "1\n2\n"},
    ),
}


@pytest.mark.parametrize(("book", "made"), JOINED.values(), ids=JOINED)
def test_blocks_that_are_put_together(book, made, tmp_path):
    assert Project(tmp_path, book).tangle() == made


def test_nameless_blocks_of_one_path_are_put_together_in_book_order(tmp_path):
    book = {
        "b.md": target("p/f", "4\n"),
        "a/z.md": target("p//f", "2\n") + target("./p/f", "3\n"),
        "a/b/c.md": target("q/../p/f", "1\n"),
        "a-1.md": target("p/f", "0\n"),
    }
    parts = ["a", "a-1.md", "b.md"]
    assert sorted(parts) == parts  # so the folder a comes before the file a-1.md
    assert Project(tmp_path, book).tangle() == {"p/f": "1\n2\n3\n0\n4\n"}


APPENDING = ["python {#x .append}", "{.python .append #x}", "{#x .append}", "{.append .python #x}"]


@pytest.mark.parametrize("opener", APPENDING)
def test_a_chunk_of_another_chapter_is_continued_by_append(opener, tmp_path):
    book = {
        "a.md": chunk("x", "1\n") + target("f", "<<x>>\n"),
        "b.md": block(opener, "2\n"),
        "c.md": block(opener, "3\n") + target("g", "<<x>>\n"),
    }
    assert Project(tmp_path, book).tangle() == {"f": "1\n2\n3\n", "g": "1\n2\n3\n"}


@pytest.mark.parametrize("opener", APPENDING)
def test_append_and_no_owner_is_an_error(opener, tmp_path):
    book = {"a.md": block(opener, "1\n") + target("f", "<<x>>\n")}
    (told,) = errors(Project(tmp_path, book))
    assert told == "book/a.md:1: .append, but no block defines 'x' to append to"


def test_every_chapter_that_takes_a_name_is_told(tmp_path):
    book = {f"{k}.md": chunk("x", "1\n") for k in "abc"} | {"0.md": target("f", "<<x>>\n")}
    told = errors(Project(tmp_path, book))
    assert [line[:12] for line in told] == ["book/b.md:1:", "book/c.md:1:"]
    assert all("'x', defined at book/a.md:1" in line for line in told)


def test_join_makes_one_chunk_of_a_name_in_many_chapters(tmp_path):
    book = {f"{k:03}.md": chunk("x", f"{k}\n") for k in range(120)}
    project = Project(tmp_path, book | {"f.md": target("f", "<<x>>\n")})
    assert project.tangle("--join") == {"f": "".join(f"{k}\n" for k in range(120))}
    assert project.run().status == 1


def test_join_reads_names_and_paths_as_entangled_does(tmp_path):
    book = (
        target("one.txt", "1\n")
        + block("text {#one.txt file=two.txt}", "2\n")
        + block("text {#all file=three.txt}", "3\n<<one.txt>>\n")
        + block("text {#all file=p/four.txt}", "4\n")
    )
    made = Project(tmp_path, book).tangle("--bare", "--join")
    ones, threes = "1\n2\n", "3\n1\n2\n4\n"
    assert made == {"one.txt": ones, "two.txt": ones, "three.txt": threes, "p/four.txt": threes}


def test_join_warns_of_what_is_undefined_in_no_file(tmp_path):
    sketch = chunk("sketch", "<<step>>\n<<other>>\n") + chunk("other", "<<far>>\n")
    project = Project(tmp_path, target("a.py", "x\n") + sketch)
    assert [told.partition(";")[0] for told in errors(project)] == [
        "book/ch.md:6: chunk 'step' is undefined",
        "book/ch.md:11: chunk 'far' is undefined",
    ]
    run = project.run("--join")
    assert run.status == 0
    assert "book/ch.md:6: warning: chunk 'step' is undefined" in run.err
    assert "book/ch.md:11: warning: chunk 'far' is undefined" in run.err
    project.put("book/ch.md", target("a.py", "<<sketch>>\n") + sketch)
    assert project.run("--join").status == 1


@pytest.mark.parametrize("book", ["Text.\n", chunk("a", "x\n"), block("python", "x\n")])
def test_a_book_that_makes_no_file_gets_a_hint(book, tmp_path):
    run = Project(tmp_path, book).run()
    assert run.status == 0
    assert "tangle: no block names a file; open one with ```python {file=PATH}" in run.err


def test_hidden_folders_are_no_part_of_the_book(tmp_path):
    book = {".git/a.md": target("f", "1\n"), "node_modules/b.md": target("f", "2\n")}
    book |= {"c.markdown": target("f", "3\n"), "d.txt": target("f", "4\n")}
    assert Project(tmp_path, book).tangle() == {"f": "3\n"}


TARGETS = {  # why -> paths
    "is outside the output folder": "../a x/../../a /tmp/tangle-test-a //a .. C:/a",
    "holds a ~": "~/a.py x/~ada/a.py",
    "holds a $HOME": "$HOME/a.py",
    "holds a %TEMP%": "%TEMP%/a.py",
    "is a folder": ". a/ a/.",
    "belongs to git": ".git/config x/.GIT/hooks/post-checkout ./.git",
    "belongs to": ".tangle.json .Tangle.JSON .tangle.json.new .tangle-tmp/0 book/ch.md.tangle-tmp",
    "is a source file": "book/ch.md x/../book/ch.md book/new.md book/sub/new.markdown",
    "holds a backslash": "a\\b ..\\a",
    "is empty": "",
    "holds a control character": "a\x07 a\u200bb a\u202eyp",
}
REFUSED = [(path, why) for why, paths in TARGETS.items() for path in paths.split(" ")]


@pytest.mark.parametrize(("path", "message"), REFUSED, ids=[ascii(path) for path, _ in REFUSED])
def test_targets_that_are_refused(path, message, tmp_path):
    opener = f'python {{#a file="{path.replace(chr(92), chr(92) * 2)}"}}'
    (told,) = errors(Project(tmp_path / "root", REAL + block(opener, "x\n")))
    assert told.startswith("book/ch.md:5: target ")
    assert message in told
    assert [entry.name for entry in tmp_path.iterdir()] == ["root"]


ODD = ".github/a.yml|..a|a..b|.gitignore|git/a|book/a.css|a b/c|größe/数|a~|a,b".split("|")


@pytest.mark.parametrize("path", ODD)
def test_targets_that_only_look_odd(path, tmp_path):
    project = Project(tmp_path, block(f'text {{#a file="{path}"}}', "x\n"))
    project.tangle("--bare")
    assert project.text(path) == "x\n"


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ("a.py", "A.py", "target 'A.py' differs from 'a.py' only in case"),
        ("a/b.py", "A/B.py", "differs from 'a/b.py' only in case"),
        ("straße", "STRASSE", "only in case"),
        ("\u00e9", "e\u0301", "only in case"),
        ("a", "a/b", "is wanted as a file here, and as a folder for 'a/b'"),
        ("a/b/c", "a", "is wanted as a file here, and as a folder for 'a/b/c'"),
        ("A", "a/b", "is wanted as a file here"),
        (
            "a.py #one",
            "./a.py #two",
            "target 'a.py' is claimed by #two here and by #one at book/ch.md:1",
        ),
        ("a.py #one", "b.py #one", "chunk 'one' already goes to 'a.py'; one chunk makes one file"),
        ("a mode=755", "a mode=644", "mode=644 for 'a', which has mode 755"),
    ],
)
def test_targets_that_cannot_both_be_there(first, second, message, tmp_path):
    (told,) = errors(Project(tmp_path, target(first, "x\n") + target(second, "y\n")))
    assert message in told
    assert told.startswith(f"book/ch.md:{1 if 'as a file' in told and '/' in second else 5}: ")


IN_THE_WAY = {  # path -> what to put there: a link's target, or a file's text
    "a link": ("p/a.py", "-> ../b.py", "is a link on disk"),
    "a link to a chapter": ("p/a.py", "-> ../book/ch.md", "is a link on disk"),
    "a link to nothing": ("p/a.py", "-> nowhere", "is a link on disk"),
    "a folder": ("p/a.py/mine.txt", "mine\n", "is a folder on disk"),
    "a pipe": ("p/a.py", "|", "is a device on disk"),
    "a file for a folder": ("p", "mine\n", "goes through 'p', which is a file"),
    "a link for a folder": ("p", "-> q", "goes through 'p', which is a link on disk"),
    "a link for a folder, outside": ("p", "-> ../outside", "goes through 'p', which is a link"),
    "a link for a folder, to nothing": ("p", "-> nowhere", "goes through 'p', which is a link"),
}


@pytest.mark.parametrize(("path", "what", "message"), IN_THE_WAY.values(), ids=IN_THE_WAY)
def test_what_is_in_a_targets_way(path, what, message, tmp_path):
    project = Project(tmp_path / "root", target("p/a.py", "x\n"))
    project.put("q/mine.txt", "mine\n")
    (tmp_path / "outside").mkdir()
    place = project.root / path
    place.parent.mkdir(exist_ok=True, parents=True)
    if what == "|":
        os.mkfifo(place)
    elif what.startswith("-> "):
        place.symlink_to(what[3:])
    else:
        place.write_text(what)
    (told,) = errors(project)
    assert told.startswith(f"book/ch.md:1: target 'p/a.py' {message}")
    assert errors(project, "--force") == [told]
    assert not any((tmp_path / "outside").iterdir())


@pytest.mark.parametrize(
    ("body", "line", "message"),
    [
        ("<<setup>>\n", 2, "chunk 'setup' is undefined; did you mean 'set-up'?"),
        ("x\n\n    <<zebra>>\n", 4, "chunk 'zebra' is undefined"),
        ("<<none>> \t\n", 2, "chunk 'none' is undefined"),
    ],
)
@pytest.mark.parametrize(
    ("before", "prefix"), [("", ""), ("1. Item.\n\n", "    "), ("> Text.\n>\n", "> ")]
)
def test_an_undefined_reference_is_told_at_its_line(before, prefix, body, line, message, tmp_path):
    rows = block("{#a file=a.py}", body).splitlines()
    text = before + "".join(f"{prefix}{row}\n" for row in rows) + "\n" + chunk("set-up", "x\n")
    (told,) = errors(Project(tmp_path, text))
    assert told == f"book/ch.md:{before.count(chr(10)) + line}: {message}"


MISREAD = {
    "file": "fil flie File FILE files filename file-name file_path path target tangle",
    "mode": "mdoe MODE",
    "patch": "pacth Patch",
}


@pytest.mark.parametrize(
    ("attribute", "meant"), [(wrong, ours) for ours in MISREAD for wrong in MISREAD[ours].split()]
)
def test_an_attribute_that_is_nearly_ours_is_an_error(attribute, meant, tmp_path):
    book = target("a.py", "x\n") + block(f"python {{{attribute}=b.py}}", "y\n")
    wrong = f"{attribute}= is no attribute of a block; write {meant}=b.py"
    project = Project(tmp_path, book)
    assert errors(project) == [f"book/ch.md:5: {wrong}"]
    run = project.run("--join")
    assert (run.status, run.err) == (0, f"book/ch.md:5: warning: {wrong}\n")


OTHERS = "title tile linenums model node f code fill filter data-file match".split()


@pytest.mark.parametrize("attribute", OTHERS)
def test_an_attribute_of_another_tool_is_left_alone(attribute, tmp_path):
    book = target("a.py", "x\n") + block(f"python {{{attribute}=b.py}}", "y\n")
    run = Project(tmp_path, book).run()
    assert (run.status, run.err) == (0, "")


def test_beside_file_a_path_is_another_tools(tmp_path):
    book = block("python {#a file=a.py path=b.py filename=c.py .run hl_lines=1,3-4}", "x\n")
    assert Project(tmp_path, book).tangle("--bare") == {"a.py": "x\n"}


CIRCLES = {
    "itself": ("<<a>>\n", ["a (book/ch.md:6) -> a"]),
    "itself, inside a line": ("f(<<a>>)\n", ["a (book/ch.md:6) -> a"]),
    "two": (
        "<<b>>\n" + "```\n\n```python {#b}\n<<a>>\n",
        ["a (book/ch.md:6) -> b (book/ch.md:10) -> a"],
    ),
    "two circles": (
        "<<b>>\n<<c>>\n```\n\n```python {#b}\n<<a>>\n```\n\n```python {#c}\n\n x <<c>>\n",
        ["a (book/ch.md:6) -> b (book/ch.md:11) -> a", "c (book/ch.md:16) -> c"],
    ),
}


@pytest.mark.parametrize(("body", "circles"), CIRCLES.values(), ids=CIRCLES)
@pytest.mark.parametrize("used", [True, False], ids=["used", "unused"])
def test_a_cycle_is_told_with_its_whole_path(body, circles, used, tmp_path):
    book = target("f", "<<a>>\n" if used else "x\n") + chunk("a", body)
    told = errors(Project(tmp_path, book))
    assert [line.partition("cycle: ")[2] for line in told] == circles


def test_a_cycle_of_ten_thousand_chunks(tmp_path):
    ring = "".join(chunk(f"n{k}", f"<<n{(k + 1) % 10_000}>>\n") for k in range(10_000))
    (told,) = errors(Project(tmp_path, target("f", "<<n0>>\n") + ring))
    assert told.startswith("book/ch.md:40002: cycle: n0 (book/ch.md:6) -> n1 (book/ch.md:10) -> ")


def test_all_errors_of_the_whole_book_are_told_in_order(tmp_path):
    book = {
        "a.md": target("x", "<<no>>\n") + block("{#b file=../b}", "1\n") + "<!--\n",
        "b.md": target("X", "1\n") + "``` {#c}\n",
        "c.md": chunk("d", "<<d>>\n") + block("diff {patch=nothing}", "-x\n"),
    }
    places = [line.split(": ")[0] for line in errors(Project(tmp_path, book))]
    assert places == [
        "book/a.md:2",
        "book/a.md:5",
        "book/a.md:9",
        "book/b.md:1",
        "book/b.md:5",
        "book/c.md:2",
        "book/c.md:5",
    ]
