"""The package `muster` has types, and programs that use it are checked with them."""

import os
import subprocess
import sys

from tests.python import package

FLAGS = [
    "--disallow-untyped-defs",
    "--check-untyped-defs",
    "--follow-imports=silent",
    "--ignore-missing-imports",
]


def check(folder, *files):
    command = [sys.executable, "-m", "mypy", *FLAGS, f"--cache-dir={folder}/cache"]
    return subprocess.run(
        [*command, *map(str, files)],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | {"MYPYPATH": str(package.folder())},
    ).stdout


def test_the_package_fits_its_types(tmp_path):
    said = check(tmp_path, *sorted((package.folder() / "muster").glob("*.py")))
    assert said.startswith("Success"), said


def test_a_wrong_use_is_found(tmp_path):
    assert (package.folder() / "muster/py.typed").exists()
    (tmp_path / "user.py").write_text(
        "import muster\n"
        "job = muster.Client().submit('job.yaml', id='one')\n"
        "operation = job.set_lr(1e-3, at_step=5)\n"
        "job.set_lr('fast')\n"
        "job.freze('*')\n"
        "step: str = job.get().step\n"
    )
    said = check(tmp_path, tmp_path / "user.py")
    assert [line.split(":")[1] for line in said.splitlines() if "error" in line] == ["4", "5", "6"]
