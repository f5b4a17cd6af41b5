"""The package `muster` as it is installed: its modules, and the messages made from the protos."""

import pathlib
import shutil
import sys
import tempfile

from tests.bazel import runfile

_folder = tempfile.TemporaryDirectory(prefix="muster-package-")


def folder():
    """What PYTHONPATH needs for the package."""
    return pathlib.Path(_folder.name)


def _install():
    source = runfile("client/python/generate_stubs.py").parent
    root = runfile("proto/muster/v1/job_service.proto").parents[3]
    package = folder() / "muster"
    shutil.copytree(source / "muster", package)
    sys.path.insert(0, str(source))
    import generate_stubs

    generate_stubs.generate(root, package)
    sys.path[0] = _folder.name


_install()
