"""The values of parameters and buffers: written into the folder, or in files elsewhere to which the
folder has links."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import shutil
import sys
from typing import Any

import torch

from muster.export import _meta
from muster.export._nodes import NotExportable
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


# The types of stored values, by the type that the model has.
_TYPES = {torch.float32: ("F32", "F16", "BF16"), torch.int64: ("I64",)}


@dataclasses.dataclass(frozen=True)
class Stored:
    """The files that have the values of a model without values."""

    folder: pathlib.Path
    # The file of each tensor, by its name.
    files: dict[str, str]
    index: bool

    def link(self, folder: pathlib.Path) -> None:
        for name in sorted(set(self.files.values())):
            (folder / name).symlink_to((self.folder / name).resolve())
        if self.index:
            shutil.copyfile(self.folder / _INDEX, folder / _INDEX)


def of(
    weights: str | os.PathLike[str] | None,
    model: torch.nn.Module,
    state: State,
    target: pathlib.Path,
) -> Stored | None:
    """Returns the files with the values of a model that has none. Raises NotExportable if they do
    not have exactly the model's tensors. target: the folder that is written."""
    has_values = _meta.has_values(model)
    if weights is None:
        if not has_values:
            raise NotExportable(
                "the model's parameters are on the meta device, without values; weights=FOLDER "
                "names the folder with their files"
            )
        return None
    if has_values:
        raise NotExportable(
            "weights: the model has values already; expected a model that was made in the scope "
            "muster.export.parameters_on_meta(), or no weights"
        )
    stored = _open(pathlib.Path(weights))
    for name in set(stored.files.values()):
        if (stored.folder / name).resolve().is_relative_to(target.resolve()):
            raise NotExportable(f"weights: {name} lies in {target}, which is replaced")
    _check(stored, state)
    _tell_of_differences(model, stored.folder)
    return stored


def _open(folder: pathlib.Path) -> Stored:
    if (folder / _INDEX).is_file() and (folder / _FILE).is_file():
        raise NotExportable(
            f"weights: {folder} has both {_FILE} and {_INDEX}; expected one of them, because "
            "programs differ in which one they read"
        )
    if not (folder / _INDEX).is_file():
        if not (folder / _FILE).is_file():
            raise NotExportable(
                f"weights: {folder} has neither {_FILE} nor {_INDEX}; expected a folder as "
                "transformers writes it"
            )
        return Stored(folder, dict.fromkeys(_names(folder, _FILE), _FILE), index=False)
    try:
        files = json.loads((folder / _INDEX).read_text())["weight_map"]
        known = all("/" not in one for one in files.values())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotExportable(f"weights: {folder / _INDEX} is no index: {error}") from error
    if not known:
        raise NotExportable(f"weights: {folder / _INDEX} names files of other folders")
    found = [(name, file) for file in set(files.values()) for name in _names(folder, file)]
    if set(found) != files.items():
        differing = sorted({name for name, _ in files.items() ^ set(found)})
        raise NotExportable(
            f"weights: '{differing[0]}' is not where {folder / _INDEX} has it ({len(differing)} "
            "such tensors)"
        )
    return Stored(folder, files, index=True)


def _names(folder: pathlib.Path, file: str) -> list[str]:
    with _opened(folder, file) as opened:
        return list(opened.keys())


def _opened(folder: pathlib.Path, file: str) -> Any:
    from safetensors import SafetensorError, safe_open

    try:
        return safe_open(folder / file, "pt")
    except (OSError, SafetensorError) as error:
        raise NotExportable(f"weights: {folder / file}: {error}") from error


def _check(stored: Stored, state: State) -> None:
    wanted = {**state.parameters, **state.buffers}
    for name, one in wanted.items():
        types = _TYPES[one.dtype]
        expected = f"{' or '.join(types)} {list(one.shape)}"
        if name not in stored.files:
            others = [other for other, first in state.ties.items() if first == name]
            raise NotExportable(
                f"weights: have no '{name}'; expected {expected}, by the {'first ' * bool(others)}"
                f"name that the model has{' (others: ' * bool(others)}{', '.join(others)}"
                f"{')' * bool(others)}. A model with other names is exported with its values"
            )
        with _opened(stored.folder, stored.files[name]) as opened:
            part = opened.get_slice(name)
            dtype, shape = part.get_dtype(), list(part.get_shape())
        if dtype not in types or shape != list(one.shape):
            raise NotExportable(f"weights: '{name}' is {dtype} {shape}; expected {expected}")
    for name in sorted(stored.files.keys() - wanted.keys()):
        first = state.ties.get(name)
        computed = state.constants.get(name)
        if computed is not None:
            # A buffer of another type, which the model makes itself.
            if not _tensor(stored, name).equal(computed):
                raise NotExportable(
                    f"weights: '{name}' is another tensor than the buffer that the model makes"
                )
            continue
        if first is None:
            raise NotExportable(
                f"weights: have '{name}', which the model does not have, so its values would be "
                "left out; expected the model's tensors only"
            )
        if not _tensor(stored, name).equal(_tensor(stored, first)):
            raise NotExportable(
                f"weights: '{name}' and '{first}' differ, and are one parameter of the model"
            )


# What does not change what a model of transformers computes, or is the exporter's.
_FREE = {"_name_or_path", "architectures", "dtype"} | {
    "torch_dtype", "transformers_version", "use_cache"
}


def _tell_of_differences(model: torch.nn.Module, folder: pathlib.Path) -> None:
    """Prints where a model of transformers has another configuration than that of its values."""
    own: Any = getattr(model, "config", None)
    if not hasattr(type(own), "from_pretrained") or not (folder / "config.json").is_file():
        return
    fields, stored = own.to_dict(), type(own).from_pretrained(folder).to_dict()
    for name in sorted((fields.keys() | stored.keys()) - _FREE):
        if fields.get(name) != stored.get(name):
            print(
                f"muster.export: the model's configuration has another '{name}' than its values: "
                f"{fields.get(name)}, and in {folder / 'config.json'} {stored.get(name)}",
                file=sys.stderr,
            )


def _tensor(stored: Stored, name: str) -> torch.Tensor:
    with _opened(stored.folder, stored.files[name]) as opened:
        found: torch.Tensor = opened.get_tensor(name)
        return found
