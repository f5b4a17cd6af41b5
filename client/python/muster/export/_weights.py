"""Writes the values of parameters and buffers."""

from __future__ import annotations

import json
import pathlib

import torch

from muster.export._trace import State

_FILE, _INDEX = "model.safetensors", "model.safetensors.index.json"
# The size from which a further file begins.
_BYTES = 5 << 30


def save(state: State, folder: pathlib.Path) -> None:
    """Writes the values: a large model in several files, with their index."""
    from safetensors.torch import save_file

    parts: list[dict[str, torch.Tensor]] = [{}]
    size = 0
    for name, one in {**state.parameters, **state.buffers}.items():
        if parts[-1] and size + one.nbytes > _BYTES:
            parts.append({})
            size = 0
        size += one.nbytes
        parts[-1][name] = one
    weight_map: dict[str, str] = {}
    for number, part in enumerate(parts, 1):
        file = _FILE if len(parts) == 1 else f"model-{number:05}-of-{len(parts):05}.safetensors"
        weight_map |= dict.fromkeys(part, file)
        save_file(
            {name: one.detach().contiguous().clone() for name, one in part.items()},
            folder / file,
            metadata={"format": "pt"},
        )
    if len(parts) > 1:
        (folder / _INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
