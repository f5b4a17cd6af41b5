"""The format of files of documents, as it is read (docs/reference/data.md)."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from typing import Any

import numpy

FORMAT = "muster-documents"
VERSION = "1"


@dataclasses.dataclass(frozen=True)
class DocumentFile:
    path: pathlib.Path
    documents: int
    tokens: int
    # Tokens that are targets.
    trained: int


def describe(path: pathlib.Path) -> DocumentFile:
    opened = open_documents(path)
    return DocumentFile(
        path=path,
        documents=len(opened["bounds"]) - 1,
        tokens=len(opened["tokens"]),
        trained=int(opened["trained"].sum(dtype=numpy.int64)),
    )


def open_documents(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Maps a file of documents into memory. Returns its arrays `bounds`, `tokens` and `trained`,
    and its `metadata`. ValueError: a file of another kind."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        head = file.read(min(size, 1 << 20))
    try:
        header = json.loads(head)
        metadata = header["__metadata__"]
        if metadata["format"] != FORMAT:
            raise ValueError(f"its format is {metadata['format']}")
        opened: dict[str, Any] = {"metadata": metadata}
        for name in ("bounds", "tokens", "trained"):
            begin, end = header[name]["data_offsets"]
            dtype = {"I64": "<i8", "U8": "u1", "U16": "<u2", "U32": "<u4"}[header[name]["dtype"]]
            opened[name] = numpy.memmap(
                path, dtype, "r", 8 + size + begin, (end - begin) // numpy.dtype(dtype).itemsize
            )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{os.fspath(path)} is no file of documents, as `muster data pack` makes it: "
            f"{type(error).__name__}: {error}"
        ) from error
    return opened
