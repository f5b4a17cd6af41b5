"""Examines models whose parameters have no values. The graphs are those of the whole model. What
runs beside them has random values, and one layer of each kind; what the other layers do is known
from tensors without values."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from muster.export import _layers, _meta, _shapes, _trace
from muster.export._examine import Case, Findings, Tracing, same_graphs
from muster.export._examine import examine as examine_with_values
from muster.export._nodes import NotExportable


def examine(model: torch.nn.Module, case: Case) -> Findings:
    whole = _meta.untouched(model)
    state = _trace.State.of(whole)
    tracing = Tracing(case.forward(whole), case)
    traced = tracing.traced(state, case.precision)
    _meta.refuse_constants_without_values(state)
    lists = _layers.lists_of(whole)
    forms = {
        mode: _layers.forms_of(lists, one.program, state) for mode, one in traced.items()
    }
    alike = _layers.first_alike(list(forms.values()))
    kept = {path: sorted(set(first)) for path, first in alike.items()}
    short = _meta.with_random_values(_layers.shortened(model, kept))
    found = _examine_short(short, case, _layers.told(kept, lists))
    short_lists = _layers.lists_at(short, lists)
    _layers.refuse_differences(
        kept,
        forms,
        {
            mode: _layers.forms_of(short_lists, one.program, found.state)
            for mode, one in found.traced.items()
        },
    )
    graphs, cutter = tracing.cut(traced)
    precisions = {
        one
        for one in found.precisions
        if one == case.precision or _same(graphs, tracing, state, one)
    }
    for precision in sorted(precisions):
        _shapes.compare(model, case, precision, lists, alike)
    return dataclasses.replace(
        found,
        state=state,
        traced=traced,
        graphs=graphs,
        cutter=cutter,
        precisions=precisions,
        reference={
            "layers": {
                path: {"compared": places, "of": len(lists[path])}
                for path, places in kept.items()
            },
            **found.reference,
        },
    )


def _examine_short(short: torch.nn.Module, case: Case, told: str) -> Findings:
    try:
        # Patterns of units may name layers that are left out.
        return examine_with_values(short, dataclasses.replace(case, units="auto"))
    except Exception as error:
        raise NotExportable(
            f"{error}\n(A model with random values and {told} was compared.)"
        ) from error


def _same(graphs: Any, tracing: Tracing, state: _trace.State, precision: str) -> bool:
    try:
        return same_graphs(graphs, tracing, state, precision)
    except NotExportable:
        return False
