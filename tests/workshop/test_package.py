# Tangled from book/workshop/package.md
"""The installed package: what it imports, what it exports, what the archives hold."""

import ast
import importlib
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import tinyllm

ROOT = Path(__file__).resolve().parents[2]


def run(code: str, *options: str, folder: Path = ROOT) -> str:
    """What a fresh interpreter prints for the code; no warning is let through."""
    done = subprocess.run(
        [sys.executable, "-W", "error", *options, "-c", code],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_brings_no_numpy():
    assert run("import sys, tinyllm; dir(tinyllm); print('numpy' in sys.modules)") == "False\n"


@pytest.mark.parametrize("name", sorted(tinyllm._HOME))
def test_names_are_those_of_their_modules(name):
    home = importlib.import_module(tinyllm._HOME[name])
    assert getattr(tinyllm, name) is getattr(home, name)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'MultiheadAttention'"):
        tinyllm.MultiheadAttention  # noqa: B018, the look-up is what is tested


def test_names_for_checkers_are_the_names_at_run_time():
    tree = ast.parse(Path(tinyllm.__file__).read_text(encoding="utf-8"))
    promised = {
        alias.name: node.module
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    }
    assert promised == tinyllm._HOME | dict.fromkeys(tinyllm._MODULES, "tinyllm")


def test_modules_are_there_without_importing_them():
    for name in tinyllm._MODULES:
        code = f"import sys, tinyllm; x = tinyllm.{name}; print(x is sys.modules['tinyllm.{name}'])"
        assert run(code) == "True\n"
        assert name in dir(tinyllm)


def test_a_fresh_process_draws_from_seed_zero():
    code = "import tinyllm; print(tinyllm.Linear(4, 3).weight.data.tolist())"
    first = tinyllm.Linear(4, 3, rng=tinyllm.PCG32(0)).weight.data.tolist()
    assert run(code) == f"{first}\n"
    tinyllm.manual_seed(0)
    assert (
        tinyllm.Linear(4, 3).weight.data.tolist()
        == first
        != tinyllm.Linear(4, 3).weight.data.tolist()
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    from hatchling.builders.wheel import WheelBuilder

    folder = tmp_path_factory.mktemp("wheel")
    return Path(next(WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])))


def test_wheel_holds_the_package_and_the_course_tests(wheel):
    assert wheel.name == f"tinyllm_book-{tinyllm.__version__}-py3-none-any.whl"
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    there = {
        path.relative_to(ROOT).as_posix()
        for package in ("tinyllm", "ol")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    tests = [path for part in "LM" for path in (ROOT / "tests").glob(f"{part}*/*.py")]
    courses = {f"ol/course/{path.relative_to(ROOT).as_posix()}" for path in tests}
    assert held == there | courses
    assert "tinyllm/py.typed" in held


SHIPPED = {"numpy", "ol", "tinyllm"}
EXTRAS = {
    "distributed",
    "hypothesis",
    "psutil",
    "pytest",
    "safetensors",
    "threadpoolctl",
    "tokenizers",
    "torch",
}


def test_every_import_in_the_wheel_is_of_what_is_shipped(wheel):
    archive = zipfile.ZipFile(wheel)
    names = [name for name in archive.namelist() if name.endswith((".py", ".pyi"))]
    assert any(name.startswith("ol/course/tests/") for name in names)
    found = set()
    for name in names:
        for node in ast.walk(ast.parse(archive.read(name))):
            if isinstance(node, ast.Import):
                found |= {(alias.name.partition(".")[0], name) for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add(((node.module or "").partition(".")[0], name))
    allowed = SHIPPED | EXTRAS | sys.stdlib_module_names
    assert not {(module, name) for module, name in found if module not in allowed}
    assert not {name for module, name in found if module == "ol" and not name.startswith("ol/")}


def test_wheel_runs_with_numpy_alone(wheel, tmp_path):
    import numpy as np

    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    (tmp_path / "site" / "numpy").symlink_to(Path(np.__file__).parent)
    for libraries in Path(np.__file__).parents[1].glob("numpy.libs"):
        (tmp_path / "site" / "numpy.libs").symlink_to(libraries)
    code = """if True:
        import sys
        sys.path.insert(0, "site")
        import numpy as np
        import tinyllm
        x = tinyllm.Tensor(np.ones((1, 3, 8), np.float32), requires_grad=True)
        y = tinyllm.MultiHeadAttention(8, 2)(x, x)
        y.backward(np.ones_like(y.data))
        print(tinyllm.__file__, x.grad.shape)
    """
    printed = run(code, "-I", "-S", folder=tmp_path)
    assert printed.split(maxsplit=1)[1].strip() == "(1, 3, 8)"
    assert str(tmp_path / "site") in printed or printed.startswith("site")


def test_run_time_needs_numpy_alone(wheel):
    metadata = next(n for n in zipfile.ZipFile(wheel).namelist() if n.endswith("/METADATA"))
    lines = zipfile.ZipFile(wheel).read(metadata).decode().splitlines()
    needs = [line for line in lines if line.startswith("Requires-Dist:") and "extra ==" not in line]
    assert [line.split()[1][:5] for line in needs] == ["numpy"]


def test_source_archive_holds_book_and_tools(tmp_path):
    from hatchling.builders.sdist import SdistBuilder

    path = next(SdistBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"]))
    with tarfile.open(path) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    for wanted in (
        "tangle.py",
        "book/index.md",
        "weave/render/extension.py",
        "mkdocs.yml",
        "tinyllm/py.typed",
    ):
        assert wanted in held


def test_constraints_pin_what_the_extras_name():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pinned = {
        line.partition("==")[0].lower()
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    }
    for extra in [project["dependencies"], *project["optional-dependencies"].values()]:
        for need in extra:
            assert need.partition(">=")[0].lower() in pinned
