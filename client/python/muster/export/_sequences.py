"""Sequences: inputs whose length may be free, and logits that do not depend on later tokens."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import torch

# A part of a model's logits below this size is an unknown token's, and no measure of the others.
_HUGE = 1e30


def names(inputs: Mapping[str, torch.Tensor]) -> list[str]:
    """Returns the inputs whose second dimension is the length of sequences: that of the first
    input."""
    first = next(iter(inputs.values()))
    if first.dim() < 2:
        return []
    return [
        name for name, one in inputs.items() if one.dim() > 1 and one.shape[1] == first.shape[1]
    ]


def of_length(inputs: Mapping[str, torch.Tensor], length: int) -> dict[str, torch.Tensor]:
    """Returns the inputs with another length of sequences. Longer ones go on with their beginning,
    backwards."""
    made = dict(inputs)
    for name in names(inputs):
        one = inputs[name]
        made[name] = torch.cat([one, one.flip(1)], 1)[:, :length].contiguous()
    return made


def is_causal(forward: torch.nn.Module, inputs: Mapping[str, torch.Tensor]) -> bool | None:
    """Returns whether logits [batch, context, vocabulary] of one input of tokens [batch, context]
    do not depend on later tokens, for a model in evaluation. None: the model has other inputs or
    another result, or the example cannot tell."""
    (tokens, *others) = inputs.values()
    if others or tokens.dtype != torch.int64 or tokens.dim() != 2:
        return None
    with torch.no_grad():
        found = _trial(forward, tokens)
        if not found:
            return found
        # Parts of a model may begin with zeros, and then nothing depends on anything.
        with noise(forward):
            return _trial(forward, tokens)


def _trial(forward: torch.nn.Module, tokens: torch.Tensor) -> bool | None:
    whole = forward(tokens)
    if whole.dim() != 3 or whole.shape[:2] != tokens.shape:
        return None
    length = tokens.shape[1]
    tried = None
    for kept in {1, length // 2, length - 1} - {0, length}:
        changed = tokens.clone()
        changed[:, kept:] = tokens[:, : length - kept]
        if changed.equal(tokens):
            continue
        tried = True
        before, after = whole[:, :kept], forward(changed)[:, :kept]
        sizes = before.abs()
        usual = sizes[sizes < _HUGE].median() if (sizes < _HUGE).any() else sizes.new_zeros(())
        if not bool(((after - before).abs() <= 1e-5 * sizes.clamp(min=float(usual))).all()):
            return False
    return tried


@contextlib.contextmanager
def noise(model: torch.nn.Module) -> Iterator[None]:
    """Adds random numbers to the parameters for a while."""
    before = {name: one.detach().clone() for name, one in model.named_parameters()}
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for one in model.parameters():
            one.add_(torch.randn(one.shape, generator=generator), alpha=0.1)
    try:
        yield
    finally:
        with torch.no_grad():
            for name, one in model.named_parameters():
                one.copy_(before[name])
