"""Operators in place: those that no graph may have, and those across units, which become copies."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch

from muster.export._nodes import (
    Argument,
    Node,
    NotExportable,
    Program,
    aliased,
    arguments_of,
    names_in,
    results_of,
    written,
)


def refuse_changes(program: Program, *, training: bool) -> None:
    """Raises NotExportable if an operator changes a parameter or a constant, or in evaluation a
    buffer: no checkpoint would contain the change."""
    kinds = ("parameter", "constant") if training else ("parameter", "constant", "buffer")
    # The tensors of the model whose memory a value uses.
    views: dict[str, set[tuple[str, str]]] = {}

    def memory(argument: Argument) -> set[tuple[str, str]]:
        found = {(kind, name) for kind in kinds for name in names_in(argument, kind)}
        return found.union(*(views.get(name, set()) for name in names_in(argument, "value")))

    for node in program.nodes:
        for argument in written(node):
            for kind, name in sorted(memory(argument)):
                raise NotExportable(
                    f"{node['in'] or 'the model'}: {node['op']} changes the {kind} '{name}' in "
                    f"place{'' if training else ' in evaluation'}; expected changes of buffers in "
                    "training only"
                )
        of = set().union(*(memory(one) for one in aliased(node)))
        views |= dict.fromkeys(results_of(node), of)


def out_of_place(program: Program, unit_of: Callable[[Node], str]) -> Program:
    """Returns the program with copies in place of changes across units: relu instead of relu_. The
    results have the same bits and types. Changes within a unit stay, because they need less
    memory."""
    makers = dict.fromkeys(program.inputs, "an input")
    # The values that share the memory of each value.
    groups = {name: {name} for name in program.inputs}
    last_use = dict.fromkeys(names_in(program.output, "value"), len(program.nodes))
    for index, node in enumerate(program.nodes):
        for argument in arguments_of(node):
            for name in names_in(argument, "value"):
                last_use[name] = max(index, last_use.get(name, 0))
    renamed: dict[str, str] = {}
    nodes = []
    for index, original in enumerate(program.nodes):
        node = _with_names(original, renamed)
        unit = unit_of(node)
        results = list(results_of(node))
        makers.update(dict.fromkeys(results, unit))
        copied = _without_underscore(node)
        targets = [name for one in written(node) for name in names_in(one, "value")]
        if copied is not None and len(targets) == 1 and len(results) == 1:
            (target,), (result,) = targets, results
            group = groups.get(target, {target})
            crosses = any(makers[name] != unit for name in group)
            used_later = any(last_use.get(name, 0) > index for name in group - {target})
            if crosses and not used_later:
                groups[result] = {result}
                renamed |= {name: result for name, now in renamed.items() if now == target}
                renamed[target] = result
                last_use[result] = max(last_use.get(result, 0), last_use.get(target, 0))
                nodes += _with_type_of(copied, target)
                continue
        bases = {name for one in aliased(node) for name in names_in(one, "value")}
        group = set(results).union(*(groups.get(name, {name}) for name in bases))
        groups |= {name: group for name in group} if bases else {name: {name} for name in results}
        nodes.append(node)
    return dataclasses.replace(program, nodes=nodes, output=_rename(program.output, renamed))


def _with_type_of(node: Node, target: str) -> list[Node]:
    """Returns the node, and a second one if its result may have another type than the target: an
    operator in place keeps the type of what it changes."""
    tensors = [name for one in arguments_of(node) for name in names_in(one, "value")]
    if tensors == [target]:
        return [node]
    (result,) = results_of(node)
    value = f"{result}.wide"
    return [
        {**node, "out": [value]},
        {
            **node,
            "op": "aten.type_as.default",
            "args": {"self": {"value": value}, "other": {"value": target}},
            "out": [result],
        },
    ]


def _without_underscore(node: Node) -> Node | None:
    """Returns the call of the same operator that makes a new tensor; None if there is none."""
    namespace, name, overload = node["op"].split(".")
    if namespace != "aten" or not name.endswith("_"):
        return None
    packet = getattr(torch.ops.aten, name.removesuffix("_"), None)
    function = getattr(packet, overload, None) if packet is not None else None
    if function is None or [one.name for one in function._schema.arguments] != list(node["args"]):
        return None
    return {**node, "op": f"{namespace}.{name.removesuffix('_')}.{overload}"}


def _rename(argument: Argument, renamed: dict[str, str]) -> Argument:
    if isinstance(argument, list):
        return [_rename(one, renamed) for one in argument]
    if isinstance(argument, dict) and argument.get("value") in renamed:
        return {"value": renamed[argument["value"]]}
    return argument


def _with_names(node: Node, renamed: dict[str, str]) -> Node:
    return {**node, "args": {key: _rename(one, renamed) for key, one in node["args"].items()}}
