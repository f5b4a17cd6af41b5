"""Large models of transformers, on the meta device: their graphs are made without their values.
What is compared is a model of the same class that has values, with one layer of each kind."""

from __future__ import annotations

import copy
import dataclasses
import re
from typing import Any

import torch

from muster.export import _trace
from muster.export._examine import Case, Findings, Tracing, examine as examine_with_values
from muster.export._nodes import NotExportable

# The vocabulary of the small model. A larger one only needs memory.
_TOKENS = 512


def examine(model: torch.nn.Module, case: Case) -> Findings:
    small, place = _small(model)
    small_case = dataclasses.replace(case, inputs=_inputs(case.inputs))
    # Traced as the large one, because some graphs have other nodes on the meta device.
    found = examine_with_values(small, small_case, copy.deepcopy(small).to("meta"))
    state = _trace.State.of(model)
    tracing = Tracing(case.forward(model), case, device="meta")
    graphs, traced, cutter = tracing.graphs(state, case.precision)
    values = {**found.state.constants, **found.state.buffers}
    for name, one in state.constants.items():
        if not one.is_meta:
            continue
        of_small = re.sub(
            r"\.(\d+)\.", lambda match: f".{place.get(int(match[1]), 0)}.", name, count=1
        )
        # A tensor that forward makes (train:...) may be another one in each layer.
        value = None if ":" in name else values.get(name, values.get(of_small))
        if value is None or value.shape != one.shape or value.dtype != one.dtype:
            raise NotExportable(
                f"'{name}' is a tensor without values, which the weights do not have either; "
                "export the model with its values"
            )
        state.constants[name] = value
    compared = {"model": f"{len(set(place.values()))} of {len(place)} layers", **found.reference}
    return dataclasses.replace(
        found, state=state, graphs=graphs, traced=traced, cutter=cutter, reference=compared
    )


def _small(model: torch.nn.Module) -> tuple[torch.nn.Module, dict[int, int]]:
    """Returns a model of the same class, with values, and the layer there for each layer."""
    config: Any = getattr(model, "config", None)
    layers = getattr(config, "num_hidden_layers", None)
    if not any(base.__name__ == "PreTrainedModel" for base in type(model).__mro__) or not layers:
        raise NotExportable(
            "weights: expected a language model of transformers on the meta device; other models "
            "are exported with their values"
        )
    kinds = list(getattr(config, "layer_types", None) or ["layer"] * layers)
    first = {kind: kinds.index(kind) for kind in dict.fromkeys(kinds)}
    made = copy.deepcopy(config)
    made.num_hidden_layers = len(first)
    if getattr(config, "layer_types", None):
        made.layer_types = list(first)
    made.vocab_size = min(config.vocab_size, _TOKENS)
    for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
        if isinstance(getattr(made, name, None), int) and getattr(made, name) >= made.vocab_size:
            setattr(made, name, None)
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.manual_seed(0)
        small: torch.nn.Module = type(model)(made).float()
    small.train(model.training)
    frozen = {name for name, one in model.named_parameters() if not one.requires_grad}
    for name, one in small.named_parameters():
        one.requires_grad_(name not in frozen)
    places = {kind: place for place, kind in enumerate(first)}
    return small, {layer: places[kind] for layer, kind in enumerate(kinds)}


def _inputs(inputs: _trace.Inputs) -> _trace.Inputs:
    """Returns the inputs with tokens of the small vocabulary."""
    return {
        name: one if one.is_floating_point() or one.dtype == torch.bool
        else torch.where(one >= _TOKENS, one % _TOKENS, one)
        for name, one in inputs.items()
    }
