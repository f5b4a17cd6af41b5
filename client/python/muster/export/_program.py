"""Converts programs of torch.export into programs of Muster's format (_nodes.py)."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch

from muster.export._nodes import Argument, Node, NotExportable, Program

# The functions of Python on sizes, which are whole numbers while a graph is traced.
PYTHON_OPERATORS: dict[Callable[..., Any], str] = {
    operator.add: "add",
    operator.sub: "sub",
    operator.mul: "mul",
    operator.floordiv: "floordiv",
    operator.truediv: "truediv",
    operator.mod: "mod",
    operator.pow: "pow",
    operator.neg: "neg",
    operator.eq: "eq",
    operator.ne: "ne",
    operator.lt: "lt",
    operator.le: "le",
    operator.gt: "gt",
    operator.ge: "ge",
    operator.and_: "and",
    operator.or_: "or",
    operator.not_: "not",
    torch.sym_max: "max",
    torch.sym_min: "min",
    torch.sym_int: "int",
    torch.sym_float: "float",
    torch.sym_not: "not",
    math.ceil: "ceil",
    math.floor: "floor",
}

# Operators that only check what the worker checks itself, with types and devices of the machine on
# which the model was exported.
_CHECKS = ("_assert_tensor_metadata", "_assert_scalar", "_assert_async", "sym_constrain_range")

# The numbers that schemas have in place of torch's objects.
_LAYOUTS = {0: torch.strided}
_MEMORY_FORMATS = {
    0: torch.contiguous_format,
    1: torch.preserve_format,
    2: torch.channels_last,
    3: torch.channels_last_3d,
}


class Converter:
    """Converts the graph of an exported program, with the graphs inside it."""

    def __init__(self, exported: torch.export.ExportedProgram, tensors: dict[str, Argument]):
        """tensors: the argument for each parameter, buffer and constant, by its name in the
        program."""
        self._exported = exported
        self._tensors = tensors
        self._nodes: list[Node] = []
        self._kinds: dict[str, str] = {}
        self._mode: dict[str, Any] = {}

    def convert(self) -> Program:
        signature = self._exported.graph_signature
        places = {
            **signature.inputs_to_parameters,
            **signature.inputs_to_buffers,
            **signature.inputs_to_lifted_tensor_constants,
        }
        given: list[Any] = []
        inputs: list[str] = []
        for node in self._exported.graph.nodes:
            if node.op != "placeholder":
                continue
            if node.name in places:
                given.append(self._tensors[places[node.name]])
            elif node.name in signature.user_inputs:
                inputs.append(node.name)
                given.append(self._value(node.name, node.meta.get("val")))
            else:
                raise NotExportable(f"the graph has an input of an unknown kind: {node.name}")
        outputs = self._run(self._exported.graph_module, given, "", "")
        if len(outputs) != 1 or signature.buffers_to_mutate:
            raise NotExportable(
                f"the graph returns {len(outputs)} values; expected one, and buffers that are "
                "changed in place"
            )
        return Program(inputs, self._nodes, outputs[0], self._kinds)

    def _value(self, name: str, meta: Any) -> Argument:
        """Returns the argument that names a new value."""
        if isinstance(meta, (torch.SymBool, bool)):
            kind = "bool"
        elif isinstance(meta, (torch.SymInt, int)):
            kind = "int"
        elif isinstance(meta, (torch.SymFloat, float)):
            kind = "float"
        else:
            kind = "tensor"
        self._kinds[name] = kind
        return {"value": name}

    def _run(
        self, module: torch.fx.GraphModule, given: list[Any], prefix: str, where: str
    ) -> list[Any]:
        """Adds the nodes of a graph with these inputs, and returns its outputs."""
        results: dict[torch.fx.Node, Any] = {}
        remaining = iter(given)
        for node in module.graph.nodes:
            found = _module_of(node)
            where = where if found is None else found
            if node.op == "placeholder":
                results[node] = next(remaining)
            elif node.op == "get_attr":
                results[node] = getattr(module, node.target)
            elif node.op == "output":
                return [self._argument(one, results, "", where) for one in node.args[0]]
            elif node.target is operator.getitem:
                of, index = node.args
                results[node] = results[of][index]
            elif isinstance(node.target, torch._ops.OpOverload):
                results[node] = self._call(node, results, prefix, where)
            elif isinstance(node.target, torch._ops.HigherOrderOperator):
                results[node] = self._inside(node, results, prefix, where)
            elif node.target in PYTHON_OPERATORS:
                args = {
                    name: self._argument(one, results, "", where)
                    for name, one in zip("ab", node.args, strict=False)
                }
                name = prefix + node.name
                self._add(f"python.{PYTHON_OPERATORS[node.target]}.default", args, [name], where)
                results[node] = self._value(name, node.meta.get("val"))
            else:
                raise NotExportable(f"{where}: calls {node.target}, which is no operator of torch")
        raise NotExportable("the graph has no output")

    def _add(self, op: str, args: dict[str, Argument], out: list[Any], where: str) -> None:
        self._nodes.append({"op": op, "args": args, "out": out, "in": where, **self._mode})

    def _call(
        self, node: torch.fx.Node, results: dict[torch.fx.Node, Any], prefix: str, where: str
    ) -> Any:
        operator_ = node.target
        schema = operator_._schema
        namespace, name = schema.name.split("::")
        if name.startswith(_CHECKS):
            return None
        args = {}
        for index, one in enumerate(schema.arguments):
            if index < len(node.args) and not one.kwarg_only:
                value = node.args[index]
            elif one.name in node.kwargs:
                value = node.kwargs[one.name]
            else:
                value = one.default_value
            kind = str(one.real_type)
            # A list of sizes may be written as one number.
            if "List[" in kind and isinstance(value, (int, float)):
                value = [value] * (one.N or 1)
            args[one.name] = self._argument(value, results, kind, where)
        meta = node.meta.get("val")
        several = len(schema.returns) > 1
        metas = list(meta) if several else [meta] if schema.returns else []
        out: list[Any] = []
        found: list[Any] = []
        for index, one in enumerate(metas):
            base = f"{prefix}{node.name}.{index}" if several else prefix + node.name
            if isinstance(one, (list, tuple)):
                names = [f"{base}.{place}" for place in range(len(one))]
                out.append(names)
                found.append([self._value(n, m) for n, m in zip(names, one, strict=True)])
            else:
                out.append(base)
                found.append(self._value(base, one))
        if (namespace, name) == ("aten", "lift_fresh_copy"):
            # A copy of a constant: torch.tensor(...) in forward.
            name, args = "clone", {**args, "memory_format": None}
        overload = schema.overload_name or "default"
        self._add(f"{namespace}.{name}.{overload}", args, out, where)
        return found if several else found[0] if found else None

    def _inside(
        self, node: torch.fx.Node, results: dict[torch.fx.Node, Any], prefix: str, where: str
    ) -> list[Any]:
        """Adds the nodes of a graph that runs in a mode of its own."""
        before = self._mode
        if node.target.__name__ == "wrap_with_set_grad_enabled":
            enabled, graph, *given = node.args
            self._mode = {**before, "grad": enabled}
        elif node.target.__name__ == "wrap_with_autocast":
            _, dtype, enabled, cache, graph, *given = node.args
            self._mode = {
                **before,
                "autocast": {
                    "enabled": enabled,
                    "dtype": None if dtype is None else _name_of(dtype),
                    "cache": cache is not False,
                },
            }
        else:
            raise NotExportable(
                f"{where}: uses torch's '{node.target.__name__}'; allowed: torch.no_grad and "
                "torch.autocast. A branch or a loop that depends on values of tensors cannot be "
                "exported: compute both sides, and choose with torch.where"
            )
        found = self._run(
            results[graph],
            [self._argument(one, results, "", where) for one in given],
            f"{prefix}{node.name}.",
            where,
        )
        self._mode = before
        return found

    def _argument(
        self, value: Any, results: dict[torch.fx.Node, Any], kind: str, where: str
    ) -> Argument:
        """Returns a value of the graph as an argument. kind: its type in the schema."""
        if isinstance(value, torch.fx.Node):
            return results[value]
        if isinstance(value, (list, tuple)):
            return [self._argument(one, results, kind, where) for one in value]
        if isinstance(value, dict) or value is None or isinstance(value, (bool, str)):
            return value
        if isinstance(value, int) and not isinstance(value, torch.SymInt):
            if "MemoryFormat" in kind:
                return {"memory_format": _name_of(_MEMORY_FORMATS[value])}
            if "Layout" in kind:
                return {"layout": _name_of(_LAYOUTS[value])}
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"float": str(value)}
        if isinstance(value, torch.dtype):
            return {"dtype": _name_of(value)}
        if isinstance(value, torch.device):
            return {"device": "worker"}
        if isinstance(value, torch.layout):
            return {"layout": _name_of(value)}
        if isinstance(value, torch.memory_format):
            return {"memory_format": _name_of(value)}
        raise NotExportable(f"{where}: an argument is a {type(value).__name__}: {value}")


def _name_of(value: Any) -> str:
    return str(value).removeprefix("torch.")


def _module_of(node: torch.fx.Node) -> str | None:
    """Returns the path of the module whose forward made the node: "" is the model itself. None: the
    path is not known."""
    stack = node.meta.get("nn_module_stack")
    path = list(stack.values())[-1][0] if stack else "_empty_nn"
    return None if path.startswith("_empty_nn") else path.removeprefix("model").removeprefix(".")
