"""The arrows between folders point downward only, and gRPC and LibTorch stay where they belong.

Read from Bazel's own dependency graph of everything that is shipped (a genquery), so that a file
cannot reach past its BUILD target unseen: a missing dependency does not link."""

import collections
import re

import pytest

from tests.bazel import runfile

# Folder -> the folders it may use. The longest prefix counts. A folder may always use itself, and
# third_party.
ARROWS = {
    "proto": [],
    "common": ["proto"],
    # What users build against: nothing of ours may come with it.
    "plugin": [],
    "coordinator": ["common", "proto"],
    "worker/comm": ["common", "worker/memory", "worker/trace"],
    "worker/layout": ["common"],
    "worker/memory": ["common"],
    "worker/trace": ["common"],
    "worker/models": ["common", "plugin", "proto"],
    "worker/data": ["common", "worker/models"],
    "worker/parallel": [
        "common",
        "worker/comm",
        "worker/layout",
        "worker/memory",
        "worker/models",
        "worker/data",
    ],
    "worker/optim": [
        "common",
        "worker/comm",
        "worker/layout",
        "worker/memory",
        "worker/models",
        "worker/data",
    ],
    "worker/checkpoint": [
        "common",
        "worker/comm",
        "worker/layout",
        "worker/memory",
        "worker/models",
        "worker/data",
    ],
    "worker/train": [
        "common",
        "proto",
        "worker/comm",
        "worker/layout",
        "worker/memory",
        "worker/models",
        "worker/data",
        "worker/parallel",
        "worker/optim",
        "worker/checkpoint",
        "worker/trace",
    ],
    "worker/control": [
        "common",
        "proto",
        "worker/train",
        "worker/checkpoint",
        "worker/comm",
        "worker/data",
        "worker/layout",
        "worker/memory",
        "worker/optim",
        "worker/parallel",
        "worker/trace",
    ],
    "worker/agent": ["common", "proto"],
    "worker": ["common", "worker/control", "worker/memory"],
    "client": ["common", "proto"],
}
# What must be reachable from nowhere in these folders, however far.
NEVER = {
    "worker/train": ["//third_party/system:grpc"],
    "worker/agent": ["@torch//"],
    "coordinator": ["@torch//"],
    "client": ["@torch//"],
    "coordinator/jobs": ["//third_party/system:grpc", "//third_party/system:sqlite3", "//proto/"],
    "coordinator/membership": [
        "//third_party/system:grpc",
        "//third_party/system:sqlite3",
        "//proto/",
    ],
    "coordinator/commands": [
        "//third_party/system:grpc",
        "//third_party/system:sqlite3",
        "//proto/",
    ],
}


@pytest.fixture(scope="module")
def edges():
    """Label -> the labels it uses."""
    graph = collections.defaultdict(set)
    for line in open(runfile("tests/layering/edges.dot"), encoding="utf-8"):
        if match := re.match(r'\s*"([^"]+)" -> "([^"]+)"', line):
            graph[match[1]].add(match[2])
    assert len(graph) > 50, "the dependency graph is not there"
    return graph


def folder(label):
    return label[2:].split(":")[0] if label.startswith("//") else ""


def rule(name):
    """The entry of ARROWS that rules a folder."""
    fits = [prefix for prefix in ARROWS if name == prefix or name.startswith(prefix + "/")]
    return max(fits, key=len, default=None)


def reachable(graph, start):
    seen, todo = set(), [start]
    while todo:
        for target in graph.get(todo.pop(), ()):
            if target not in seen:
                seen.add(target)
                todo.append(target)
    return seen


def test_every_folder_has_a_rule(edges):
    folders = {folder(label) for label in edges if label.startswith("//")}
    unruled = sorted(f for f in folders if rule(f) is None and not f.startswith("third_party"))
    assert not unruled, f"folders without an entry in ARROWS: {unruled}"


@pytest.mark.parametrize("name", sorted(ARROWS))
def test_arrows_point_downward(edges, name):
    wrong = []
    for source, targets in edges.items():
        if rule(folder(source)) != name:
            continue
        for target in targets:
            to = rule(folder(target)) if target.startswith("//") else None
            if to is not None and to != name and to not in ARROWS[name]:
                wrong.append(f"{source} -> {target}")
    assert not wrong, f"{name} may use {ARROWS[name]} only"


@pytest.mark.parametrize("name", sorted(NEVER))
def test_what_must_not_be_reached_is_not(edges, name):
    starts = [label for label in edges if (folder(label) + "/").startswith(name + "/")]
    assert starts, f"no target in {name}"
    wrong = {
        f"{start} reaches {target}"
        for start in starts
        for target in reachable(edges, start)
        if any(target.startswith(forbidden) for forbidden in NEVER[name])
    }
    assert not wrong, sorted(wrong)[:3]
