"""safetensors files of float32 tensors (https://github.com/huggingface/safetensors), for machines
that do not have the library."""

import ctypes
import json
import struct

import torch


def save(tensors, path):
    header, parts, end = {}, [], 0
    for name, tensor in tensors.items():
        values = tensor.detach().float().contiguous().cpu()
        data = ctypes.string_at(values.data_ptr(), values.nbytes)
        header[name] = {
            "dtype": "F32",
            "shape": list(tensor.shape),
            "data_offsets": [end, end + len(data)],
        }
        parts.append(data)
        end += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for part in parts:
            file.write(part)


def load(path):
    with open(path, "rb") as file:
        content = bytearray(file.read())
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    data = content[8 + length :]
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        assert entry["dtype"] == "F32", f"{path}: {name} is {entry['dtype']}"
        begin, end = entry["data_offsets"]
        tensor = torch.frombuffer(data, dtype=torch.float32, offset=begin, count=(end - begin) // 4)
        tensors[name] = tensor.view(entry["shape"]).clone()
    return tensors
