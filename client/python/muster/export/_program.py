"""Programs: the graphs of a model in Muster's own format (docs/reference/exported-format.md).

A program is a list of nodes, each the call of one operator. The nodes are plain dictionaries, as
they stand in train.json and evaluate.json:

    {"op": "aten.linear.default", "args": {"input": ..., "weight": ..., "bias": ...},
     "out": ["linear"], "in": "encoder.layers.0.linear1"}

An argument is one of:
- null, true, false, a number, or a text; {"float": "inf"} for a number that JSON does not have
- {"value": NAME}: the result of an earlier node, or an input
- {"parameter": NAME}, {"buffer": NAME}, {"constant": NAME}: a tensor of the model
- {"dtype": "float32"}, {"layout": "strided"}, {"memory_format": "preserve_format"}
- {"device": "worker"}: the device on which the worker computes
- a list of arguments
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch

Node = dict[str, Any]
Argument = Any

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


class NotExportable(Exception):
    """A model that would not train in Muster as it trains in Python. The text says what to do."""


@dataclasses.dataclass
class Program:
    """The graph of a model in one mode."""

    # The names of the values that are the model's inputs, in the order of the manifest.
    inputs: list[str]
    nodes: list[Node]
    output: Argument
    # The kind of each value: "tensor", "int", "float" or "bool".
    kinds: dict[str, str]


def names_in(argument: Argument, kind: str) -> Iterator[str]:
    """Yields the names in an argument: of values, or of tensors of this kind."""
    if isinstance(argument, list):
        for one in argument:
            yield from names_in(one, kind)
    elif isinstance(argument, dict) and kind in argument:
        yield argument[kind]


def arguments_of(node: Node) -> Iterator[Argument]:
    """Yields the arguments of a node, which is the call of an operator or of a unit."""
    args = node["args"]
    yield from args.values() if isinstance(args, dict) else args


def results_of(node: Node) -> Iterator[str]:
    """Yields the names of the values that a node makes."""
    for one in node["out"]:
        if isinstance(one, list):
            yield from (name for name in one if name is not None)
        elif one is not None:
            yield one


def schema_of(node: Node) -> torch._C.FunctionSchema | None:
    """Returns the schema of the node's operator, or None for functions of Python."""
    namespace, name, overload = node["op"].split(".")
    if namespace == "python":
        return None
    return getattr(getattr(getattr(torch.ops, namespace), name), overload)._schema


# Operators that change their statistics in training, and whose schemas do not say so.
_STATISTICS = {
    "batch_norm": "training",
    "native_batch_norm": "training",
    "instance_norm": "use_input_stats",
}

# Operators that may return an argument itself or a view of one, and whose schemas do not say so.
_MAY_RETURN = {
    "alpha_dropout",
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "broadcast_tensors",
    "dropout",
    "feature_alpha_dropout",
    "feature_dropout",
    "meshgrid",
    "type_as",
}


def written(node: Node) -> list[Argument]:
    """Returns the arguments that the node's operator changes in place."""
    schema = schema_of(node)
    if schema is None:
        return []
    training = _STATISTICS.get(node["op"].split(".")[1])
    if training is not None and node["args"].get(training) is not False:
        return [node["args"][one] for one in ("running_mean", "running_var")]
    return [
        node["args"][one.name]
        for one in schema.arguments
        if one.alias_info is not None and one.alias_info.is_write
    ]


def aliased(node: Node) -> list[Argument]:
    """Returns the arguments of which a result is a view, or which a result is."""
    schema = schema_of(node)
    if schema is None:
        return []
    if node["op"].split(".")[1] in _MAY_RETURN:
        return list(node["args"].values())
    return [node["args"][one.name] for one in schema.arguments if one.alias_info is not None]


def draws(node: Node) -> bool:
    """Returns whether the node's operator draws random numbers."""
    namespace, name, overload = node["op"].split(".")
    if namespace == "python":
        return False
    packet = getattr(getattr(torch.ops, namespace), name)
    if torch.Tag.nondeterministic_seeded not in getattr(packet, overload).tags:
        return False
    # Dropout that is off, or drops nothing, has the same tag.
    args = node["args"]
    off = any(args.get(one) is False for one in ("train", "training"))
    probabilities = ("dropout_p", "dropout") + (("p",) if "dropout" in name else ())
    return not off and not any(args.get(one) == 0 for one in probabilities)


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


def without_unused(program: Program) -> Program:
    """Returns the program without nodes of which nobody uses a result. Nodes that change a tensor
    in place or draw random numbers stay."""
    used = set(names_in(program.output, "value"))
    kept = []
    for node in reversed(program.nodes):
        if not (used.intersection(results_of(node)) or written(node) or draws(node)):
            continue
        kept.append(node)
        for one in arguments_of(node):
            used.update(names_in(one, "value"))
    return dataclasses.replace(program, nodes=kept[::-1])
