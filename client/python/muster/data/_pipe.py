"""Values on a pipe between two processes of one user."""

from __future__ import annotations

import pickle
import struct
from typing import IO, Any


def send(stream: IO[bytes], value: Any) -> None:
    content = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    stream.write(struct.pack("<Q", len(content)))
    stream.write(content)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """EOFError: the other process has ended."""
    head = stream.read(8)
    if len(head) < 8:
        raise EOFError
    (size,) = struct.unpack("<Q", head)
    content = stream.read(size)
    if len(content) < size:
        raise EOFError
    return pickle.loads(content)
