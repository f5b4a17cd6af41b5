"""The package `muster` has types, and programs that use it are checked with them."""

import os
import re
import subprocess
import sys

from tests.python import package

# The stubs that protoc makes do not fit mypy's rules everywhere.
CONFIGURATION = """
[mypy]
disallow_untyped_defs = True
check_untyped_defs = True
ignore_missing_imports = True
follow_imports = silent
[mypy-muster._proto.*]
ignore_errors = True
[mypy-torch.*]
follow_imports = skip
"""


def check(folder, *files):
    (folder / "mypy.ini").write_text(CONFIGURATION)
    command = [sys.executable, "-m", "mypy", f"--cache-dir={folder}/cache"]
    environment = os.environ | {"MYPYPATH": str(package.folder())}
    done = subprocess.run(
        [*command, *map(str, files)], capture_output=True, text=True, cwd=folder, env=environment
    )
    return done.stdout + done.stderr


def test_the_package_fits_its_types_and_a_wrong_use_of_it_is_found(tmp_path):
    modules = package.folder() / "muster"
    folders = (modules, modules / "data", modules / "export", modules / "gguf")
    said = check(tmp_path, *(path for one in folders for path in sorted(one.glob("*.py"))))
    assert said.startswith("Success"), said

    assert (package.folder() / "muster/py.typed").exists()
    (tmp_path / "user.py").write_text(
        "import muster\n"
        "job = muster.Client().submit('job.yaml', id='one')\n"
        "operation = job.set_lr(1e-3, at_step=5)\n"
        "job.set_lr('fast')\n"
        "job.freze('*')\n"
        "step: str = job.get().step\n"
        "job.wait(timeout=5, check='yes')\n"
    )
    said = check(tmp_path, tmp_path / "user.py")
    assert re.findall(r"user.py:(\d+): error", said) == ["4", "5", "6", "7"], said
