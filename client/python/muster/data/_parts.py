"""A file of documents while it is made: its parts in a folder beside it, with a journal.

A program that was ended can be run again, and goes on where the journal says, if its inputs and
settings are the same."""

from __future__ import annotations

import fcntl
import json
import os
import pathlib
import shutil
import struct
from collections.abc import Sequence
from typing import IO, Any

from muster.data._staged import Staged

_PARTS = ("bounds", "tokens", "trained")
_DTYPES = {"bounds": "I64", "trained": "U8"}


class Parts:
    """The parts of one file: `bounds` (I64), `tokens` and `trained` (U8)."""

    def __init__(self, folder: pathlib.Path, sizes: dict[str, int] | None):
        """Opens the parts in a folder, as long as `sizes` says, or empty."""
        self._files: dict[str, IO[bytes]] = {}
        for name in _PARTS:
            path = folder / name
            self._files[name] = path.open("r+b" if sizes else "w+b")
            self._files[name].truncate((sizes or {}).get(name, 0))
            self._files[name].seek(0, os.SEEK_END)
        self._end = 0
        if sizes:
            self._files["bounds"].seek(-8, os.SEEK_END)
            (self._end,) = struct.unpack("<q", self._files["bounds"].read(8))
        else:
            self._files["bounds"].write(struct.pack("<q", 0))

    @property
    def documents(self) -> int:
        return self._files["bounds"].tell() // 8 - 1

    def append(self, tokens: bytes, trained: bytes, lengths: Sequence[int]) -> None:
        self._files["tokens"].write(tokens)
        self._files["trained"].write(trained)
        for length in lengths:
            self._end += length
            self._files["bounds"].write(struct.pack("<q", self._end))

    def sync(self) -> dict[str, int]:
        """Writes everything to the disk. Returns the sizes."""
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())
        return {name: file.tell() for name, file in self._files.items()}

    def join(self, target: Staged, dtype: str, metadata: dict[str, str]) -> None:
        """Writes the file: the format safetensors (docs/reference/data.md)."""
        header: dict[str, Any] = {"__metadata__": metadata}
        at = 0
        sizes = self.sync()
        for name in _PARTS:
            kind = dtype if name == "tokens" else _DTYPES[name]
            width = {"I64": 8, "U8": 1, "U16": 2, "U32": 4}[kind]
            header[name] = {
                "dtype": kind,
                "shape": [sizes[name] // width],
                "data_offsets": [at, at + sizes[name]],
            }
            at += sizes[name]
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        target.file.write(struct.pack("<Q", len(text)) + text)
        for name in _PARTS:
            self._files[name].seek(0)
            shutil.copyfileobj(self._files[name], target.file, 1 << 20)

    def close(self) -> None:
        for file in self._files.values():
            file.close()


def _sync_folder(folder: pathlib.Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class Journal:
    """The folder of the parts, and what has been done so far. One program at a time may use it."""

    def __init__(self, out: pathlib.Path, fingerprint: str | None, outputs: int):
        """fingerprint: of inputs and settings; None: nothing is continued. BlockingIOError: another
        program makes this file."""
        self._folder = out.with_name(f".{out.name}.packing")
        self._folder.mkdir(exist_ok=True)
        self._lock = (self._folder / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._lock.close()
            raise BlockingIOError(f"another program makes {out} at this moment") from error
        self._fingerprint = fingerprint
        self._path = self._folder / "journal.json"
        found: dict[str, Any] = {}
        try:
            found = json.loads(self._path.read_text())
        except (FileNotFoundError, ValueError):
            pass
        if fingerprint is None or not self._fits(found, fingerprint, outputs):
            found = {}
            # The parts below are emptied, so no journal may speak of them any more.
            self._path.unlink(missing_ok=True)
            _sync_folder(self._folder)
        # What an earlier run has noted.
        self.state: dict[str, Any] = found.get("state", {})
        self.parts = []
        for number in range(outputs):
            place = self._folder / str(number)
            place.mkdir(exist_ok=True)
            self.parts.append(Parts(place, found["sizes"][number] if found else None))

    def _fits(self, found: dict[str, Any], fingerprint: str, outputs: int) -> bool:
        """Returns whether a journal is of this run, and its parts are there."""
        if found.get("fingerprint") != fingerprint or len(found.get("sizes", ())) != outputs:
            return False
        return all(
            (path := self._folder / str(number) / name).exists() and path.stat().st_size >= size
            for number, sizes in enumerate(found["sizes"])
            for name, size in sizes.items()
        )

    def note(self, state: dict[str, Any]) -> None:
        """Makes everything durable up to now."""
        sizes = [one.sync() for one in self.parts]
        content = {"fingerprint": self._fingerprint, "state": state, "sizes": sizes}
        with Staged(self._path) as staged:
            staged.file.write(json.dumps(content).encode())
            staged.sync()
            staged.publish()

    def close(self, remove: bool) -> None:
        for one in self.parts:
            one.close()
        if remove:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._lock.close()
