# Tangled from book/2-transformer/MS-L5-tests.md
"""A short run of MS-L5 for the site's figures and for tests: trained once, kept until the code changes."""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np

import tinyllm
from tinyllm.checkpoint import write_atomically
from tinyllm.models import addition
from tinyllm.models.addition import Attention, Settings, Training
from tinyllm.num.cores import cores

SETTINGS = Settings(steps=1000)
EVERY = 25  # steps between evaluations


def _folder() -> Path:
    """build/addition-HASH; the hash is that of the code of every module that such a run imports."""
    root = Path(tinyllm.__file__).parent.parent
    code = hashlib.sha256(repr(SETTINGS).encode())
    for path in _imported(root, "tinyllm.models.addition"):
        code.update(_code(path.read_text("utf-8")).encode())
    return root / "build" / f"addition-{code.hexdigest()[:16]}"


def _code(text: str) -> str:
    """What a module does: its syntax tree, in which there are no comments, without docstrings."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            node.body = node.body[ast.get_docstring(node) is not None :]
    return ast.dump(tree)


def _imported(root: Path, *names: str) -> list[Path]:
    """The files of these modules of the package, and of those that they import, directly or not."""
    found: dict[str, Path] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        path = root / name.replace(".", "/")
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if name in found or not path.exists():
            continue
        found[name] = path
        waiting += re.findall(
            r"^\s*(?:from|import) (tinyllm\.[\w.]+)", path.read_text("utf-8"), re.M
        )
    return [found[name] for name in sorted(found)]


@cache
def checkpoint() -> Path:
    """The checkpoint of the run; the first who asks trains it."""
    folder = _folder()
    path = folder / "checkpoint.safetensors"
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder / "lock"):
        if not path.exists():
            _train(folder, path)
    return path


def _train(folder: Path, path: Path) -> None:
    run = Training(SETTINGS, processes=cores())
    asked = addition.pairs()[1][:1000]
    losses, shares = [], []
    while run.step < SETTINGS.steps:
        losses.append(run.advance().loss)
        if run.step % EVERY == 0:
            shares.append(addition.exact_match(run.model, asked))
    text = json.dumps({"losses": losses, "shares": shares})
    write_atomically(folder / "curve.json", [text.encode()])
    run.save(path)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process at a time."""
    with open(path, "w") as file:
        try:
            import fcntl
        except ImportError:
            yield
            return
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def curve() -> tuple[list[int], list[float], list[float]]:
    """Steps; the loss there, a mean of ten; the share of held-out sums that are right."""
    data = json.loads((checkpoint().parent / "curve.json").read_text())
    steps = list(range(EVERY, SETTINGS.steps + 1, EVERY))
    losses = [float(np.mean(data["losses"][step - 10 : step])) for step in steps]
    return steps, losses, data["shares"]


@cache
def mean_attention(trained: bool = True) -> Attention:
    """Weights, averaged over 1,000 held-out sums: [layers, H, Tq, Tk]; of the model before its first step if not trained."""
    model = addition.load_model(checkpoint()) if trained else Training(SETTINGS).model
    a, b = addition.pairs()[1][:1000].T
    seen = model.attend(addition.source_tokens(a, b), addition.target_tokens(a, b)[:, :-1])
    return Attention(*(weights.mean(axis=1) for weights in seen))
