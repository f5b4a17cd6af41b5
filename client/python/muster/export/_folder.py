"""Writes the folder of an exported model (docs/reference/exported-format.md)."""

from __future__ import annotations

import copy
import json
import pathlib
import shutil
import tempfile
from collections.abc import Mapping
from typing import Any

import torch

from muster.export._trace import PRECISIONS, Inputs, State, Traced, ranges
from muster.export._units import Cutter

# The version of the format. Equal to kFormat of worker/models/exported/graph.h.
FORMAT = 2


def manifest_of(
    state: State,
    inputs: Inputs,
    traced: Traced,
    terms: Mapping[str, Any] | None,
    cutter: Cutter,
    precisions: set[str],
    reference: Mapping[str, Any],
) -> dict[str, Any]:
    from muster._version import VERSION

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
        "kind": "logits" if terms is None else "loss",
        "dtype": "float32",
        "shape": traced.output_shape,
    }
    if terms is not None:
        output["terms"] = terms
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
        "precisions": [one for one in PRECISIONS if one in precisions],
        "units": cutter.units,
        "parameters": parameters,
        "buffers": tensors("buffer", state.buffers),
        "ties": state.ties,
        "reference": reference,
    }


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
    graphs: Mapping[str, Any],
    manifest: Mapping[str, Any],
    state: State,
    config: str,
) -> None:
    from safetensors.torch import save_file

    target.parent.mkdir(parents=True, exist_ok=True)
    made = pathlib.Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        for name, graph in graphs.items():
            (made / f"{name}.json").write_text(json.dumps(graph, allow_nan=False))
        weights = {**state.parameters, **state.buffers}
        for file, tensors in (("model", weights), ("constants", state.constants)):
            save_file(
                {name: one.detach().contiguous().clone() for name, one in tensors.items()},
                made / f"{file}.safetensors",
                metadata={"format": "pt"},
            )
        (made / "manifest.json").write_text(json.dumps(manifest, indent=1, allow_nan=False))
        if config:
            (made / "config.json").write_text(config)
        # safetensors writes for the owner only; a worker may be another user.
        for path in made.iterdir():
            path.chmod(0o644)
        made.chmod(0o755)
        if target.exists():
            shutil.rmtree(target)
        made.rename(target)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
