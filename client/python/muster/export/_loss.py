"""Finds out what a model's own loss is the mean of. Muster adds up the losses of batches of
different sizes, so it must know how many terms each one is the mean of.

A mean is tried: the loss of two batches together must be the mean of both losses, weighted by their
terms. The batches are rows of the example in which parts of one input have another value."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
from collections.abc import Iterator
from typing import Any

import torch

from muster.export import _check
from muster.export._nodes import NotExportable
from muster.export._sequences import noise
from muster.export._trace import Forward, Inputs, mode

# The target that PyTorch's losses leave out.
IGNORED = -100

# The largest difference from the right mean, and the smallest from a wrong one, both relative.
_SAME, _OTHER = 1e-5, 1e-4

# The samples of the two batches.
_FIRST, _SECOND = 3, 2


@dataclasses.dataclass(frozen=True)
class _Mean:
    """What a loss may be the mean of: the samples, or the values of an input that are not
    ignored, from the position `first` of each sample on."""

    input: str = ""
    first: int = 0

    def terms(self, batch: Inputs) -> int:
        if not self.input:
            return len(next(iter(batch.values())))
        targets = batch[self.input]
        return int((targets[:, self.first :] if self.first else targets).ne(IGNORED).sum())


@dataclasses.dataclass
class _Trial:
    what: str
    parts: list[Inputs]
    losses: list[float]  # of both parts, and of both together

    def difference(self, mean: _Mean) -> float:
        """Returns how far the losses are from this mean."""
        one, two, both = self.losses
        first, second = (mean.terms(part) for part in self.parts)
        if first + second == 0:
            return math.inf
        expected = (one * first + two * second) / (first + second)
        return abs(both - expected) / max(abs(one), abs(two), 1e-12)


def terms(forward: Forward, inputs: Inputs) -> dict[str, Any]:
    """Returns the `terms` of the manifest: {} for the samples, or the input whose values the loss
    counts. Raises NotExportable if none fits, or if the example cannot tell."""
    trials = _trials(forward, inputs, training=False)
    if all(_equal(trial.losses) for trial in trials):
        # The last layer may begin with zeros.
        with noise(forward.model):
            trials = _trials(forward, inputs, training=False)
    mean = _the_mean(trials, inputs)
    for trial in _trials(forward, inputs, training=True):
        if not trial.difference(mean) <= 10 * _SAME:
            raise NotExportable(
                f"in training the loss is not the mean that it is in evaluation: {trial.what}, "
                f"{_told(trial)}. Return the same mean in both"
            )
    if not mean.input:
        return {}
    if inputs[mean.input].dtype != torch.int64:
        raise NotExportable(
            f"example: '{mean.input}' has the targets of the loss, and is "
            f"{str(inputs[mean.input].dtype).removeprefix('torch.')}; expected int64"
        )
    return {"input": mean.input, "first": mean.first, "ignored": IGNORED}


def _the_mean(trials: list[_Trial], inputs: Inputs) -> _Mean:
    if not trials:
        raise NotExportable(
            f"the loss of {_FIRST} and of {_SECOND} samples in evaluation is no finite number; "
            "expected a mean"
        )
    means = [_Mean()]
    for name, example in inputs.items():
        # Without such a trial nobody can tell whether targets are left out.
        if any(trial.what == _told_of(name, IGNORED) for trial in trials):
            means += [_Mean(name, first) for first in range(_firsts(example))]
    worst = {mean: max(trial.difference(mean) for trial in trials) for mean in means}
    found = [mean for mean in means if worst[mean] <= _SAME]
    if len(found) == 1 and all(worst[mean] >= _OTHER for mean in means if mean != found[0]):
        return found[0]
    if found:
        raise NotExportable(
            "the example cannot tell what the loss is the mean of: several means fit the losses of "
            "its batches. Give an example with different samples, and a model whose loss depends "
            "on them"
        )
    # The trial that speaks most against the best of the means.
    best = min(means, key=lambda mean: worst[mean])
    trial = max(trials, key=lambda one: one.difference(best))
    raise NotExportable(
        f"the loss is no mean over samples, nor over targets that are not {IGNORED}: {trial.what}, "
        f"{_told(trial)}. Return such a mean (masks and weights of samples, and weights of "
        "classes, change what a loss is the mean of), or return logits and set `loss` in the job "
        "file"
    )


def _told(trial: _Trial) -> str:
    one, two, both = trial.losses
    return (
        f"the loss of {_FIRST} samples is {one:.6g}, of {_SECOND} others {two:.6g}, and of all "
        f"together {both:.6g}"
    )


def _told_of(name: str, value: Any) -> str:
    return f"where parts of '{name}' are {value}"


def _firsts(example: torch.Tensor) -> int:
    """Returns how many positions may be the first one of a sample that counts: 2 where a model may
    shift its targets."""
    if example.dtype not in (torch.int64, torch.int32):
        return 0
    return 2 if example.dim() > 1 and example.shape[1] > 1 else 1


def _values(example: torch.Tensor) -> list[Any]:
    """Returns values that parts of an input may have. A mask has zeros, targets may be left out,
    and classes may have weights."""
    if example.dtype == torch.bool:
        return [False, True]
    if example.is_floating_point():
        return [0.0]
    valid = example[example != IGNORED]
    largest = int(valid.max()) if len(valid) else 0
    return list(dict.fromkeys([IGNORED, 0, 1, largest, largest + 1]))


def _trials(forward: Forward, inputs: Inputs, *, training: bool) -> list[_Trial]:
    """Returns the trials in which the model gives finite losses. In training, only if these do not
    depend on random numbers."""
    rows = _check.samples(inputs, _FIRST + _SECOND)
    for name, one in rows.items():
        if not one.is_floating_point() and one.dtype != torch.bool:
            # What the example leaves out counts first.
            valid = one[one != IGNORED]
            if len(valid):
                rows[name] = torch.where(one == IGNORED, valid[0], one)
    parts = [
        {name: one[begin:end] for name, one in rows.items()}
        for begin, end in itertools.pairwise((0, _FIRST, _FIRST + _SECOND))
    ]
    tried = [("with the rows of the example", parts)]
    for name, example in inputs.items():
        for value in _values(example):
            changed = [
                {**part, name: _with(part[name], value, index)} for index, part in enumerate(parts)
            ]
            tried.append((_told_of(name, value), changed))
    with _kept(forward.model), mode(forward.model, training), torch.no_grad():
        for module in forward.model.modules():
            # With the statistics of a batch no loss is a mean over samples.
            if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
                module.training = False
        if training and _loss(forward, rows, 1) != _loss(forward, rows, 2):
            return []
        found = [_Trial(what, batches, _losses(forward, batches)) for what, batches in tried]
    return [trial for trial in found if all(map(math.isfinite, trial.losses))]


def _with(values: torch.Tensor, value: Any, index: int) -> torch.Tensor:
    """Returns the rows of the first or of the second batch with another value in so many places
    that every mean has other weights."""
    changed = values.clone()
    if values.dim() == 1 or values[0].numel() == 1:
        changed[1 + index :] = value
    elif values.shape[1] == 1:
        changed.flatten(1)[index::2, 1:] = value
    elif index == 0:
        changed[0::2, 1:] = value
        changed[1::2, 2:] = value
    else:
        changed[:, 4:] = value
        changed[1:, -1:] = value
    return changed


def _losses(forward: Forward, parts: list[Inputs]) -> list[float]:
    both = {name: torch.cat([one[name] for one in parts]) for name in parts[0]}
    return [_loss(forward, batch, 1) for batch in (*parts, both)]


def _loss(forward: Forward, batch: Inputs, seed: int) -> float:
    """Returns the loss, or nan if the model does not take these values."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            return float(forward(*batch.values()))
        except NotExportable:
            raise
        except Exception:
            return math.nan


def _equal(losses: list[float]) -> bool:
    return max(losses) - min(losses) <= _SAME * max(map(abs, losses), default=0.0)


@contextlib.contextmanager
def _kept(model: torch.nn.Module) -> Iterator[None]:
    """Gives buffers their values back."""
    before = [
        (module, name, one, one.clone())
        for module in model.modules()
        for name, one in module._buffers.items()
        if one is not None
    ]
    try:
        yield
    finally:
        for module, name, one, value in before:
            one.copy_(value)
            module._buffers[name] = one
