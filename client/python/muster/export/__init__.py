"""Exports a PyTorch model into a folder that Muster trains without Python.

    import muster.export

    muster.export(model, {"input_ids": tokens}, "folder")

and in the job file:

    model: {exported: folder}

`python -m muster.export module:factory --out folder` does the same from the command line. Needs the
packages `torch` (tried: 2.11, 2.13, 2.14) and `safetensors`. The format of the folder is described
in docs/reference/exported-format.md."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import pathlib
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from muster.export import _adapter, _check, _examine, _folder, _large, _trace, _weights
from muster.export._adapter import adapter
from muster.export._meta import parameters_on_meta
from muster.export._nodes import NotExportable

__all__ = ["NotExportable", "adapter", "export", "parameters_on_meta"]

# The types of inputs. Data sets of the worker have them.
_TYPES = (torch.float32, torch.int64, torch.int32, torch.bool)


@contextlib.contextmanager
def _no_scopes() -> Iterator[None]:
    """Leaves scopes around the export, which are not the model's."""
    if torch.is_inference_mode_enabled():
        raise NotExportable("torch.inference_mode is on; expected an export outside of it")
    with torch.enable_grad(), torch.autocast("cpu", enabled=False):
        yield


@_no_scopes()
def export(
    model: torch.nn.Module,
    example: torch.Tensor | Sequence[torch.Tensor] | Mapping[str, torch.Tensor],
    folder: str | os.PathLike[str],
    *,
    loss: Callable[..., torch.Tensor] | None = None,
    units: str | Iterable[str] = "auto",
    precision: str = "float32",
    dynamic: Mapping[str, bool] | None = None,
    tokenizer: Any = None,
    weights: str | os.PathLike[str] | None = None,
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
    dynamic: {"sequence": True} leaves the length of sequences free, which is the second dimension
        of the first input and of inputs that are as long. Jobs choose it (`model.context`).
    tokenizer: of transformers. Its files come into the folder, and into the folders that
        `muster consolidate` makes of the trained model.
    weights: a folder with the values of a model that was made in the scope
        parameters_on_meta(): model.safetensors, or several files and their index. The names are the
        model's own; float32, float16 and bfloat16. The exported folder gets links to these files.
    overwrite: replaces a folder that an earlier export wrote.

    A model that is in training keeps the modes of its modules in the graph of training: a BatchNorm
    may be in evaluation. A model in evaluation is exported as model.train() makes it.

    The graphs run beside the model with several sizes of the batch, before anything is written.
    Raises NotExportable if they differ, or if something in the model cannot be exported."""
    dynamic = dict(dynamic or {})
    if dynamic.keys() - {"batch", "sequence"} or not dynamic.get("batch", True):
        raise NotExportable(
            f"dynamic: found {dynamic}; expected \"sequence\", and the batch is always free"
        )
    any_length = dynamic.get("sequence", False)
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
    stored = _weights.of(weights, model, state, target)
    if stored is not None and _adapter.wraps(model):
        raise NotExportable("weights: PEFT wrapped the model; expected one with values, or no PEFT")
    described, config = _adapter.of_model(model), _folder.config_of(model)
    named = isinstance(example, Mapping)
    if loss is not None and not named:
        raise NotExportable("example: expected a dictionary, whose names `loss` uses")
    case = _examine.Case(inputs, not named, loss, units, precision, any_length)
    found = (_examine if stored is None else _large).examine(model, case)
    for unit, reason in found.cutter.dissolved.items():
        print(f"muster.export: '{unit}' is no unit: {reason}", file=sys.stderr)

    def beside(made: pathlib.Path) -> None:
        if stored is None:
            _weights.save(found.state, made)
        else:
            stored.link(made)
        if described is not None:
            (made / _adapter.NAME).write_text(json.dumps(described, indent=1))
        if tokenizer is not None:
            tokenizer.save_pretrained(made)
        if config:
            _folder.write_settings_for_texts(model, weights, made)

    _folder.write(target, found, inputs, config, beside)
    print(
        f"muster.export: {target}: {len(found.cutter.units)} units besides the root; returns "
        f"{'logits' if found.terms is None else 'its loss'}; for precision: "
        f"{', '.join(one for one in _trace.PRECISIONS if one in found.precisions)}",
        file=sys.stderr,
    )
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
        if one.dtype != torch.float32 or one.device.type not in ("cpu", "meta")
    ]
    if problems:
        raise NotExportable(
            f"parameters: {'; '.join(problems)}; expected float32 on the CPU. model.float() "
            "converts them"
        )
    if not any(one.requires_grad for one in state.parameters.values()):
        raise NotExportable("the model has no parameter with requires_grad")


class _Callable(types.ModuleType):
    """Makes `muster.export(...)` mean `muster.export.export(...)`."""

    def __call__(self, *args: Any, **kwargs: Any) -> pathlib.Path:
        return export(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
