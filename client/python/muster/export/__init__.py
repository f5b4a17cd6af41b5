"""Exports a PyTorch model into a folder that Muster trains without Python.

    import muster.export

    muster.export(model, {"input_ids": tokens}, "folder")

and in the job file:

    model: {exported: folder}

`python -m muster.export module:factory --out folder` does the same from the command line. Needs the
packages `torch` (tried with 2.13) and `safetensors`. The format of the folder is described in
docs/reference/exported-format.md."""

from __future__ import annotations

import copy
import inspect
import json
import os
import pathlib
import shutil
import sys
import tempfile
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from muster.export import _check, _trace, _units
from muster.export._program import NotExportable
from muster.export._units import Unit

__all__ = ["NotExportable", "export"]

FORMAT = 1


def export(
    model: torch.nn.Module,
    example: torch.Tensor | Sequence[torch.Tensor] | Mapping[str, torch.Tensor],
    folder: str | os.PathLike[str],
    *,
    units: str | Iterable[str] = "auto",
    overwrite: bool = False,
) -> pathlib.Path:
    """Writes a model into a folder, with the graphs of its forward in training and in evaluation.

    model: has one input, and returns logits: a tensor, or an object with `logits`. The job file has
        the loss.
    example: the input of one batch, on the CPU, the number of samples first: a tensor, or a
        dictionary with the input's name in the model's forward.
    units: "auto", or patterns of the paths of the modules that become units
        (docs/how-to/own-model.md).
    overwrite: replaces a folder that an earlier export wrote.

    A model that is in training keeps the modes of its modules in the graph of training: a BatchNorm
    may be in evaluation. A model in evaluation is exported as model.train() makes it.

    The graphs run beside the model with several sizes of the batch, before anything is written.
    Raises NotExportable if they differ, or if something in the model cannot be exported."""
    if torch.is_inference_mode_enabled():
        raise NotExportable("torch.inference_mode is on; expected an export outside of it")
    # Scopes around the export are not the model's.
    with torch.enable_grad(), torch.autocast("cpu", enabled=False):
        return _export(model, example, folder, units, overwrite)


def _export(
    model: torch.nn.Module,
    example: Any,
    folder: str | os.PathLike[str],
    units: str | Iterable[str],
    overwrite: bool,
) -> pathlib.Path:
    inputs = _inputs(model, example)
    target = pathlib.Path(folder)
    _check_target(target, overwrite)
    _check.refuse_lost_gradients(model)
    state = _trace.State.of(model)
    _check_types(state)
    forward = _trace.Forward(model, list(inputs), positional=not isinstance(example, Mapping))
    several = _check.samples(inputs, max(3, len(next(iter(inputs.values())))))
    traced = {
        name: _trace.trace(forward, several, state, training=name == "train")
        for name in ("train", "evaluate")
    }
    cutter = _units.Cutter(
        _units.choose(model, units), [one.program for one in traced.values()]
    )
    graphs = {
        name: {
            "format": FORMAT,
            "torch": torch.__version__,
            "units": [_unit(one) for one in units_],
        }
        for name, units_ in zip(traced, cutter.cut(), strict=True)
    }
    reference = {
        name: [
            _check.compare(
                forward, state, graph, _check.samples(inputs, batch), training=name == "train"
            )
            for batch in (1, 2, 5)
        ]
        for name, graph in graphs.items()
    }
    manifest = _manifest(state, list(inputs.items()), traced["train"], cutter, reference)
    for unit, reason in cutter.dissolved.items():
        print(f"muster.export: '{unit}' is no unit: {reason}", file=sys.stderr)
    _write(target, graphs, manifest, state, _config_of(model))
    return target


def _inputs(model: torch.nn.Module, example: Any) -> _trace.Inputs:
    if isinstance(example, torch.Tensor):
        example = [example]
    if not isinstance(example, Mapping):
        names = list(inspect.signature(model.forward).parameters)
        example = {
            (names[i] if i < len(names) else f"input_{i}"): one for i, one in enumerate(example)
        }
    inputs = dict(example)
    if not inputs:
        raise NotExportable("example: expected at least one input")
    for name, one in inputs.items():
        if not isinstance(one, torch.Tensor) or one.dim() == 0:
            raise NotExportable(
                f"example: '{name}' is {_trace.describe(one)}; expected a tensor whose first "
                "dimension is the number of samples"
            )
        if one.device.type != "cpu":
            raise NotExportable(f"example: '{name}' is on {one.device}; expected the CPU")
    if len(inputs) != 1:
        raise NotExportable(
            f"example: found the inputs {', '.join(inputs)}; expected one, because data sets have "
            "one input for each sample"
        )
    if len(next(iter(inputs.values()))) == 0:
        raise NotExportable("example: expected one sample or more, found none")
    if all(bool((one == one.flatten()[0]).all()) for one in inputs.values() if one.numel() > 1):
        raise NotExportable(
            "example: all numbers are equal; expected numbers as in training, so that the "
            "comparison with the model sees every difference"
        )
    return inputs


def _check_types(state: _trace.State) -> None:
    problems = [
        f"'{name}' is {_trace.describe(one)} on {one.device}"
        for name, one in state.parameters.items()
        if one.dtype != torch.float32 or one.device.type != "cpu"
    ]
    if problems:
        raise NotExportable(
            f"parameters: {'; '.join(problems)}; expected float32 on the CPU. model.float() "
            "converts them"
        )
    if not any(one.requires_grad for one in state.parameters.values()):
        raise NotExportable("the model has no parameter with requires_grad")


def _unit(unit: Unit) -> dict[str, Any]:
    return {
        "name": unit.name, "inputs": unit.inputs, "nodes": unit.nodes, "outputs": unit.outputs
    }


def _manifest(
    state: _trace.State,
    inputs: Sequence[tuple[str, torch.Tensor]],
    traced: _trace.Traced,
    cutter: _units.Cutter,
    reference: Mapping[str, Any],
) -> dict[str, Any]:
    from muster._version import VERSION

    def tensors(kind: str, named: Mapping[str, torch.Tensor]) -> list[dict[str, Any]]:
        owners = cutter.owners[kind]
        return [
            {"name": name, "shape": list(one.shape), "dtype": _dtype(one.dtype),
             "unit": owners.get(name, "")}
            for name, one in named.items()
        ]

    parameters = tensors("parameter", state.parameters)
    for one in parameters:
        one["trainable"] = state.parameters[one["name"]].requires_grad
    return {
        "format": FORMAT,
        "torch": torch.__version__,
        "muster": VERSION,
        "inputs": [
            {"name": name, "dtype": _dtype(one.dtype), "shape": shape}
            for (name, one), shape in zip(inputs, traced.input_shapes, strict=True)
        ],
        "output": {
            "kind": "logits",
            "dtype": _dtype(traced.output_dtype),
            "shape": traced.output_shape,
        },
        "units": cutter.units,
        "parameters": parameters,
        "buffers": tensors("buffer", state.buffers),
        "ties": state.ties,
        "reference": reference,
    }


def _config_of(model: torch.nn.Module) -> str:
    """Returns the text of the config.json with which transformers opens the model's weights, or ""
    for other models."""
    config: Any = getattr(model, "config", None)
    if not any(base.__name__ == "PreTrainedModel" for base in type(model).__mro__):
        return ""
    made = copy.deepcopy(config)
    made.architectures = [type(model).__name__]
    text: str = made.to_json_string()
    return text


def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _check_target(target: pathlib.Path, overwrite: bool) -> None:
    if not target.exists():
        return
    if not overwrite:
        raise FileExistsError(f"{target}: exists; overwrite=True replaces what an export wrote")
    if not (target / "manifest.json").is_file():
        raise FileExistsError(f"{target}: is not the folder of an export, so it is not replaced")


def _write(
    target: pathlib.Path,
    graphs: Mapping[str, Any],
    manifest: Mapping[str, Any],
    state: _trace.State,
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


class _Callable(types.ModuleType):
    """Makes `muster.export(...)` mean `muster.export.export(...)`."""

    def __call__(self, *args: Any, **kwargs: Any) -> pathlib.Path:
        return export(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
