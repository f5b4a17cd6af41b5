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
from collections.abc import Iterator
from typing import Any

import torch

from muster.export._operators import COMPUTING

Node = dict[str, Any]
Argument = Any


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


def refuse_foreign(program: Program) -> None:
    """Raises NotExportable for an operator that no worker runs."""
    for node in program.nodes:
        namespace, name, _ = node["op"].split(".")
        computes = name in COMPUTING or name.removesuffix("_") in COMPUTING
        if namespace == "aten" and name in ("item", "_local_scalar_dense"):
            raise NotExportable(
                f"{node['in'] or 'the model'}: takes a number out of a tensor (.item(), float(x)), "
                "and each batch has another number; leave it a tensor, with .detach() if no "
                "gradient may flow"
            )
        if namespace == "python" or (namespace == "aten" and computes):
            continue
        raise NotExportable(
            f"{node['in'] or 'the model'}: calls {namespace}::{name}, which no worker runs; "
            "expected operators of torch that compute with tensors. Use other code of the library "
            "that is made of such operators (in transformers, for Mixtral, "
            "model.set_experts_implementation('batched_mm'))"
        )


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
