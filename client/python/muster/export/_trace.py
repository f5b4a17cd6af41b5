"""Traces a model with torch.export, in training and in evaluation."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from muster.export import _sequences
from muster.export._in_place import refuse_changes
from muster.export._nodes import (
    Argument,
    Node,
    NotExportable,
    Program,
    draws,
    names_in,
    refuse_foreign,
    without_unused,
)
from muster.export._program import Converter

# The largest batch for which the graphs hold.
MAX_BATCH = 1 << 20

# A longest sequence from here on is none.
MAX_LENGTH = 1 << 40

Inputs = dict[str, torch.Tensor]
# The shortest and the longest sequence. None: no longest one.
Lengths = tuple[int, "int | None"]


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
    """A model as the graphs see it: the inputs in a fixed order, and one tensor as the result,
    which is the logits or a loss."""

    def __init__(
        self,
        model: torch.nn.Module,
        names: list[str],
        *,
        positional: bool,
        loss: Callable[..., Any] | None = None,
    ):
        """positional: the model gets its inputs without names. loss: gets the model's output, and
        by name the inputs that its other parameters name. The model does not get these, unless it
        needs them, too."""
        super().__init__()
        self.model = model
        self._names = names
        self._positional = positional
        # A module in a tuple is no child, whose tensors would be the model's.
        self._loss = None if loss is None else (loss,)
        self._of_loss = [] if loss is None else _names_of_loss(loss, names)
        needed = _needed(model) if loss is not None else []
        self._of_model = [
            name for name in names if name not in self._of_loss or name in needed
        ]
        if not positional:
            _refuse_unknown(model, self._of_model)

    def forward(self, *values: torch.Tensor) -> torch.Tensor:
        if self._positional:
            return result_of(self.model(*values))
        given = dict(zip(self._names, values, strict=True))
        output = self.model(**{name: given[name] for name in self._of_model})
        if self._loss is None:
            return result_of(output)
        (loss,) = self._loss
        found = loss(output, **{name: given[name] for name in self._of_loss})
        if not isinstance(found, torch.Tensor) or found.dim() != 0:
            raise NotExportable(
                f"loss: returned {describe(found)}; expected a tensor without dimensions, the mean"
            )
        return found


def _names_of_loss(loss: Callable[..., Any], names: list[str]) -> list[str]:
    """Returns the inputs that a loss names."""
    called = loss.forward if isinstance(loss, torch.nn.Module) else loss
    others = list(inspect.signature(called).parameters.values())[1:]
    found = [one.name for one in others if one.name in names]
    missing = [
        one.name for one in others if one.name not in names and one.default is one.empty
    ]
    if missing or not found:
        raise NotExportable(
            "loss: its parameters after the first, which is the model's output, are "
            f"{', '.join(one.name for one in others) or 'none'}; expected names of the example: "
            f"{', '.join(names)}"
        )
    return found


def _needed(model: torch.nn.Module) -> list[str]:
    """Returns the parameters of a model's forward that have no default."""
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        one.name
        for one in inspect.signature(model.forward).parameters.values()
        if one.default is one.empty and one.kind not in kinds
    ]


def _refuse_unknown(model: torch.nn.Module, names: list[str]) -> None:
    known = inspect.signature(model.forward).parameters
    unknown = [name for name in names if name not in known]
    if unknown and not any(one.kind == one.VAR_KEYWORD for one in known.values()):
        raise NotExportable(
            f"example: the model's forward has no {', '.join(unknown)}; it has {', '.join(known)}"
        )


def result_of(output: Any) -> torch.Tensor:
    """Returns a model's loss if it returns one, else its logits."""
    if isinstance(output, torch.Tensor):
        return output
    for name in ("loss", "logits"):
        found = output.get(name) if isinstance(output, Mapping) else getattr(output, name, None)
        if not isinstance(found, torch.Tensor):
            continue
        if name == "loss" and found.dim() != 0:
            raise NotExportable(
                f"the model returns the loss {describe(found)}; expected a tensor without "
                "dimensions, the mean"
            )
        return found
    if isinstance(output, (tuple, list)) and output and isinstance(output[0], torch.Tensor):
        if len(output) == 1 or output[0].dim() == 0:
            return output[0]
    raise NotExportable(
        f"the model returns {describe(output)}; expected one tensor, or an object with `loss` or "
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
    # The shapes of the inputs and of the output: "batch" is free, and "sequence" may be. A loss has
    # the shape [].
    input_shapes: list[list[int | str]]
    output_shape: list[int | str]
    # The range of the length of sequences, if it is free.
    lengths: Lengths | None


# The precisions of jobs, and the type in which each computes products.
PRECISIONS = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}


@contextlib.contextmanager
def autocast(precision: str) -> Iterator[None]:
    """Computes as a worker does in this precision."""
    dtype = PRECISIONS[precision]
    try:
        with torch.autocast("cpu", dtype, dtype is not None):
            yield
    finally:
        # Inside another scope torch keeps the converted weights, also for the next type.
        torch.clear_autocast_cache()


def trace(
    forward: Forward,
    inputs: Inputs,
    state: State,
    *,
    training: bool,
    precision: str,
    any_length: bool,
) -> Traced:
    """inputs: with two samples or more. any_length: the length of sequences is free. Adds to
    state.constants."""
    batch = torch.export.Dim("batch", min=1, max=MAX_BATCH)
    # torch finds out for which lengths the graph holds.
    free: dict[int, Any] = {1: torch.export.Dim.AUTO}
    of_sequences = _sequences.names(inputs) if any_length else []
    if any_length and not of_sequences:
        raise NotExportable(
            f"dynamic: the first input, '{next(iter(inputs))}', has no second dimension, which is "
            "the length of sequences; put an input of sequences first"
        )
    shapes = tuple({0: batch} | (free if name in of_sequences else {}) for name in inputs)
    with mode(forward.model, training), autocast(precision):
        try:
            exported = torch.export.export(
                forward, tuple(inputs.values()), strict=False, dynamic_shapes={"values": shapes}
            )
        except NotExportable:
            raise
        except Exception as error:
            raise NotExportable(f"torch.export: {error}\n({_remedy(error)})") from error
    arguments = state.arguments()
    for name, constant in exported.constants.items():
        if name not in arguments:
            if not isinstance(constant, torch.Tensor):
                raise NotExportable(f"the graph uses an object: {name} is {describe(constant)}")
            short = f"{'train' if training else 'evaluate'}:{name.removeprefix('model.')}"
            state.constants[short] = constant.detach()
            arguments[name] = {"constant": short}
    program = without_unused(Converter(exported, arguments).convert())
    refuse_foreign(program)
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
    lengths: Lengths | None = None
    for name, given in zip(program.inputs, inputs, strict=True):
        shape = metas[name].shape
        names[str(shape[0])] = "batch"
        if given in of_sequences:
            found = _lengths(exported, shape[1], forward.model, inputs[given].shape[1])
            lengths = found if lengths is None else both(lengths, found)
            names[str(shape[1])] = "sequence"
        input_shapes.append(_shape(metas[name], names))
    output = next(node for node in exported.graph.nodes if node.op == "output").args[0][0]
    meta = output.meta["val"]
    if meta.dtype not in (torch.float32, PRECISIONS[precision]):
        raise NotExportable(
            f"the model returns {str(meta.dtype).removeprefix('torch.')}; expected float32"
        )
    shape = _shape(meta, names)
    if shape and shape[0] != "batch":
        raise NotExportable(
            f"the model returns a tensor of the shape {shape}; expected logits, with the number of "
            "samples as their first dimension, or a loss without dimensions"
        )
    if "sequence" in [*shape[:1], *shape[2:]]:
        raise NotExportable(
            f"the model returns a tensor of the shape {shape}; expected the length of sequences "
            "only as its second size"
        )
    return Traced(program, input_shapes, shape, lengths)


def _remedy(error: Exception) -> str:
    """Returns what to do about an error of torch.export."""
    text = str(error)
    if "data-dependent" in text or "GuardOnDataDependent" in type(error).__name__:
        return (
            "A branch, a loop or a size depends on values of tensors, so each batch would have a "
            "graph of its own: compute both sides, and choose with torch.where."
        )
    if "numpy" in text.lower():
        return "forward calls NumPy, which no graph has: use torch's operators on tensors."
    return (
        "The batch must be free: no code may depend on the number of samples. "
        "torch.export.draft_export tells more."
    )


def both(one: Lengths, other: Lengths) -> Lengths:
    """Returns the lengths that are in both ranges."""
    ends = [end for _, end in (one, other) if end is not None]
    return max(one[0], other[0]), min(ends, default=None)


def _lengths(
    exported: torch.export.ExportedProgram, length: Any, model: torch.nn.Module, example: int
) -> Lengths:
    """Returns the range of the free length of sequences."""
    if not isinstance(length, torch.SymInt) or length.node.expr.is_number:
        raise NotExportable(
            f"dynamic: the model's code fixes the length of sequences to {length}, so it cannot be "
            "free; leave \"sequence\" out"
        )
    found = exported.range_constraints[length.node.expr]
    longest = None if found.upper > MAX_LENGTH else int(found.upper)
    # Models of transformers say for how many positions they are made. Rotary ones can have more.
    positions = getattr(getattr(model, "config", None), "max_position_embeddings", None)
    if isinstance(positions, int) and positions >= example:
        longest = positions if longest is None else min(longest, positions)
    return int(found.lower), longest


# Operators whose result has the values of their first argument, and no others. (aten.view.dtype
# has the same bits.)
_SAME_VALUES = {
    f"{name}.default" for name in ("view", "reshape", "contiguous", "clone", "unsqueeze", "alias")
}


def _keeps_values(node: Node) -> bool:
    _, operator = node["op"].split(".", 1)
    to_int64 = node["args"].get("dtype") == {"dtype": "int64"}
    return operator in _SAME_VALUES or (operator == "to.dtype" and to_int64)


def ranges(program: Program, state: State) -> dict[str, int]:
    """Returns for inputs that are the indices of an embedding its number of rows."""
    inputs = {name: name for name in program.inputs}
    found: dict[str, int] = {}
    for node in program.nodes:
        args = node["args"]
        if _keeps_values(node):
            (argument, *_) = args.values()
            for value in names_in(argument, "value"):
                if value in inputs and isinstance(node["out"][0], str):
                    inputs[node["out"][0]] = inputs[value]
        elif node["op"] == "aten.embedding.default":
            rows = [state.parameters[one].shape[0] for one in names_in(args["weight"], "parameter")]
            for value in names_in(args["indices"], "value"):
                if value in inputs and rows:
                    known = found.get(inputs[value], rows[0])
                    found[inputs[value]] = min(known, rows[0])
    return found


def _shape(meta: torch.Tensor, names: Mapping[str, str]) -> list[int | str]:
    shape: list[int | str] = []
    for one in meta.shape:
        if not isinstance(one, int) and str(one) not in names:
            raise NotExportable(
                f"the model returns a tensor of the shape {list(meta.shape)}; expected logits, "
                "with the number of samples as their first dimension, and numbers or the length of "
                "sequences as the others"
            )
        shape.append(one if isinstance(one, int) else names[str(one)])
    return shape
