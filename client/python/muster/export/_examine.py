"""Traces a model in training and in evaluation, compares the graphs with the model, and finds out
what the manifest says."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from muster.export import _check, _loss, _sequences, _trace, _units
from muster.export._nodes import NotExportable
from muster.export._units import Unit

# The version of the format. Equal to kFormat of worker/models/exported/graph.h.
FORMAT = 2


@dataclasses.dataclass(frozen=True)
class Case:
    """What is exported of a model: the arguments of muster.export.export."""

    inputs: _trace.Inputs
    # The model gets its inputs without names.
    positional: bool
    loss: Callable[..., torch.Tensor] | None
    units: str | Iterable[str]
    precision: str
    any_length: bool

    def forward(self, model: torch.nn.Module) -> _trace.Forward:
        return _trace.Forward(
            model, list(self.inputs), positional=self.positional, loss=self.loss
        )


@dataclasses.dataclass
class Findings:
    """What the folder's files contain."""

    state: _trace.State
    # "train" and "evaluate".
    traced: dict[str, _trace.Traced]
    # The contents of train.json and evaluate.json by name.
    graphs: dict[str, Any]
    cutter: _units.Cutter
    precisions: set[str]
    # What a loss is the mean of. None: the model returns logits.
    terms: dict[str, Any] | None
    causal: bool | None
    # What the comparison found.
    reference: dict[str, Any]


def examine(model: torch.nn.Module, case: Case) -> Findings:
    inputs, precision = case.inputs, case.precision
    state = _trace.State.of(model)
    forward = case.forward(model)
    tracing = Tracing(forward, case)
    traced = tracing.traced(state, precision)
    graphs, cutter = tracing.cut(traced)
    length = next(iter(inputs.values())).shape[1] if case.any_length else None
    batches = [(_check.samples(inputs, count), length) for count in (1, 2, 5)]
    batches += [
        (_sequences.of_length(batches[1][0], other), other)
        for other in _other_lengths(length, traced["train"].lengths)
    ]
    reference = {
        name: [
            _check.compare(
                forward,
                state,
                graph,
                batch,
                training=name == "train",
                precision=precision,
                length=of_length,
            )
            for batch, of_length in batches
        ]
        for name, graph in graphs.items()
    }
    # A model whose graphs differ in one other precision is not tried in the next.
    precisions = {precision} | set(
        itertools.takewhile(
            lambda other: _same(graphs, tracing, state, other),
            [one for one in _trace.PRECISIONS if one != precision],
        )
    )
    terms = None if traced["train"].output_shape else _loss.terms(forward, inputs)
    causal = None
    if terms is None:
        with _trace.mode(model, False):
            causal = _sequences.is_causal(forward, inputs)
    return Findings(state, traced, graphs, cutter, precisions, terms, causal, reference)


@dataclasses.dataclass(frozen=True)
class Tracing:
    """What is traced, in each precision."""

    forward: _trace.Forward
    case: Case

    def traced(self, state: _trace.State, precision: str) -> dict[str, _trace.Traced]:
        """Returns what was traced in training and in evaluation. Adds to state.constants."""
        inputs = self.case.inputs
        several = _check.samples(inputs, max(3, len(next(iter(inputs.values())))))
        traced = {
            name: _trace.trace(
                self.forward,
                several,
                state,
                training=name == "train",
                precision=precision,
                any_length=self.case.any_length,
            )
            for name in ("train", "evaluate")
        }
        train, evaluate = traced.values()
        if train.output_shape != evaluate.output_shape:
            raise NotExportable(
                f"the model returns another thing in training ({train.output_shape}) than in "
                f"evaluation ({evaluate.output_shape}); expected the same. A shape [] is a loss"
            )
        if train.lengths is not None and evaluate.lengths is not None:
            train.lengths = evaluate.lengths = _trace.both(train.lengths, evaluate.lengths)
        return traced

    def cut(
        self, traced: Mapping[str, _trace.Traced]
    ) -> tuple[dict[str, Any], _units.Cutter]:
        """Returns the contents of train.json and evaluate.json by name, and the units."""
        cutter = _units.Cutter(
            _units.choose(self.forward.model, self.case.units),
            [one.program for one in traced.values()],
        )
        graphs = {
            name: {
                "format": FORMAT,
                "torch": torch.__version__,
                "units": [_unit(one) for one in units],
            }
            for name, units in zip(traced, cutter.cut(), strict=True)
        }
        return graphs, cutter


def _other_lengths(length: int | None, lengths: _trace.Lengths | None) -> list[int]:
    """Returns a shorter and a longer sequence for the comparison, if their length is free."""
    if length is None or lengths is None:
        return []
    shortest, longest = lengths
    return [
        one
        for one in (max(length // 2, shortest), length + 1)
        if one != length and (longest is None or one <= longest)
    ]


def _same(
    graphs: Mapping[str, Any],
    tracing: Tracing,
    state: _trace.State,
    precision: str,
) -> bool:
    """Returns whether the model has the same graphs in another precision. Code that asks for the
    type of a tensor has other ones."""
    try:
        if not same_graphs(graphs, tracing, state, precision):
            return False
        for name, graph in graphs.items():
            _check.compare(
                tracing.forward,
                state,
                graph,
                _check.samples(tracing.case.inputs, 2),
                training=name == "train",
                precision=precision,
            )
    except NotExportable:
        return False
    return True


def same_graphs(
    graphs: Mapping[str, Any], tracing: Tracing, state: _trace.State, precision: str
) -> bool:
    scratch = dataclasses.replace(state, constants=dict(state.constants))
    others, _ = tracing.cut(tracing.traced(scratch, precision))
    return others == graphs and all(
        one.dtype == scratch.constants[name].dtype and torch.equal(one, scratch.constants[name])
        for name, one in state.constants.items()
    )


def _unit(unit: Unit) -> dict[str, Any]:
    return {
        "name": unit.name, "inputs": unit.inputs, "nodes": unit.nodes, "outputs": unit.outputs
    }
