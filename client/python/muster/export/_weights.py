"""The values of parameters and buffers: written into the folder, or in files elsewhere to which the
folder refers."""

from __future__ import annotations

import json
import os
import pathlib
import shutil

import torch

from muster.export._nodes import NotExportable
from muster.export._trace import State

_FILE, _INDEX = "model.safetensors", "model.safetensors.index.json"
# The size from which a further file begins, as transformers has it.
_BYTES = 5 << 30
_FLOATS = ("F32", "F16", "BF16")


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


def _files(weights: str | os.PathLike[str]) -> tuple[dict[str, pathlib.Path], pathlib.Path | None]:
    """Returns the files of a folder by their names, and their index, if there is one."""
    folder = pathlib.Path(weights).absolute()
    index = folder / _INDEX
    if index.is_file():
        names = set(json.loads(index.read_text())["weight_map"].values())
        return {name: folder / name for name in sorted(names)}, index
    if not (folder / _FILE).is_file():
        raise NotExportable(
            f"weights: {folder} has neither {_FILE} nor {_INDEX}; expected a folder as "
            "transformers writes it"
        )
    return {_FILE: folder / _FILE}, None


def check(state: State, weights: str | os.PathLike[str]) -> None:
    """Raises NotExportable if the files do not have the tensors of a model without values."""
    from safetensors import safe_open

    stored = {}
    files, _ = _files(weights)
    for file in files.values():
        with safe_open(file, "pt") as opened:
            for name in opened.keys():
                part = opened.get_slice(name)
                stored[name] = (part.get_dtype(), list(part.get_shape()))
    for name, one in {**state.parameters, **state.buffers}.items():
        types = _FLOATS if one.dtype == torch.float32 else ("I64",)
        expected = f"{' or '.join(types)} {list(one.shape)}"
        if name not in stored:
            raise NotExportable(
                f"weights: have no '{name}'; expected {expected}, by the name that the model has. "
                "A model with other names is exported with its values"
            )
        dtype, shape = stored[name]
        if dtype not in types or shape != list(one.shape):
            raise NotExportable(f"weights: '{name}' is {dtype} {shape}; expected {expected}")


def link(weights: str | os.PathLike[str], folder: pathlib.Path) -> None:
    """Makes links to the files, and copies their index."""
    files, index = _files(weights)
    for name, file in files.items():
        (folder / name).symlink_to(file)
    if index is not None:
        shutil.copyfile(index, folder / _INDEX)
