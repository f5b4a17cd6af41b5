"""Exports a PyTorch model into a folder that Muster trains without Python.

    import muster.export

    muster.export(model, {"input_ids": tokens}, "folder")

and in the job file:

    model: {exported: folder}

`python -m muster.export module:factory --out folder` does the same from the command line. Needs the
packages `torch` (tried with 2.13) and `safetensors`. The format of the folder is described in
docs/reference/exported-format.md."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import os
import pathlib
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from muster.export import _check, _folder, _loss, _trace, _units
from muster.export._nodes import NotExportable
from muster.export._units import Unit

__all__ = ["NotExportable", "export"]

# The types of inputs. Data sets of the worker have them.
_TYPES = (torch.float32, torch.int64, torch.int32, torch.bool)


def export(
    model: torch.nn.Module,
    example: torch.Tensor | Sequence[torch.Tensor] | Mapping[str, torch.Tensor],
    folder: str | os.PathLike[str],
    *,
    loss: Callable[..., torch.Tensor] | None = None,
    units: str | Iterable[str] = "auto",
    precision: str = "float32",
    overwrite: bool = False,
) -> pathlib.Path:
    """Writes a model into a folder, with the graphs of its forward in training and in evaluation.

    model: returns logits, and the job file has the loss; or returns its loss: a tensor without
        dimensions, or an object with `loss` (the models of transformers, if the example has
        `labels`). A loss must be a mean over samples, or over targets that are not -100.
    example: the inputs of one batch, on the CPU, the number of samples first: a tensor, several in
        the order of the model's forward, or a dictionary with their names there.
    loss: computes the loss from the model's output, and from those inputs of the example that its
        other parameters name: loss(output, labels). The model does not get these.
    units: "auto", or patterns of the paths of the modules that become units
        (docs/how-to/own-model.md).
    precision: the `precision` of jobs: "float32", "bfloat16" or "float16". Jobs with another one
        can train the folder, too, if the model's graphs are the same there.
    overwrite: replaces a folder that an earlier export wrote.

    A model that is in training keeps the modes of its modules in the graph of training: a BatchNorm
    may be in evaluation. A model in evaluation is exported as model.train() makes it.

    The graphs run beside the model with several sizes of the batch, before anything is written.
    Raises NotExportable if they differ, or if something in the model cannot be exported."""
    if torch.is_inference_mode_enabled():
        raise NotExportable("torch.inference_mode is on; expected an export outside of it")
    # Scopes around the export are not the model's.
    with torch.enable_grad(), torch.autocast("cpu", enabled=False):
        return _export(model, example, folder, loss, units, precision, overwrite)


def _export(
    model: torch.nn.Module,
    example: Any,
    folder: str | os.PathLike[str],
    loss: Callable[..., torch.Tensor] | None,
    units: str | Iterable[str],
    precision: str,
    overwrite: bool,
) -> pathlib.Path:
    if precision not in _trace.PRECISIONS:
        raise NotExportable(
            f"precision: found '{precision}'; expected one of {', '.join(_trace.PRECISIONS)}"
        )
    inputs = _inputs(model, example)
    target = pathlib.Path(folder)
    _folder.check_target(target, overwrite)
    _check.refuse_lost_gradients(model)
    state = _trace.State.of(model)
    _check_types(state)
    named = isinstance(example, Mapping)
    if loss is not None and not named:
        raise NotExportable("example: expected a dictionary, whose names `loss` uses")
    forward = _trace.Forward(model, list(inputs), positional=not named, loss=loss)
    graphs, traced, cutter = _graphs(forward, inputs, state, model, units, precision)
    reference = {
        name: [
            _check.compare(
                forward,
                state,
                graph,
                _check.samples(inputs, batch),
                training=name == "train",
                precision=precision,
            )
            for batch in (1, 2, 5)
        ]
        for name, graph in graphs.items()
    }
    # A model whose graphs differ in one other precision is not tried in the next.
    precisions = {precision} | set(
        itertools.takewhile(
            lambda other: _same(graphs, forward, inputs, state, model, units, other),
            [one for one in _trace.PRECISIONS if one != precision],
        )
    )
    terms = None if traced.output_shape else _loss.terms(forward, inputs)
    manifest = _folder.manifest_of(state, inputs, traced, terms, cutter, precisions, reference)
    for unit, reason in cutter.dissolved.items():
        print(f"muster.export: '{unit}' is no unit: {reason}", file=sys.stderr)
    _folder.write(target, graphs, manifest, state, _folder.config_of(model))
    return target


def _graphs(
    forward: _trace.Forward,
    inputs: _trace.Inputs,
    state: _trace.State,
    model: torch.nn.Module,
    units: str | Iterable[str],
    precision: str,
) -> tuple[dict[str, Any], _trace.Traced, _units.Cutter]:
    """Returns the contents of train.json and evaluate.json by name, what was traced in training,
    and the units. Adds to state.constants."""
    several = _check.samples(inputs, max(3, len(next(iter(inputs.values())))))
    traced = {
        name: _trace.trace(
            forward, several, state, training=name == "train", precision=precision
        )
        for name in ("train", "evaluate")
    }
    shapes = {name: one.output_shape for name, one in traced.items()}
    if shapes["train"] != shapes["evaluate"]:
        raise NotExportable(
            f"the model returns another thing in training ({shapes['train']}) than in evaluation "
            f"({shapes['evaluate']}); expected the same. A shape [] is a loss"
        )
    cutter = _units.Cutter(
        _units.choose(model, units), [one.program for one in traced.values()]
    )
    graphs = {
        name: {
            "format": _folder.FORMAT,
            "torch": torch.__version__,
            "units": [_unit(one) for one in units_],
        }
        for name, units_ in zip(traced, cutter.cut(), strict=True)
    }
    return graphs, traced["train"], cutter


def _same(
    graphs: Mapping[str, Any],
    forward: _trace.Forward,
    inputs: _trace.Inputs,
    state: _trace.State,
    model: torch.nn.Module,
    units: str | Iterable[str],
    precision: str,
) -> bool:
    """Returns whether the model has the same graphs in another precision. Code that asks for the
    type of a tensor has other ones."""
    scratch = dataclasses.replace(state, constants=dict(state.constants))
    try:
        others, _, _ = _graphs(forward, inputs, scratch, model, units, precision)
        for name, graph in graphs.items():
            _check.compare(
                forward,
                state,
                graph,
                _check.samples(inputs, 2),
                training=name == "train",
                precision=precision,
            )
    except NotExportable:
        return False
    return others == graphs and all(
        one.dtype == scratch.constants[name].dtype and torch.equal(one, scratch.constants[name])
        for name, one in state.constants.items()
    )


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
        if one.dtype not in _TYPES:
            raise NotExportable(
                f"example: '{name}' is {_trace.describe(one)}; expected one of "
                f"{', '.join(map(_folder.name_of, _TYPES))}, as data sets have"
            )
    sizes = {name: len(one) for name, one in inputs.items()}
    if len(set(sizes.values())) != 1 or 0 in sizes.values():
        raise NotExportable(
            f"example: the numbers of samples are {sizes}; expected the same number in each input, "
            "1 or more"
        )
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


class _Callable(types.ModuleType):
    """Makes `muster.export(...)` mean `muster.export.export(...)`."""

    def __call__(self, *args: Any, **kwargs: Any) -> pathlib.Path:
        return export(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
