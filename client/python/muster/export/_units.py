"""Units: the parts of a model whose parameters exist only around their own forward and backward.

A program is cut into the root and units below it. A unit is one run of nodes of one module; what a
unit needs from outside comes as an input, and what others need of it is an output."""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from muster.export._in_place import out_of_place
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


@dataclasses.dataclass
class Unit:
    """A part of a program. The root has the name "", and calls the others:
    {"call": "encoder.layers.0", "args": [...], "out": [...]}."""

    name: str
    # The names and the kinds of its inputs: [{"value": "x", "kind": "tensor"}, ...].
    inputs: list[dict[str, str]]
    nodes: list[Node]
    outputs: list[Argument]


def choose(model: torch.nn.Module, units: str | Iterable[str]) -> list[str]:
    """Returns the paths of the modules that become units.

    units: "auto", or patterns of paths (fnmatch) such as "encoder.layers.*". "auto" takes the
    elements of the outermost ModuleLists and Sequentials, and all other outermost modules with
    parameters that have none of them inside."""
    if units != "auto":
        patterns = [units] if isinstance(units, str) else list(units)
        paths = [path for path, _ in model.named_modules() if path]
        chosen: list[str] = []
        for pattern in patterns:
            matching = [path for path in paths if fnmatch.fnmatchcase(path, pattern)]
            if not matching:
                raise NotExportable(
                    f"units: no module matches '{pattern}'; the modules are {', '.join(paths)}"
                )
            chosen += [path for path in matching if path not in chosen]
        inner = [(a, b) for a in chosen for b in chosen if _is_below(a, b) and a != b]
        if inner:
            raise NotExportable(
                f"units: '{inner[0][0]}' lies in '{inner[0][1]}'; expected patterns of modules "
                "that do not contain each other"
            )
        return chosen
    return _outermost(model, "")


def _is_below(path: str, of: str) -> bool:
    return path == of or path.startswith(of + ".")


def _is_list(module: torch.nn.Module) -> bool:
    lists = (torch.nn.ModuleList, torch.nn.ModuleDict, torch.nn.Sequential)
    return isinstance(module, lists) and len(list(module.children())) > 0


def _has_parameters(module: torch.nn.Module) -> bool:
    return next(module.parameters(), None) is not None


def _outermost(module: torch.nn.Module, path: str) -> list[str]:
    found: list[str] = []
    for name, child in module.named_children():
        inner = f"{path}.{name}" if path else name
        if not _has_parameters(child):
            continue
        if _contains_list(child):
            found += _outermost(child, inner) if _opens(module, child) else [inner]
        else:
            found.append(inner)
    return found


def _contains_list(module: torch.nn.Module) -> bool:
    return any(_is_list(one) for one in module.modules())


def _opens(module: torch.nn.Module, child: torch.nn.Module) -> bool:
    """Returns whether units lie inside of `child`. An element of a list is a unit, unless all
    elements are lists again."""
    if not _is_list(module):
        return True
    return _is_list(child) and all(_is_list(one) for one in module.children())


class Cutter:
    """Cuts programs of one model at the same places."""

    def __init__(self, units: Sequence[str], programs: Sequence[Program]):
        self._programs = list(programs)
        # The reasons why modules are no units, by path.
        self.dissolved: dict[str, str] = {}
        self._units = list(units)
        while self._dissolve_one():
            pass
        self._programs = [out_of_place(one, self._unit_of) for one in programs]
        self.owners = self._find_owners()

    @property
    def units(self) -> list[str]:
        """The units that have nodes, in the order of the first program."""
        seen = {self._unit_of(node) for program in self._programs for node in program.nodes}
        ordered = [self._unit_of(node) for node in self._programs[0].nodes]
        return list(dict.fromkeys(one for one in ordered if one and one in seen))

    def _unit_of(self, node: Node) -> str:
        return next((unit for unit in self._units if _is_below(node["in"], unit)), "")

    def _dissolve_one(self) -> bool:
        """Finds a module that cannot be a unit, and takes it from the list."""
        for program in self._programs:
            for unit, reason in self._problems(program):
                self.dissolved[unit] = reason
                self._units.remove(unit)
                return True
        shared = {name for name, unit in self._find_owners()["buffer"].items() if not unit}
        for program in self._programs:
            for node in program.nodes:
                unit = self._unit_of(node)
                changed = {name for one in written(node) for name in names_in(one, "buffer")}
                if unit and changed & shared:
                    name = sorted(changed & shared)[0]
                    self.dissolved[unit] = f"it changes the buffer '{name}', which others use"
                    self._units.remove(unit)
                    return True
        present = [set(map(self._unit_of, program.nodes)) for program in self._programs]
        for unit in self._units:
            if any(unit in one for one in present) and not all(unit in one for one in present):
                self.dissolved[unit] = "it is called in training or in evaluation only"
                self._units.remove(unit)
                return True
        return False

    def _problems(self, program: Program) -> Iterable[tuple[str, str]]:
        done: set[str] = set()
        current = ""
        for node in program.nodes:
            unit = self._unit_of(node)
            if unit == current:
                continue
            if unit and unit in done:
                yield unit, "its forward does not run in one piece, or runs several times"
            done.add(current)
            current = unit
        views: dict[str, set[str]] = {}
        makers: dict[str, str] = {}
        for node in program.nodes:
            unit = self._unit_of(node)
            of: set[str] = set()
            for argument in aliased(node) if "op" in node else []:
                of.update(names_in(argument, "parameter"))
                for value in names_in(argument, "value"):
                    of |= views.get(value, set())
            for argument in arguments_of(node):
                for value in names_in(argument, "value"):
                    maker = makers.get(value, "")
                    if maker and maker != unit and views.get(value):
                        view = sorted(views[value])[0]
                        yield maker, f"a view of its parameter '{view}' is used outside"
            for name in results_of(node):
                views[name] = of
                makers[name] = unit

    def _find_owners(self) -> dict[str, dict[str, str]]:
        """Returns the unit of each used parameter and buffer: {"parameter": {name: unit}, ...}. The
        root has what several units use."""
        owners: dict[str, dict[str, str]] = {"parameter": {}, "buffer": {}}
        for program in self._programs:
            for node in program.nodes:
                unit = self._unit_of(node)
                for kind, names in owners.items():
                    for argument in arguments_of(node):
                        for name in names_in(argument, kind):
                            names[name] = unit if names.get(name, unit) == unit else ""
        return owners

    def cut(self) -> list[list[Unit]]:
        """Returns the root and the units of each program, in the order of their calls."""
        return [self._cut(program) for program in self._programs]

    def _cut(self, program: Program) -> list[Unit]:
        root = Unit(
            "",
            [{"value": name, "kind": program.kinds[name]} for name in program.inputs],
            [],
            [program.output],
        )
        units = [root]
        users: dict[str, set[str]] = {name: {""} for name in names_in(program.output, "value")}
        for node in program.nodes:
            for argument in arguments_of(node):
                for value in names_in(argument, "value"):
                    users.setdefault(value, set()).add(self._unit_of(node))
        current = ""
        for node in program.nodes:
            name = self._unit_of(node)
            if not name:
                root.nodes.append(node)
            elif name != current:
                units.append(Unit(name, [], [node], []))
            else:
                units[-1].nodes.append(node)
            if name and name != current:
                root.nodes.append({"call": name, "args": [], "out": []})
            current = name
        calls = {node["call"]: node for node in root.nodes if "call" in node}
        for unit in units[1:]:
            self._connect(unit, calls[unit.name], users, program.kinds)
        return units

    def _connect(
        self, unit: Unit, call: dict[str, Any], users: dict[str, set[str]], kinds: dict[str, str]
    ) -> None:
        """Finds the inputs and outputs of a unit, and adds them to the root's call."""
        made = {name for node in unit.nodes for name in results_of(node)}
        given: dict[str, Argument] = {}

        def inside(argument: Argument) -> Argument:
            if isinstance(argument, list):
                return [inside(one) for one in argument]
            if not isinstance(argument, dict):
                return argument
            for kind in ("value", "parameter", "buffer"):
                name = argument.get(kind)
                if name is None:
                    continue
                if kind == "value" and name in made:
                    return argument
                if kind != "value" and self.owners[kind][name] == unit.name:
                    return argument
                local = name if kind == "value" else f"{kind}:{name}"
                if local not in given:
                    given[local] = argument
                    unit.inputs.append({"value": local, "kind": kinds.get(local, "tensor")})
                return {"value": local}
            return argument

        unit.nodes = [
            {**node, "args": {key: inside(one) for key, one in node["args"].items()}}
            for node in unit.nodes
        ]
        outputs = [
            name for node in unit.nodes for name in results_of(node)
            if users.get(name, set()) - {unit.name}
        ]
        unit.outputs = [{"value": name} for name in outputs]
        call["args"] = list(given.values())
        call["out"] = outputs
