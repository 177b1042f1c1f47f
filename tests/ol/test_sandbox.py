# Tangled from book/workshop/ol-sandbox.md
"""The sandbox: what tests may not reach, may not read, and cannot forge."""

import base64
import importlib.util
import json
import marshal
import os
import socket
import sys
import types

import pytest

from ol import classroom, cli, mutants
from ol import grade as grades
from ol.bubblewrap import Limits, has_namespaces
from ol.jobs import Job, judge
from ol.registry import chapters, find
from ol.report import full
from ol.runner import Runner
from ol.sandbox import grade_files
from ol.submission import read
from ol.variants import sealed
from ol.workspace import Workspace
from tests.ol.texts import EARNED, HEAD, MERGE, states

L53 = find("L5.3")


@pytest.fixture(autouse=True)
def two(monkeypatch):
    """Grades are of the mutants s01 and s02, in bubblewrap."""
    assert has_namespaces(), "these tests need bubblewrap: apt install bubblewrap"
    some = [one for one in mutants.seeded_mutants(L53) if one.name in EARNED]
    monkeypatch.setattr(mutants, "graded_mutants", lambda _: some)


def answer(text, files=(), **limits):
    """What comes back for a submission."""
    named = {"test_mine.py": HEAD + text, **dict(files)}
    coded = {name: base64.b64encode(text.encode()).decode() for name, text in named.items()}
    limits = {"seconds": 60, "disk": 16, **limits}
    return grade_files({"chapter": "L5.3", "files": coded, "module": None, "limits": limits})


def attack(text, files=()):
    """The grade of a submission."""
    result = grades.Grade.of(answer(text, files)["grade"])
    assert result.sandbox == "bubblewrap"
    return result


WALLS = """
def cannot(action, *arguments):
    try: action(*arguments)
    except OSError: return True

def test_files():
    for path in OUTSIDE + [sys.prefix + "/../book", "/proc/self", "/sys", "/home", "/var", "/run"]:
        assert not os.path.exists(path), path
    assert sorted(os.listdir("/dev")) == ["null", "random", "shm", "urandom", "zero"]

def test_writing():
    package = os.path.dirname(os.environ["PYTHONPATH"])
    for folder in ("/", "/dev", "/etc", "/tmp", "/usr", package, sys.prefix, *sys.path[:3]):
        assert cannot(open, folder + "/x", "w"), folder

def test_the_course():
    for module in ("ol.mutants", "ol.grade", "tinyllm.xfmr.mha"):
        code = "import " + module
        assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode
    for folder in [*sys.path, os.getcwd()]:
        for path, _, files in os.walk(folder + "/tinyllm"):
            assert not [name for name in files if name.startswith("mha.")], path

def test_environment():
    assert "SECRET" not in os.environ and os.environ["HOME"] == "/scratch"
    assert len(os.environ) < 16, sorted(os.environ)

def test_sockets():
    for address in SOCKETS:
        family = socket.AF_INET if isinstance(address, list) else socket.AF_UNIX
        address = tuple(address) if isinstance(address, list) else address
        with socket.socket(family) as one:
            assert cannot(one.connect, address), address

def test_rights():
    assert os.getuid() not in (0, USER) or USER
    assert os.getpid() < 9 and os.getppid() < 9
    assert cannot(os.setuid, 0) and cannot(os.chroot, "/usr") and cannot(os.mknod, "x", 0o20600, 259)
    with contextlib.suppress(OSError):
        os.kill(-1, signal.SIGCONT)  # all that it can see
    with contextlib.suppress(OSError):
        os.kill(os.getppid(), signal.SIGKILL)

def test_notes_to_later_runs():
    for path in ("/scratch/a", "/dev/shm/b", "../c", __name__ + ".note"):
        assert not os.path.exists(path), path
        with contextlib.suppress(OSError), open(path, "w"): pass
    if os.fork() == 0:
        os.setsid()
        time.sleep(1000)  # does not outlive the run
"""


def test_walls(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET", "of the teacher")
    (tmp_path / "other.py").write_text("work of another student")
    with (
        socket.create_server(("127.0.0.1", 0)) as internet,
        socket.socket(socket.AF_UNIX) as named,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        monkeypatch.chdir(tmp_path)
        named.bind("unix")
        abstract.bind("\0ol-" + str(os.getpid()))
        for one in (named, abstract):
            one.listen()
        outside = [str(tmp_path), str(tmp_path / "other.py"), __file__, str(L53.reference)]
        outside += [str(mutants.COURSE), os.path.expanduser("~/.ssh"), os.getcwd()]
        sockets = [list(internet.getsockname()), str(tmp_path / "unix")]
        sockets.append(abstract.getsockname().decode())
        facts = f"OUTSIDE, SOCKETS, USER = {outside}, {sockets}, {os.getuid()}\n"
        result = attack(facts + WALLS + MERGE)
    assert states(result) == EARNED
    assert "sandbox: bubblewrap" in full(result)


def test_runs_at_the_same_time_do_not_meet():
    text = """
import os, socket, time
ME = os.getpid()
PLACES = [socket.socket(socket.AF_UNIX) for _ in range(2)]

def test_a():
    PLACES[0].bind("\\0ol-meeting")  # is taken if another one is here
    PLACES[1].bind("/dev/shm/meeting")
    time.sleep(0.5)
    assert os.getpid() == ME < 9
"""
    with Runner(workers=2, limits=Limits()) as runner:
        path = runner.folder / "tests" / "test_a.py"
        path.parent.mkdir()
        path.write_text(text)
        verdicts = list(runner.run([Job(name, (str(path),)) for name in "ab"]))
    assert [one.state for one in verdicts] == ["missed"] * 2, verdicts


FORGE = """
ROWS = [{"failed": "l5/test_mine.py::test_merge", "message": ""}, {"end": 1}, {"rows": [], "findings": []}]
LINES = "".join(json.dumps(row) + "\\\\n" for row in ROWS).encode()

def write_everywhere():
    for name in [*map(str, range(64)), *(
        f"/proc/{p}/fd/{n}" for p in (1, 2, os.getppid()) for n in range(32)
    )]:
        with contextlib.suppress(OSError):
            n = int(name) if name.isdigit() else os.open(name, os.O_WRONLY)
            os.write(n, LINES)

def end_everybody():
    for pid in (1, os.getppid()):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGSTOP, signal.SIGKILL):
            with contextlib.suppress(OSError):
                os.kill(pid, number)

write_everywhere()
end_everybody()
"""


def test_forging_changes_nothing():
    assert states(attack(FORGE + MERGE)) == EARNED


TOKEN = """
def report():  # what the judge reads, found in the frames of this process
    frame = getattr(sys, "_get" + "frame")()
    while frame := getattr(frame, "f_" + "back"):
        send = getattr(frame, "f_" + "locals").get("send")
        if send: return send

def test_merge():
    report()(ROW)
"""


@pytest.mark.parametrize(
    "row",
    [
        {"failed": "l5/test_mine.py::test_merge", "message": ""},
        {"failed": "test_not_there", "message": ""},
        {"failed": ["x"], "message": None},
        {"end": [[]]},
        {"unbuildable": {"x": 1}},
        [1],
        3,
    ],
)
def test_a_run_can_speak_for_itself_only(row):
    """It says the same of a right module, for it does not know which one it has."""
    result = attack(TOKEN.replace("ROW", repr(row)))
    assert result.score is None
    assert result.findings


def test_the_same_answer_to_everything_is_noticed():
    assert "nothing is written" in attack("\ndef test_a(): pass\n").findings[0].says
    by_chance = "\ndef test_a(): assert int.from_bytes(os.urandom(1), 'big') < 26\n"
    assert attack(by_chance).score is None


def test_reports_are_not_believed():
    job = Job("a", ("x",))
    for line in ("t {", "t []", "t 1", 't {"failed": 1}', 't {"failed": []}', "t " + "[" * 10**5):
        assert judge(job, "t ", f"{line}\n".encode(), 0, 0.0).state == "crashed"
    rows = [{"failed": "a\x1b[2J", "message": "\x1b]0;x\x07"}, {"end": 1}]
    text = "".join(f"t {json.dumps(row)}\n" for row in rows)
    verdict = judge(job, "t ", text.encode(), 0, 0.0)
    assert verdict.failed == ("a?[2J",)
    assert verdict.messages == {"a?[2J": "?]0;x?"}


CODE = "getattr(MultiHeadAttention.merge_heads, '__co' + 'de__')"
READERS = {  # what holds of the book's own text, whose code is {0}
    "source": "'swapaxes' not in getattr(inspect, 'get' + 'source')(MultiHeadAttention.merge_heads)",
    "bytecode": f"getattr({CODE}, 'co_' + 'code') == {{0.co_code}}",
    "names": f"getattr({CODE}, 'co_' + 'varnames') == {{0.co_varnames}}",
    "line": f"getattr({CODE}, 'co_' + 'firstlineno') == {{0.co_firstlineno}}",
    "docstring": "MultiHeadAttention.merge_heads.__doc__",
}
SEEN = "[vars(one) for one in {} if hasattr(one, '__dict__')]"
MODULE = "sys.modules['tinyllm.xfmr.mha']"
FILE = f"getattr({MODULE}, '__fi' + 'le__')"
SEARCHERS = {
    "plugins": SEEN.format("getattr(request.config, 'plugin' + 'manager').get_plugins()"),
    "memory": "[x for x in sys.modules['g' + 'c'].get_objects() if isinstance(x, str | dict)]",
    "finders": SEEN.format("getattr(sys, 'meta_' + 'path')"),
    "loader": f"getattr(getattr({MODULE}, '__load' + 'er__'), 'get_' + 'source')('tinyllm.xfmr.mha')",
    "disk": f"[open(path).read() for path in [{FILE}] if os.path.exists(path)]",
}


@pytest.mark.parametrize("how", READERS)
def test_looking_at_code_gets_no_grade(how):
    spec = importlib.util.spec_from_file_location("right", L53.reference)
    spec.loader.exec_module(right := importlib.util.module_from_spec(spec))
    known = READERS[how].format(right.MultiHeadAttention.merge_heads.__code__)
    result = attack(f"\ndef test_code(): assert {known}\n{MERGE}")
    assert result.score is None
    said = "could not get source code" if how == "source" else "built otherwise"
    assert any(said in one.says for one in result.findings), result.findings


@pytest.mark.parametrize("how", SEARCHERS)
def test_no_text_of_the_module_is_near(how):
    text = f"\"\".join(['def ', 'merge_', 'heads']) not in repr({SEARCHERS[how]})"
    assert states(attack(f"{MERGE}\ndef test_text(request): assert {text}\n")) == EARNED


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"conftest.py": "def pytest_runtest_makereport(): pass\n"}, "is no file of tests"),
        ({"answers.txt": "import ol"}, "is no file of tests"),
        ({"test_b.py": "pytest_plugins = ['x']\n"}, "uses pytest_plugins"),
        ({"test_b.py": "import timeit\ntimeit.timeit('import ol')\n"}, "imports timeit"),
        ({"test_b.py": "import builtins\nbuiltins.exec('')\n"}, "imports builtins"),
        ({"test_b.py": "__builtins__['exec']('')\n"}, "uses __builtins__"),
        ({"test_b.py": "import pickle\n"}, "imports pickle"),
        ({".test_b.py": "import ol\n"}, "imports ol"),
    ],
)
def test_what_is_no_test_is_refused(files, says):
    result = attack(MERGE, files)
    assert any(says in one.says for one in result.findings), result.findings


@pytest.mark.parametrize("chapter", chapters().values(), ids=str)
def test_other_words_say_the_same(chapter):
    """No two are alike, and what a contract promises is there under its name."""
    text = chapter.reference.read_text(encoding="utf-8")
    coded = {sealed(text, chapter.path) for _ in range(3)}
    assert len(coded) == 3
    module = types.ModuleType(chapter.module)
    sys.modules["other words"] = module  # where dataclasses look
    module.__name__ = "other words"
    module.__package__ = chapter.module.rpartition(".")[0]
    exec(marshal.loads(base64.b64decode(coded.pop())), module.__dict__)
    right = importlib.import_module(chapter.module)
    public = {name for name in vars(right) if not name.startswith("_")}
    assert public <= set(vars(module))
    del sys.modules["other words"]


def test_a_grade_that_was_edited_is_found_out(tmp_path, capsys):
    workspace = Workspace(tmp_path)
    folder = workspace.tests(L53)
    folder.mkdir(parents=True)
    (folder / "test_mine.py").write_text(HEAD + MERGE)
    assert grades.grade(workspace, L53).score == 0.5
    for row in workspace.state["graded"]["L5.3"]["grade"]["rows"]:
        row["state"] = "caught"
    workspace.save()
    assert grades.grade(workspace, L53).cached  # a note for its owner
    assert grades.grade(workspace, L53, fresh=True).score == 0.5
    assert cli.parser().parse_args(["check", "L5.3", "--verify"]).verify
    workflow = classroom.workflow_for("L5.3").data["workflow"]
    assert "ol grade . --one" in workflow  # which takes no grade that was kept


def test_links_are_not_followed(tmp_path):
    real = tmp_path / "real/python/tests/l5-3-mha"
    real.mkdir(parents=True)
    (real / "test_a.py").write_text(HEAD + MERGE)
    (tmp_path / "whole").symlink_to(tmp_path / "real")
    (tmp_path / "python").mkdir()
    (tmp_path / "python/python").symlink_to(tmp_path / "real/python")
    (tmp_path / "deep/python/tests/l5-3-mha").mkdir(parents=True)
    (tmp_path / "deep/python/tests/l5-3-mha/more").symlink_to(real)
    assert list(read([tmp_path / "real"], L53)["files"]) == ["test_a.py"]
    for name in ("whole", "python", "deep"):
        with pytest.raises(ValueError, match=r"link|plain file"):
            read([tmp_path / name], L53)
    assert grades.imports.check(tmp_path / "deep/python/tests/l5-3-mha")[0].says == "is no file"


def test_without_bubblewrap_it_is_said(monkeypatch):
    monkeypatch.setattr("ol.bubblewrap.has_namespaces", lambda: False)
    result = grades.Grade.of(answer(MERGE)["grade"])
    assert states(result) == EARNED
    assert "sandbox: limits only" in full(result)
    with Runner(limits=Limits()) as runner:
        assert runner.sandbox == "limits only"


def test_every_kind_of_start_is_in_the_sandbox():
    """A submission that ends nothing and hangs is stopped, and so is one that fills memory."""
    hang = "\ndef test_a():\n    os.fork(); time.sleep(1000)\n"
    assert answer(hang, seconds=3) == {"stopped": "more than 3 s"}
    much = "\ndef test_a():\n    kept = [np.ones(10**6) for _ in range(10**4)]\n"
    assert "memory" in str(answer(much, memory=512)).lower()
