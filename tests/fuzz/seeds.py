#!/usr/bin/env python3
"""Writes the first inputs of the corpora (tests/fuzz/corpus): small files as the libraries write
them, and the manifest of a small checkpoint. Later inputs are those that fuzz.py found.

    ~/.cache/muster/venv/bin/python tests/fuzz/seeds.py [--manifest MANIFEST.json]...
"""

import argparse
import gzip
import io
import json
import pathlib
import pickle
import struct
import zipfile

import numpy
import torch
from safetensors.torch import save as save_safetensors

CORPUS = pathlib.Path(__file__).resolve().parent / "corpus"


def put(target, name, data):
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def optimizer_state(optimizer, **options):
    model = torch.nn.Linear(3, 2)
    optimizer = optimizer(model.parameters(), **options)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    return optimizer.state_dict()


def tensor(name):
    return {"value": name}


def exported(kind):
    """The files of a model with one unit: a linear layer, scaled, of as many rows as there are
    samples."""
    loss = {"kind": "loss", "dtype": "float32", "shape": [], "terms": {}}
    logits = {"kind": "logits", "dtype": "float32", "shape": ["batch", 2]}
    manifest = {
        "format": 2,
        "inputs": [{"name": "x", "dtype": "float32", "shape": ["batch", 3]}],
        "output": loss if kind == "loss" else logits,
        "precisions": ["float32"],
        "units": ["fc"],
        "parameters": [
            {"name": "w", "shape": [2, 3], "dtype": "float32", "unit": "fc", "trainable": True}
        ],
        "buffers": [{"name": "n", "shape": [], "dtype": "int64", "unit": ""}],
        "ties": {"v": "w"},
    }
    root = [
        {"call": "fc", "args": [tensor("x")], "out": ["y"]},
        {"op": "aten.sym_size.int", "args": {"self": tensor("x"), "dim": 0}, "out": ["b"]},
        {"op": "python.mul.default", "args": {"a": tensor("b"), "b": 2}, "out": ["c"], "in": ""},
        {"op": "aten.add_.Tensor", "out": ["m"],
         "args": {"self": {"buffer": "n"}, "other": 1, "alpha": 1}},
        {"op": "aten.split.Tensor", "args": {"self": tensor("y"), "split_size": 1, "dim": 1},
         "out": [["p", None]], "grad": False},
        {"op": "aten.cat.default", "args": {"tensors": [tensor("p"), tensor("p")], "dim": 1},
         "out": ["q"]},
        {"op": "aten.add.Tensor", "out": ["z"],
         "args": {"self": tensor("q"), "other": {"constant": "table"}, "alpha": {"float": "inf"}},
         "autocast": {"enabled": True, "dtype": "bfloat16", "cache": True}},
    ]
    linear = {"input": tensor("x"), "weight": {"parameter": "w"}, "bias": None}
    inputs = [{"value": "x", "kind": "tensor"}]
    units = [
        {"name": "", "inputs": inputs, "nodes": root, "outputs": [tensor("z")]},
        {"name": "fc", "inputs": inputs, "outputs": [tensor("y")],
         "nodes": [{"op": "aten.linear.default", "args": linear, "out": ["y"], "in": "fc"}]},
    ]
    return {"manifest": manifest, "graph": {"format": 2, "units": units}}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--manifest", type=pathlib.Path, action="append", default=[])
    arguments = parser.parse_args()
    torch.manual_seed(1)
    put("safetensors", "two", save_safetensors({"a": torch.ones(2, 3), "b": torch.zeros(0)}))
    put("safetensors", "metadata", save_safetensors({"w": torch.ones(())}, {"format": "pt"}))
    put("safetensors", "empty", save_safetensors({}))
    for name, dtype in (("half", torch.bfloat16), ("bytes", torch.uint8)):
        put("safetensors", name, save_safetensors({"x": torch.ones(4, dtype=dtype)}))
    for name, state in (
        ("adamw", optimizer_state(torch.optim.AdamW)),
        ("sgd", optimizer_state(torch.optim.SGD, lr=0.1, momentum=0.9)),
        ("plain", {"text": "x", "list": [1, 2.5, None, True], "tuple": (1, (2,)), "big": 2**40}),
    ):
        file = io.BytesIO()
        torch.save(state, file)
        put("torch_archive", name, file.getvalue())
        with zipfile.ZipFile(file) as archive:
            member = next(one for one in archive.namelist() if one.endswith("data.pkl"))
            put("pickle", name, archive.read(member))
    for protocol in range(6):
        put("pickle", f"protocol-{protocol}", pickle.dumps({"a": [1, (2.0, "x")]}, protocol))
    for name, array in (
        ("floats", numpy.ones((2, 3), "<f4")),
        ("fortran", numpy.asfortranarray(numpy.ones((2, 3), "<i8"))),
        ("scalar", numpy.array(1, "<u2")),
    ):
        file = io.BytesIO()
        numpy.save(file, array)
        put("npy", name, file.getvalue())
    put("npy", "version-2", b"\x93NUMPY\x02\x00" + struct.pack("<I", 64) + b"{'descr': '<f4', "
        b"'fortran_order': False, 'shape': (3,), }".ljust(63) + b"\n" + bytes(12))
    put("idx", "images", bytes((0, 0, 8, 3)) + struct.pack(">3I", 2, 3, 3) + bytes(18))
    put("idx", "labels", bytes((0, 0, 8, 1)) + struct.pack(">I", 2) + bytes(2))
    put("idx", "zipped", gzip.compress(bytes((0, 0, 8, 1)) + struct.pack(">I", 1) + bytes(1)))
    for kind in ("logits", "loss"):
        put("exported", f"{kind}.json", json.dumps(exported(kind)).encode())
    for number, manifest in enumerate(arguments.manifest):
        put("manifest", f"checkpoint-{number}", manifest.read_bytes())


if __name__ == "__main__":
    main()
