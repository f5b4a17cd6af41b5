"""Files that only exist when they are complete."""

from __future__ import annotations

import os
import pathlib
import stat
import tempfile
from collections.abc import Iterable
from typing import IO


class Staged:
    """A file under another name, which is removed unless it is published."""

    def __init__(self, path: pathlib.Path):
        self.path = path
        self.file: IO[bytes]

    def __enter__(self) -> Staged:
        handle, self._name = tempfile.mkstemp(
            dir=self.path.parent, prefix=f".{self.path.name}.", suffix=".tmp"
        )
        self.file = os.fdopen(handle, "w+b")
        return self

    def sync(self) -> None:
        """Writes the contents to the disk."""
        self.file.flush()
        os.fsync(self.file.fileno())

    def publish(self) -> None:
        """Gives the file its name, with the mode of a new file."""
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(self._name, 0o666 & ~mask)
        os.replace(self._name, self.path)

    def __exit__(self, *_: object) -> None:
        self.file.close()
        pathlib.Path(self._name).unlink(missing_ok=True)


def check_targets(
    written: Iterable[pathlib.Path], inputs: Iterable[str | os.PathLike[str]], overwrite: bool
) -> None:
    """Checks that these files may be written. ValueError: two of them are one file, or one is an
    input. FileExistsError: one exists, or is no regular file."""
    places: dict[str, pathlib.Path] = {}
    for path in written:
        other = places.setdefault(os.path.realpath(path), path)
        if other is not path:
            raise ValueError(f"{other} and {path} would be the same file; give another name")
    existing = [path for path in places.values() if os.path.lexists(path)]
    for path in existing:
        for source in inputs:
            if os.path.exists(path) and os.path.samefile(path, source):
                raise ValueError(f"{path} is both input and output")
    for path in existing:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise FileExistsError(
                f"{path} is no regular file, and is not replaced; give another name"
            )
        if not overwrite:
            raise FileExistsError(f"{path} exists; overwrite=True replaces it")
