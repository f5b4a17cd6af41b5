"""Weights that jobs exported, compared to the bit."""

import json
import struct


def contents(path):
    """(which tensors lie where, their bytes) of a safetensors file, without the name and id of the
    job that wrote it."""
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    return header, data[8 + length :]
