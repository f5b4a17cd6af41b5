"""The project's own source files in the checkout from which Bazel builds."""

import functools
import os
import pathlib

# Folders of the checkout that hold no source files of the project.
NOT_OURS = {".git", "__pycache__", "out"}


@functools.lru_cache
def workspace():
    """The checkout. Under Bazel this file is a link to that in the checkout, because tests run
    without a sandbox."""
    return pathlib.Path(__file__).resolve().parents[2]


@functools.lru_cache
def project_files():
    """The path of every file, from the checkout's root, sorted."""
    found = []
    for folder, folders, files in os.walk(workspace()):
        folders[:] = [f for f in folders if f not in NOT_OURS and not f.startswith("bazel-")]
        for file in files:
            found.append(str(pathlib.Path(folder, file).relative_to(workspace())))
    return sorted(found)
