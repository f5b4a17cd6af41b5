"""Traces a model with torch.export, in training and in evaluation."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from muster.export._in_place import refuse_changes
from muster.export._program import (
    Argument,
    Converter,
    NotExportable,
    Program,
    draws,
    without_unused,
)

# The largest batch for which the graphs hold.
MAX_BATCH = 1 << 20

Inputs = dict[str, torch.Tensor]


@dataclasses.dataclass
class State:
    """The tensors of a model, each under its first name."""

    parameters: dict[str, torch.nn.Parameter]
    # The other names of a parameter that several modules have: {"lm_head.weight": "wte.weight"}.
    ties: dict[str, str]
    # What a forward in training changes, and checkpoints contain.
    buffers: dict[str, torch.Tensor]
    # All other tensors that the graphs use. No checkpoint contains them.
    constants: dict[str, torch.Tensor]

    @classmethod
    def of(cls, model: torch.nn.Module) -> State:
        state = cls({}, {}, {}, {})
        first: dict[int, str] = {}
        for name, parameter in model.named_parameters(remove_duplicate=False):
            known = first.setdefault(id(parameter), name)
            if known == name:
                state.parameters[name] = parameter
            else:
                state.ties[name] = known
        kept = set(model.state_dict(keep_vars=True))
        for name, buffer in model.named_buffers(remove_duplicate=False):
            known = first.setdefault(id(buffer), name)
            if known != name:
                state.ties[name] = known
            elif name in kept and buffer.dtype in (torch.float32, torch.int64):
                state.buffers[name] = buffer
            else:
                state.constants[name] = buffer
        return state

    def arguments(self) -> dict[str, Argument]:
        """Returns the argument of each name in the traced module, whose model is `model`."""
        found: dict[str, Argument] = {}
        for kind, tensors in (
            ("parameter", self.parameters),
            ("buffer", self.buffers),
            ("constant", self.constants),
        ):
            found |= {f"model.{name}": {kind: name} for name in tensors}
        found |= {f"model.{name}": found[f"model.{first}"] for name, first in self.ties.items()}
        return found


class Forward(torch.nn.Module):
    """A model as the graphs see it: the inputs in a fixed order, and one tensor as the result."""

    def __init__(
        self,
        model: torch.nn.Module,
        names: list[str],
        positional: bool,
    ):
        super().__init__()
        self.model = model
        self._names = names
        self._positional = positional

    def forward(self, *values: torch.Tensor) -> torch.Tensor:
        if self._positional:
            return logits_of(self.model(*values))
        return logits_of(self.model(**dict(zip(self._names, values, strict=True))))


def logits_of(output: Any) -> torch.Tensor:
    """Returns the logits of a model's output."""
    found = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
    if isinstance(found, torch.Tensor):
        return found
    if isinstance(output, torch.Tensor):
        return output
    if isinstance(output, (tuple, list)) and output and isinstance(output[0], torch.Tensor):
        if len(output) == 1:
            return output[0]
    raise NotExportable(
        f"the model returns {describe(output)}; expected one tensor, the logits, or an object with "
        "`logits`"
    )


def describe(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    if isinstance(value, (tuple, list)):
        return f"{type(value).__name__} of {len(value)}"
    return type(value).__name__


@contextlib.contextmanager
def mode(model: torch.nn.Module, training: bool) -> Iterator[None]:
    """Puts all modules into one mode, and afterwards back into their own. In training, a model that
    is in training already keeps the modes of its modules: a BatchNorm may be in evaluation."""
    before = [(module, module.training) for module in model.modules()]
    if not (training and model.training):
        model.train(training)
    try:
        yield
    finally:
        for module, was in before:
            module.training = was


@dataclasses.dataclass
class Traced:
    program: Program
    # The shapes of the inputs and of the output: "batch" is free.
    input_shapes: list[list[int | str]]
    output_shape: list[int | str]
    output_dtype: torch.dtype


def trace(forward: Forward, inputs: Inputs, state: State, *, training: bool) -> Traced:
    """inputs: with two samples or more. Adds to state.constants."""
    batch = torch.export.Dim("batch", min=1, max=MAX_BATCH)
    shapes = tuple({0: batch} for _ in inputs)
    with mode(forward.model, training):
        try:
            exported = torch.export.export(
                forward, tuple(inputs.values()), strict=False, dynamic_shapes={"values": shapes}
            )
        except NotExportable:
            raise
        except Exception as error:
            raise NotExportable(
                f"torch.export: {error}\n(The batch must be free: no code may depend on the number "
                "of samples. torch.export.draft_export tells more.)"
            ) from error
    arguments = state.arguments()
    for name, constant in exported.constants.items():
        if name not in arguments:
            if not isinstance(constant, torch.Tensor):
                raise NotExportable(f"the graph uses an object: {name} is {describe(constant)}")
            short = f"{'train' if training else 'evaluate'}:{name.removeprefix('model.')}"
            state.constants[short] = constant.detach()
            arguments[name] = {"constant": short}
    program = without_unused(Converter(exported, arguments).convert())
    refuse_changes(program, training=training)
    drawing = [] if training else [node for node in program.nodes if draws(node)]
    if drawing:
        raise NotExportable(
            f"{drawing[0]['in'] or 'the model'}: {drawing[0]['op']} draws random numbers in "
            "evaluation, too; use self.training"
        )
    metas = {node.name: node.meta.get("val") for node in exported.graph.nodes}
    names: dict[str, str] = {}
    input_shapes = []
    for name in program.inputs:
        names[str(metas[name].shape[0])] = "batch"
        input_shapes.append(_shape(metas[name], names))
    output = next(node for node in exported.graph.nodes if node.op == "output").args[0][0]
    meta = output.meta["val"]
    if meta.dtype != torch.float32:
        raise NotExportable(
            f"the model returns {str(meta.dtype).removeprefix('torch.')}; expected float32"
        )
    shape = _shape(meta, names)
    if not shape or shape[0] != "batch":
        raise NotExportable(
            f"the model returns a tensor of the shape {shape}; expected logits, with the number of "
            "samples as their first dimension (the job file has the loss)"
        )
    return Traced(program, input_shapes, shape, meta.dtype)


def _shape(meta: torch.Tensor, names: Mapping[str, str]) -> list[int | str]:
    return [one if isinstance(one, int) else names.get(str(one), str(one)) for one in meta.shape]
