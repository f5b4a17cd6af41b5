"""Compares an exported model with the model itself: results, gradients and buffers."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from muster.export._nodes import NotExportable
from muster.export._run import Runner
from muster.export._trace import Forward, Inputs, State, autocast, describe, mode

# The largest difference relative to the largest number. Kernels may add in another order, and in
# half precision this rounds the other way.
_TOLERANCES = {"float32": 1e-5, "bfloat16": 3e-2, "float16": 5e-3}


@dataclasses.dataclass
class Outcome:
    """What one forward and backward give."""

    result: torch.Tensor
    gradients: dict[str, torch.Tensor | None]
    buffers: dict[str, torch.Tensor]


def refuse_lost_gradients(model: torch.nn.Module) -> None:
    """Raises NotExportable for hooks on gradients, which torch.export leaves out in silence."""
    problems = []
    everywhere = torch.nn.modules.module
    if everywhere._global_backward_hooks or everywhere._global_backward_pre_hooks:
        problems.append("torch.nn.modules.module has backward hooks for all modules")
    for path, module in model.named_modules():
        if type(module).__name__ == "OptimizedModule":
            raise NotExportable(
                f"module '{path}' is made by torch.compile; export the module from which it was "
                "made (module._orig_mod)"
            )
        if module._backward_hooks or module._backward_pre_hooks:
            problems.append(f"module '{path}' has a backward hook")
    for name, parameter in model.named_parameters():
        if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
            problems.append(f"parameter '{name}' has a hook on its gradient")
    if problems:
        raise NotExportable(
            f"{'; '.join(problems)}. torch.export leaves hooks out, so training would differ; "
            "compute the same in forward, and remove the hook"
        )


@contextlib.contextmanager
def refusing_hooks() -> Iterator[None]:
    """Raises NotExportable where forward puts a hook on a tensor, which torch.export leaves out."""

    def refuse(*_: Any, **__: Any) -> None:
        raise NotExportable(
            "forward puts a hook on the gradient of a tensor (register_hook). torch.export leaves "
            "hooks out, so training would differ; compute the same in forward"
        )

    names = ("register_hook", "register_post_accumulate_grad_hook")
    before = {name: getattr(torch.Tensor, name) for name in names}
    for name in names:
        setattr(torch.Tensor, name, refuse)
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(torch.Tensor, name, function)


def nodes_of(result: torch.Tensor) -> list[Any]:
    """Returns the nodes of autograd's graph on which a result depends."""
    seen: dict[Any, None] = {}
    waiting: list[Any] = [result.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen[node] = None
            waiting += [one for one, _ in node.next_functions]
    return list(seen)


def depends_on(result: torch.Tensor) -> tuple[list[str], list[torch.Tensor]]:
    """Returns the names of the torch.autograd.Functions on which a result depends, and the tensors
    that would get a gradient."""
    found: set[str] = set()
    leaves: list[torch.Tensor] = []
    for node in nodes_of(result):
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            found.add(type(node).__name__.removesuffix("Backward"))
        elif hasattr(node, "variable"):
            leaves.append(node.variable)
    return sorted(found - {"CheckpointFunction"}), leaves


def refuse_lost_backward(result: torch.Tensor, state: State) -> None:
    """Raises NotExportable if a result of the model depends on what torch.export leaves out."""
    own, leaves = depends_on(result)
    known = {id(one) for one in state.parameters.values()}
    foreign = [one for one in leaves if id(one) not in known]
    if foreign:
        raise NotExportable(
            f"forward or the loss uses {describe(foreign[0])}, a tensor that requires a gradient "
            "and is no parameter of the model, so it would not be trained"
        )
    if own:
        raise NotExportable(
            f"uses torch.autograd.Function: {', '.join(own)}. torch.export traces its forward, and "
            "loses its backward. Write the same with operators of torch (for a gradient of one's "
            "own, for example x + (y - x).detach())"
        )


def samples(inputs: Inputs, batch: int) -> Inputs:
    """Returns a batch of another size from the example's rows. Repeated rows are rotated."""
    made = {}
    for name, tensor in inputs.items():
        rows = [tensor[row % len(tensor)] for row in range(batch)]
        made[name] = torch.stack(
            [one if one.dim() == 0 else one.roll(row // len(tensor), 0)
             for row, one in enumerate(rows)]
        )
    return made


def _outcome(
    run: Callable[[], torch.Tensor],
    precision: str,
    parameters: Mapping[str, torch.Tensor],
    buffers: Mapping[str, torch.Tensor],
) -> Outcome:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(20)
        with autocast(precision):
            result = run()
    weights = torch.rand(result.shape, generator=torch.Generator().manual_seed(7))
    trained = {name: one for name, one in parameters.items() if one.requires_grad}
    gradients: dict[str, torch.Tensor | None] = dict.fromkeys(trained)
    if result.requires_grad:
        found = torch.autograd.grad(
            (result.float() * weights).sum() / result.numel(),
            list(trained.values()),
            allow_unused=True,
        )
        gradients = dict(zip(trained, found, strict=True))
    return Outcome(
        result, gradients, {name: one.detach().clone() for name, one in buffers.items()}
    )


def _differences(expected: Outcome, found: Outcome) -> Iterator[tuple[str, float]]:
    def between(a: torch.Tensor, b: torch.Tensor) -> float:
        if a.shape != b.shape or a.dtype != b.dtype:
            return math.inf
        if a.equal(b) or a.numel() == 0:
            return 0.0
        a, b = a.double(), b.double()
        return float((a - b).abs().max() / a.abs().max().clamp(min=1e-30))

    yield "the result", between(expected.result.detach(), found.result.detach())
    for name, gradient in expected.gradients.items():
        other = found.gradients[name]
        if gradient is None and other is None:
            continue
        # A parameter without a gradient is left as it is, which is not the same as a gradient of 0.
        both = gradient is not None and other is not None
        yield f"the gradient of '{name}'", between(gradient, other) if both else math.inf
    for name, buffer in expected.buffers.items():
        yield f"the buffer '{name}'", between(buffer, found.buffers[name])


def _finite(outcome: Outcome) -> bool:
    found = [outcome.result, *(one for one in outcome.gradients.values() if one is not None)]
    return all(bool(one.detach().isfinite().all()) for one in found)


def compare(
    forward: Forward,
    state: State,
    graph: Mapping[str, Any],
    inputs: Inputs,
    *,
    training: bool,
    precision: str,
    length: int | None = None,
) -> dict[str, Any]:
    """Runs the model and the graph with the same seed. Returns what was found, for the manifest.
    length: of the sequences, if it is free. Raises NotExportable with what differs."""
    buffers = {name: one.detach().clone() for name, one in state.buffers.items()}
    count = len(next(iter(inputs.values())))
    told = f"{count} samples" + ("" if length is None else f" of the length {length}")
    batch = {"samples": count} | ({} if length is None else {"length": length})
    with mode(forward.model, training), refusing_hooks():
        try:
            expected = _outcome(
                lambda: forward(*inputs.values()), precision, state.parameters, state.buffers
            )
        except NotExportable:
            raise
        except Exception as error:
            # BatchNorm, for example, takes no single sample in training.
            if count == 1:
                return {**batch, "model": str(error)}
            raise NotExportable(f"the model itself fails with {told}: {error}") from error
        finally:
            with torch.no_grad():
                for name, buffer in state.buffers.items():
                    buffer.copy_(buffers[name])
    refuse_lost_backward(expected.result, state)
    runner = Runner(
        graph, {"parameter": state.parameters, "buffer": buffers, "constant": state.constants}
    )
    found = _outcome(
        lambda: runner.run(list(inputs.values())), precision, state.parameters, buffers
    )
    if training and not expected.result.requires_grad:
        raise NotExportable("in training the result does not depend on any trainable parameter")
    differences = list(_differences(expected, found))
    # A difference that is not a number is the worst.
    worst = max(differences, key=lambda one: math.inf if math.isnan(one[1]) else one[1])
    if not worst[1] <= _TOLERANCES[precision]:
        if not _finite(expected):
            raise NotExportable(
                f"in {'training' if training else 'evaluation'}, with {told}, the model's own "
                "result or a gradient is infinite or not a number, so nothing can be compared"
            )
        raise NotExportable(
            f"in {'training' if training else 'evaluation'}, with {told}, {worst[0]} "
            f"differs from the model's own by {worst[1]:.2g} of its largest number. The forward "
            "depends on something that torch.export does not see: a hook, a global variable, or "
            "values that were computed before"
        )
    # In parts, because a copy of a large gradient as float64 needs twice its memory.
    squares = sum(
        float(part.double().pow(2).sum())
        for one in found.gradients.values()
        if one is not None
        for part in one.reshape(-1).split(1 << 20)
    )
    return {
        **batch,
        "mean": float(expected.result.detach().double().mean()),
        "gradient_norm": squares**0.5,
        "difference": worst[1],
    }
