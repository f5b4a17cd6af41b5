"""Models without values: their parameters are on the meta device."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from muster.export._nodes import NotExportable
from muster.export._trace import State


@contextlib.contextmanager
def parameters_on_meta() -> Iterator[None]:
    """Models that are made in this scope have parameters without values, which need no memory.
    Their buffers have values, because models compute some of them and store them nowhere."""
    modules: Any = torch.nn.Module
    register = modules.register_parameter

    def on_meta(
        module: torch.nn.Module, name: str, parameter: torch.nn.Parameter | None
    ) -> None:
        if parameter is not None and not parameter.is_meta:
            _take_values(name, parameter)
        register(module, name, parameter)

    modules.register_parameter = on_meta
    try:
        yield
    finally:
        modules.register_parameter = register


def _take_values(name: str, parameter: torch.nn.Parameter) -> None:
    """Moves a parameter to the meta device. It stays the same object, to which the model's code may
    refer elsewhere."""
    if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
        raise NotExportable(
            f"parameter '{name}' has a hook on its gradient, which torch.export leaves out; "
            "compute the same in forward"
        )
    made = torch.nn.Parameter(parameter.detach().to("meta"), parameter.requires_grad)
    made.__dict__.update(parameter.__dict__)
    try:
        torch.utils.swap_tensors(parameter, made)
    except RuntimeError as error:
        raise NotExportable(f"parameter '{name}' cannot be left without values: {error}") from error


def has_values(model: torch.nn.Module) -> bool:
    """Returns whether the model's parameters have values. Raises NotExportable if only some do."""
    without = {name: one.is_meta for name, one in model.named_parameters()}
    if not any(without.values()):
        return True
    for name, is_meta in without.items():
        if not is_meta:
            raise NotExportable(
                f"'{name}' has values, and other parameters are on the meta device; expected all "
                "of one kind"
            )
    for name, buffer in model.named_buffers():
        if buffer.is_meta:
            raise NotExportable(
                f"the buffer '{name}' is on the meta device; expected values. Make the model in "
                "the scope muster.export.parameters_on_meta(), which leaves buffers their values"
            )
    return False


def untouched(model: torch.nn.Module) -> torch.nn.Module:
    """Returns a copy whose parameters lie in memory that nobody has written or read, so that the
    system gives none. torch.export traces it as it traces a model with values."""
    deterministic: Any = torch.utils.deterministic
    before = deterministic.fill_uninitialized_memory
    deterministic.fill_uninitialized_memory = False
    try:
        return _copy(model, lambda one: torch.empty_like(one, device="cpu"))
    finally:
        deterministic.fill_uninitialized_memory = before


def with_random_values(model: torch.nn.Module) -> torch.nn.Module:
    """Returns a copy with values as transformers begins with."""
    generator = torch.Generator().manual_seed(3)

    def values(one: torch.nn.Parameter) -> torch.Tensor:
        made = torch.empty_like(one, device="cpu").normal_(generator=generator)
        # Around 1 for norms and biases, so that a deep model of few features passes on something.
        return made.mul_(0.1).add_(1) if one.dim() < 2 else made.mul_(0.02)

    return _copy(model, values)


def fake(model: torch.nn.Module, mode: FakeTensorMode) -> torch.nn.Module:
    """Returns a copy that computes shapes only, with autograd's graph."""

    def without_values(one: torch.nn.Parameter) -> torch.Tensor:
        with mode:
            return torch.empty_like(one, device="cpu")

    made = _copy(model, without_values)
    for module in made.modules():
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = mode.from_tensor(buffer)
    return made


def _copy(
    model: torch.nn.Module, values: Callable[[torch.nn.Parameter], torch.Tensor]
) -> torch.nn.Module:
    made = copied(model)
    # With the former parameters, so that none of them is freed, whose identity a new one could get.
    known: dict[int, tuple[torch.nn.Parameter, torch.nn.Parameter]] = {}
    for module in made.modules():
        for name, one in module._parameters.items():
            if one is None:
                continue
            if id(one) not in known:
                known[id(one)] = (one, torch.nn.Parameter(values(one), one.requires_grad))
            module._parameters[name] = known[id(one)][1]
    return made


def copied(model: torch.nn.Module) -> torch.nn.Module:
    try:
        return copy.deepcopy(model)
    except (RuntimeError, TypeError, NotImplementedError) as error:
        raise NotExportable(
            f"the model cannot be copied, for the comparison without its values: {error}"
        ) from error


def refuse_constants_without_values(state: State) -> None:
    """Raises NotExportable if a constant of the graphs has no values."""
    for name, one in state.constants.items():
        if one.is_meta or type(one) is not torch.Tensor:
            raise NotExportable(
                f"the graph uses '{name}', a tensor that forward computes from no input and "
                "that has no values here; export the model with its values"
            )
