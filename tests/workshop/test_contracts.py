# Tangled from book/workshop/package.md
"""The contracts say what the code does: mypy's stubtest compares them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONTRACTS = ROOT / "ol" / "course" / "contracts"


def test_contracts_agree_with_the_code(tmp_path):
    shutil.copytree(CONTRACTS / "tinyllm", tmp_path / "stubs" / "tinyllm")
    stubs = sorted((tmp_path / "stubs").rglob("*.pyi"))
    assert stubs
    folders = [path for path in (tmp_path / "stubs").rglob("*") if path.is_dir()]
    for folder in folders:
        (folder / "__init__.pyi").touch()
    names = [".".join(stub.relative_to(tmp_path / "stubs").with_suffix("").parts) for stub in stubs]
    done = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", *names],
        cwd=tmp_path,
        env={
            **os.environ,
            "MYPYPATH": str(tmp_path / "stubs"),
            "PYTHONPATH": str(ROOT),
            "MYPY_CACHE_DIR": str(tmp_path / "cache"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
