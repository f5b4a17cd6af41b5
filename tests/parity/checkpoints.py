"""Reads Muster's checkpoints (docs/reference/checkpoint-format.md) with the safetensors package."""

import json
import pathlib

import torch
from safetensors import safe_open

DTYPES = {"F32": torch.float32, "I64": torch.int64}


def all_steps(directory, job_id):
    """{step: folder} of a job's checkpoints."""
    found = {}
    for folder in pathlib.Path(directory, job_id).glob("step-*-g*"):
        if (folder / "MANIFEST.json").exists() and not folder.name.endswith((".tmp", ".bad")):
            found[json.loads((folder / "MANIFEST.json").read_text())["step"]] = folder
    return dict(sorted(found.items()))


def read(folder, slots=None):
    """{slot/parameter: tensor} of the named slots (None: all), put together from the ranks'
    pieces."""
    manifest = json.loads((folder / "MANIFEST.json").read_text())
    files = {
        file["name"]: safe_open(folder / file["name"], framework="pt") for file in manifest["files"]
    }
    tensors, filled = {}, {}
    for piece in manifest["pieces"]:
        if slots is not None and piece["slot"] not in slots:
            continue
        name = f"{piece['slot']}/{piece['parameter']}"
        if name not in tensors:
            tensors[name] = torch.empty(piece["shape"], dtype=DTYPES[piece["dtype"]])
            filled[name] = 0
        part = files[piece["file"]].get_tensor(name).reshape(-1)
        assert part.dtype == tensors[name].dtype
        tensors[name].view(-1)[piece["begin"] : piece["end"]] = part
        filled[name] += piece["end"] - piece["begin"]
    for name, tensor in tensors.items():
        assert filled[name] == tensor.numel(), f"{folder}: {name} is not complete"
    return tensors


def parameters(folder):
    """{parameter name: tensor}."""
    return {name.removeprefix("param/"): tensor for name, tensor in read(folder, {"param"}).items()}


def buffers(folder):
    """{buffer name: tensor}."""
    return {
        name.removeprefix("buffer/"): tensor for name, tensor in read(folder, {"buffer"}).items()
    }


def with_checkpoints(spec, folder, every_steps=1):
    """A save compares the parameters of all ranks bitwise, and fails the job if they differ. So a
    job that saves after each step and succeeds shows that its ranks agreed after each step."""
    directory = folder / "checkpoints"
    return spec | {
        "checkpoint": {"directory": str(directory), "every_steps": every_steps, "keep": 1000}
    }


def assert_bitwise_equal(found, expected):
    assert found.keys() == expected.keys()
    differ = [name for name in expected if not torch.equal(found[name], expected[name])]
    assert not differ, f"{len(differ)} of {len(expected)} tensors differ, first {differ[0]}"
