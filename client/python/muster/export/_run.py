"""Runs the files of an exported model with torch, as the worker does. The exporter compares the
result with the model itself before it says that the model is exported."""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from muster.export._nodes import Argument
from muster.export._program import PYTHON_OPERATORS

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: function for function, name in PYTHON_OPERATORS.items()
}
_FUNCTIONS["not"] = operator.not_


class Runner:
    """A graph with the tensors of its model."""

    def __init__(self, graph: Mapping[str, Any], tensors: Mapping[str, Mapping[str, torch.Tensor]]):
        """graph: the contents of train.json or evaluate.json. tensors: by kind ("parameter",
        "buffer", "constant") and name."""
        self._units = {unit["name"]: unit for unit in graph["units"]}
        self._tensors = tensors

    def run(self, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        (output,) = self._run("", inputs)
        return output

    def _run(self, name: str, inputs: Sequence[Any]) -> list[Any]:
        unit = self._units[name]
        values = {one["value"]: given for one, given in zip(unit["inputs"], inputs, strict=True)}
        for node in unit["nodes"]:
            if "call" in node:
                found = self._run(node["call"], [self._of(one, values) for one in node["args"]])
                values.update(zip(node["out"], found, strict=True))
                continue
            with _mode(node):
                found = self._call(node, values)
            results = [found] if len(node["out"]) == 1 else found
            for name_, result in zip(node["out"], results if node["out"] else (), strict=True):
                if isinstance(name_, list):
                    values.update(zip(name_, result, strict=True))
                else:
                    values[name_] = result
        return [self._of(one, values) for one in unit["outputs"]]

    def _call(self, node: Mapping[str, Any], values: Mapping[str, Any]) -> Any:
        namespace, name, overload = node["op"].split(".")
        args = {key: self._of(one, values) for key, one in node["args"].items()}
        if namespace == "python":
            return _FUNCTIONS[name](*args.values())
        function = getattr(getattr(getattr(torch.ops, namespace), name), overload)
        # A few operators have an argument called "self", which is no keyword.
        ordered = [one for one in function._schema.arguments if not one.kwarg_only]
        return function(
            *(args[one.name] for one in ordered),
            **{key: one for key, one in args.items() if key not in {a.name for a in ordered}},
        )

    def _of(self, argument: Argument, values: Mapping[str, Any]) -> Any:
        if isinstance(argument, list):
            return [self._of(one, values) for one in argument]
        if not isinstance(argument, dict):
            return argument
        ((kind, name),) = argument.items()
        if kind == "value":
            return values[name]
        if kind in self._tensors:
            return self._tensors[kind][name]
        if kind == "float":
            return math.nan if name == "nan" else float(name)
        if kind == "device":
            return torch.device("cpu")
        return getattr(torch, name)


@contextlib.contextmanager
def _mode(node: Mapping[str, Any]) -> Any:
    with contextlib.ExitStack() as stack:
        if "grad" in node:
            stack.enter_context(torch.set_grad_enabled(node["grad"]))
        if "autocast" in node:
            mode = node["autocast"]
            dtype = None if mode["dtype"] is None else getattr(torch, mode["dtype"])
            stack.enter_context(
                torch.autocast("cpu", dtype, mode["enabled"], cache_enabled=mode["cache"])
            )
        yield
