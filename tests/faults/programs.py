"""Lets the tests' Python run outside of Bazel, with the programs of any folder, for runs by
hand."""

import atexit
import os
import pathlib
import shutil
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def use(plugin=None):
    """Must be called before the first import of tests.process. `plugin`: the built paced.so; by
    default that of bazel-bin."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="muster-faults-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name in ("proto", "tests", "worker"):
        (folder / name).symlink_to(ROOT / name)
    os.environ.setdefault("TEST_SRCDIR", str(folder.parent))
    os.environ.setdefault("TEST_WORKSPACE", folder.name)
    return pathlib.Path(plugin or ROOT / "bazel-bin/tests/process/paced.so").resolve()


def check(folder):
    folder = pathlib.Path(folder).resolve()
    for name in ("musterd", "muster-agent", "muster-worker", "muster"):
        if not (folder / name).exists():
            raise SystemExit(f"no program {name} in {folder}")
    return folder
