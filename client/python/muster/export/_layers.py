"""Layers: the elements of a model's lists. Layers that compute the same need one comparison."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Optional

import torch

from muster.export import _meta
from muster.export._nodes import (
    Argument,
    Node,
    NotExportable,
    Program,
    arguments_of,
    names_in,
    results_of,
)
from muster.export._trace import State

# The paths of the elements of each list, by the path of the list.
Lists = dict[str, list[str]]
# The places of some elements of each list.
Kept = dict[str, list[int]]
# A layer is known by its list and its place there. None: what lies outside of all layers.
Owner = Optional[tuple[str, int]]


def lists_of(model: torch.nn.Module) -> Lists:
    """Returns the outermost ModuleLists and Sequentials with two elements or more, each of which is
    there once."""
    found: Lists = {}
    for path, module in model.named_modules():
        inside = any(path.startswith(f"{one}." if one else "") for one in found)
        if inside or not isinstance(module, (torch.nn.ModuleList, torch.nn.Sequential)):
            continue
        if len(module) > 1 and len(set(map(id, module))) == len(module):
            found[path] = _elements(path, module)
    return found


def lists_at(model: torch.nn.Module, paths: Iterable[str]) -> Lists:
    """Returns the lists with these paths."""
    return {path: _elements(path, model.get_submodule(path)) for path in paths}


def _elements(path: str, module: torch.nn.Module) -> list[str]:
    return [f"{path}.{name}" if path else name for name, _ in module.named_children()]


@dataclasses.dataclass
class Forms:
    """What a program computes in each layer, and outside of layers, with names that are the same
    for layers that compute the same. Values from other layers are known by how far away these
    are."""

    layers: dict[str, list[str]]
    outside: str


def forms_of(lists: Lists, program: Program, state: State) -> Forms:
    places = {
        element: (path, place)
        for path, elements in lists.items()
        for place, element in enumerate(elements)
    }

    def owner_of(node: Node) -> Owner:
        path = node["in"]
        while path and path not in places:
            path = path.rpartition(".")[0]
        return places.get(path)

    numbers = _Numbers(program, owner_of)
    made: dict[Owner, list[Any]] = {None: []} | {owner: [] for owner in places.values()}
    for node in program.nodes:
        owner = owner_of(node)
        element = "" if owner is None else lists[owner[0]][owner[1]]
        name = _NameOf(lists, owner, element, numbers, state)
        modes = {key: one for key, one in node.items() if key not in ("op", "args", "out", "in")}
        args = {key: name.argument(one) for key, one in node["args"].items()}
        out = [numbers.own[one] for one in results_of(node)]
        made[owner].append([node["op"], args, out, name.relative(node["in"]), modes])
    made[None].append(_NameOf(lists, None, "", numbers, state).argument(program.output))
    text = {owner: json.dumps(nodes, sort_keys=True) for owner, nodes in made.items()}
    layers = {
        path: [text[path, place] for place in range(len(elements))]
        for path, elements in lists.items()
    }
    return Forms(layers, text[None])


class _Numbers:
    """The numbers of values: among all of the layer that makes them, and among those of its values
    that others use."""

    def __init__(self, program: Program, owner_of: Callable[[Node], Owner]):
        self.owners: dict[str, Owner] = {}
        self.own: dict[str, int] = {}
        self.crossing: dict[str, int] = {}
        self.inputs = {name: place for place, name in enumerate(program.inputs)}
        used_outside = set(names_in(program.output, "value"))
        counts: dict[Owner, int] = {}
        for node in program.nodes:
            owner = owner_of(node)
            for argument in arguments_of(node):
                for value in names_in(argument, "value"):
                    if self.owners.get(value) != owner:
                        used_outside.add(value)
            for value in results_of(node):
                self.owners[value] = owner
                self.own[value] = counts[owner] = counts.get(owner, -1) + 1
        counts = {}
        for value, owner in self.owners.items():
            if value in used_outside:
                self.crossing[value] = counts[owner] = counts.get(owner, -1) + 1


@dataclasses.dataclass
class _NameOf:
    """The names of values and tensors as a layer sees them."""

    lists: Lists
    owner: Owner
    element: str
    numbers: _Numbers
    state: State

    def relative(self, path: str) -> str:
        if self.element and (path == self.element or path.startswith(self.element + ".")):
            return "." + path.removeprefix(self.element)
        return path

    def argument(self, argument: Argument) -> Any:
        if isinstance(argument, list):
            return [self.argument(one) for one in argument]
        if not isinstance(argument, dict):
            return argument
        if "value" in argument:
            return self._value(argument["value"])
        if "constant" in argument:
            return ["constant", *_contents(self.state.constants[argument["constant"]])]
        for kind, tensors in (("parameter", self.state.parameters), ("buffer", self.state.buffers)):
            if kind in argument:
                one = tensors[argument[kind]]
                trained = one.requires_grad
                name = self.relative(argument[kind])
                return [kind, name, list(one.shape), str(one.dtype), trained]
        return argument

    def _value(self, value: str) -> list[Any]:
        if value in self.numbers.inputs:
            return ["input", self.numbers.inputs[value]]
        owner = self.numbers.owners[value]
        if owner == self.owner:
            return ["own", self.numbers.own[value]]
        number = self.numbers.crossing[value]
        if owner is None:
            return ["outside", number]
        path, place = owner
        if self.owner is not None and self.owner[0] == path:
            distance = self.owner[1] - place
            # Some models compute in their first layer what all others use.
            return ["first", number] if place == 0 < distance - 1 else ["before", distance, number]
        return ["of", path, len(self.lists[path]) - place, number]


def _contents(one: torch.Tensor) -> list[Any]:
    held = one.detach().contiguous().reshape(-1).view(torch.uint8)
    return [hashlib.sha256(held.numpy()).hexdigest(), list(one.shape), str(one.dtype)]


def first_alike(forms: Sequence[Forms]) -> dict[str, list[int]]:
    """Returns for each layer the first one of its kind. forms: of all programs of a model."""
    found = {}
    for path, layers in forms[0].layers.items():
        first: dict[tuple[str, ...], int] = {}
        found[path] = [
            first.setdefault(tuple(one.layers[path][place] for one in forms), place)
            for place in range(len(layers))
        ]
    return found


def shortened(model: torch.nn.Module, kept: Kept) -> torch.nn.Module:
    """Returns a copy of the model with some layers only."""
    made = _meta.copied(model)
    for path, places in kept.items():
        layers: Any = made.get_submodule(path)
        count = len(layers)
        for place in reversed(range(count)):
            if place not in places:
                del layers[place]
        for config in _configs(made, path):
            _shorten(config, count, places)
    return made


def _configs(model: torch.nn.Module, path: str) -> Iterable[Any]:
    """Returns the configurations, as transformers has them, of the modules around a list."""
    found = {}
    while path:
        path = path.rpartition(".")[0]
        config = getattr(model.get_submodule(path), "config", None)
        if config is not None:
            found[id(config)] = config
    return found.values()


def _shorten(config: Any, count: int, places: Sequence[int]) -> None:
    # Past the checks of a configuration, which compare its fields with each other.
    fields = vars(config)
    for name, one in list(fields.items()):
        if "layer" in name and isinstance(one, (list, tuple)) and len(one) == count:
            fields[name] = type(one)([one[place] for place in places])
    if fields.get("num_hidden_layers") == count:
        fields["num_hidden_layers"] = len(places)


def refuse_differences(
    kept: Kept, whole: Mapping[str, Forms], short: Mapping[str, Forms]
) -> None:
    """Raises NotExportable unless the layers of the shortened model, and what lies around them, are
    those of the whole one."""
    for mode, forms in whole.items():
        other = short[mode]
        differing = [
            f"'{path}'"
            for path, places in kept.items()
            if other.layers.get(path) != [forms.layers[path][place] for place in places]
        ]
        if forms.outside != other.outside:
            differing.append("what lies around the layers")
        if differing:
            raise NotExportable(
                f"{', '.join(differing)} ({mode}): the model for the comparison, which has fewer "
                "layers, computes something else; export the model with its values"
            )


def told(kept: Kept, lists: Lists) -> str:
    return ", ".join(
        f"{len(places)} of the {len(lists[path])} layers of '{path}'"
        for path, places in kept.items()
    ) or "all modules"
