"""Runs a whole model on tensors without values, and compares which operators its layers run,
forward and backward, with which shapes. So it finds a layer that does something else than its
graph: code that asks whether it is being traced, and hooks that change gradients."""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from muster.export import _check, _meta, _trace
from muster.export._examine import Case
from muster.export._layers import Lists
from muster.export._nodes import NotExportable

# Sums: gradients of a value that several layers use are added up in one of them.
_LEFT_OUT = ("aten.add.Tensor", "aten.add_.Tensor", "aten.detach.", "prim.device.")

Call = tuple[str, str]


class _Calls(TorchDispatchMode):
    """The operators that run in this scope, in the layer that runs them ("": none)."""

    def __init__(self) -> None:
        super().__init__()
        self.of: dict[str, collections.Counter[Call]] = collections.defaultdict(
            collections.Counter
        )
        self._layer = ""
        # For each layer the numbers of the nodes of autograd that its forward made.
        self._nodes: list[tuple[range, str]] = []

    def watch(self, name: str, layer: torch.nn.Module) -> None:
        begun = 0

        def begin(*_: Any) -> None:
            nonlocal begun
            begun, self._layer = torch.autograd._get_sequence_nr(), name

        def end(*_: Any) -> None:
            self._nodes.append((range(begun, torch.autograd._get_sequence_nr()), name))
            self._layer = ""

        layer.register_forward_pre_hook(begin)
        layer.register_forward_hook(end)

    def watch_backward(self, result: torch.Tensor) -> None:
        """From now on what a node computes belongs to the layer that made the node."""
        for node in _check.nodes_of(result):
            number = node._sequence_nr()
            names = [name for numbers, name in self._nodes if number in numbers]
            node.register_prehook(
                lambda *_, name=names[0] if names else "": setattr(self, "_layer", name)
            )

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if not str(func).startswith(_LEFT_OUT):
            call = (str(func), str(tree_map(_shape, [args, kwargs or {}])))
            self.of[self._layer][call] += 1
        return result


def _shape(argument: Any) -> Any:
    if isinstance(argument, torch.Tensor):
        return (str(argument.dtype), list(argument.shape))
    return argument


def compare(
    model: torch.nn.Module,
    case: Case,
    precision: str,
    lists: Lists,
    alike: Mapping[str, Sequence[int]],
) -> None:
    """alike: for each layer the first one with the same graph. Raises NotExportable if a layer does
    something else than that one, forward or backward."""
    for training in (True, False):
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        inputs = [mode.from_tensor(one) for one in _check.samples(case.inputs, 3).values()]
        fake = _meta.fake(model, mode)
        forward, calls = case.forward(fake), _Calls()
        for element in [one for elements in lists.values() for one in elements]:
            calls.watch(element, fake.get_submodule(element))
        with _trace.mode(fake, training), mode, calls:
            try:
                with _check.refusing_hooks(), _trace.autocast(precision):
                    result = forward(*inputs)
            except NotExportable:
                raise
            except Exception as error:
                raise NotExportable(f"the model fails without values: {error}") from error
            _check.refuse_lost_backward(result, _trace.State.of(fake))
            if result.requires_grad:
                calls.watch_backward(result)
                trained = [one for one in fake.parameters() if one.requires_grad]
                torch.autograd.grad(result.float().sum(), trained, allow_unused=True)
        for path, elements in lists.items():
            for element, first in zip(elements, alike[path], strict=True):
                other = elements[first]
                if calls.of[element] != calls.of[other]:
                    raise NotExportable(
                        f"'{element}' computes something else than '{other}', and torch.export "
                        f"traces the same for both ({_told(calls.of[element], calls.of[other])}); "
                        "remove code that asks whether it is being traced, that draws in Python, "
                        "or that has a hook on gradients"
                    )


def _told(calls: collections.Counter[Call], others: collections.Counter[Call]) -> str:
    operators = sorted({operator for operator, _ in (calls - others) + (others - calls)})
    return ", ".join(operators[:5])
