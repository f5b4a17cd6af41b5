"""Writes the folder of an exported model (docs/reference/exported-format.md)."""

from __future__ import annotations

import copy
import json
import os
import pathlib
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

import torch

from muster.export._examine import FORMAT, Findings
from muster.export._trace import PRECISIONS, Inputs, Lengths, ranges


def _manifest_of(found: Findings, inputs: Inputs) -> dict[str, Any]:
    from muster._version import VERSION

    state, traced, cutter = found.state, found.traced["train"], found.cutter

    def tensors(kind: str, named: Mapping[str, torch.Tensor]) -> list[dict[str, Any]]:
        owners = cutter.owners[kind]
        return [
            {"name": name, "shape": list(one.shape), "dtype": name_of(one.dtype),
             "unit": owners.get(name, "")}
            for name, one in named.items()
        ]

    parameters = tensors("parameter", state.parameters)
    for one in parameters:
        one["trainable"] = state.parameters[one["name"]].requires_grad
    below = ranges(traced.program, state)
    output: dict[str, Any] = {
        "kind": "logits" if found.terms is None else "loss",
        "dtype": "float32",
        "shape": traced.output_shape,
    }
    if found.terms is not None:
        output["terms"] = found.terms
    elif found.causal is not None:
        output["causal"] = found.causal
    return {
        "format": FORMAT,
        "torch": torch.__version__,
        "muster": VERSION,
        "inputs": [
            {"name": name, "dtype": name_of(one.dtype), "shape": shape}
            | ({"below": below[value]} if value in below else {})
            for (name, one), shape, value in zip(
                inputs.items(), traced.input_shapes, traced.program.inputs, strict=True
            )
        ],
        "output": output,
        **({} if traced.lengths is None else {"sequence": _sequence(traced.lengths, inputs)}),
        "precisions": [one for one in PRECISIONS if one in found.precisions],
        "units": cutter.units,
        "parameters": parameters,
        "buffers": tensors("buffer", state.buffers),
        "ties": state.ties,
        "reference": found.reference,
    }


def _sequence(lengths: Lengths, inputs: Inputs) -> dict[str, int]:
    shortest, longest = lengths
    found = {"example": next(iter(inputs.values())).shape[1], "min": shortest}
    return found if longest is None else {**found, "max": longest}


def config_of(model: torch.nn.Module) -> str:
    """Returns the text of the config.json with which transformers opens the model's weights, or ""
    for other models."""
    config: Any = getattr(model, "config", None)
    if not any(base.__name__ == "PreTrainedModel" for base in type(model).__mro__):
        return ""
    made = copy.deepcopy(config)
    made.architectures = [type(model).__name__]
    text: str = made.to_json_string()
    return text


_SETTINGS_FOR_TEXTS = "generation_config.json"


def write_settings_for_texts(
    model: torch.nn.Module, weights: str | os.PathLike[str] | None, folder: pathlib.Path
) -> None:
    """Writes the generation_config.json of a model of transformers, if it has one. weights: the
    folder of a model without values, whose own settings are only those of its configuration."""
    if weights is not None:
        there = pathlib.Path(weights) / _SETTINGS_FOR_TEXTS
        if there.is_file():
            shutil.copyfile(there, folder / _SETTINGS_FOR_TEXTS)
        return
    settings: Any = getattr(model, "generation_config", None)
    if settings is None:
        return
    try:
        settings.save_pretrained(folder)
    except ValueError as error:
        # Some models come with settings that transformers itself refuses to write.
        print(f"muster.export: no {_SETTINGS_FOR_TEXTS} is written: {error}", file=sys.stderr)


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def check_target(target: pathlib.Path, overwrite: bool) -> None:
    if not target.exists():
        return
    if not overwrite:
        raise FileExistsError(f"{target}: exists; overwrite=True replaces what an export wrote")
    if not (target / "manifest.json").is_file():
        raise FileExistsError(f"{target}: is not the folder of an export, so it is not replaced")


def write(
    target: pathlib.Path,
    found: Findings,
    inputs: Inputs,
    config: str,
    beside: Callable[[pathlib.Path], None],
) -> None:
    """config: the contents of config.json, if any. beside: writes the weights, and further
    files."""
    from safetensors.torch import save_file

    target.parent.mkdir(parents=True, exist_ok=True)
    made = pathlib.Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        for name, graph in found.graphs.items():
            (made / f"{name}.json").write_text(json.dumps(graph, allow_nan=False))
        constants = {
            name: one.detach().contiguous().clone() for name, one in found.state.constants.items()
        }
        save_file(constants, made / "constants.safetensors", metadata={"format": "pt"})
        manifest = _manifest_of(found, inputs)
        (made / "manifest.json").write_text(json.dumps(manifest, indent=1, allow_nan=False))
        if config:
            (made / "config.json").write_text(config)
        beside(made)
        # safetensors writes for the owner only; a worker may be another user.
        for path in made.rglob("*"):
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() else 0o644)
        made.chmod(0o755)
        if target.exists():
            shutil.rmtree(target)
        made.rename(target)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
