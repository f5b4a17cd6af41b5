"""Folders depend only on lower folders, and only the allowed folders use gRPC and LibTorch.

The dependencies are read from the BUILD files; includes_test.py shows that these agree with the
includes. For the shipped programs the result is compared with Bazel's own graph, to show that the
BUILD files are read as Bazel reads them."""

import collections
import re

import pytest

from tests.bazel import runfile
from tests.layering.arrows import ARROWS, IN_TESTS, NEVER
from tests.layering.build_files import project_targets, read_build_files
from tests.layering.sources import workspace

TARGETS = project_targets()


def folder(label):
    return label[2:].split(":")[0]


def is_within(name, outer):
    return name == outer or name.startswith(outer + "/")


def rule(name):
    """The entry of ARROWS that applies to a folder."""
    fits = [prefix for prefix in ARROWS if prefix == name or (prefix and is_within(name, prefix))]
    return max(fits, key=len, default=None)


def is_allowed(name, to, testonly):
    """Returns True if a target of the folder `name` may use a target of the folder `to`."""
    if is_within(to, "third_party") or is_within(name, "third_party"):
        return True
    mine = rule(name)
    allowed = ARROWS[mine] + (IN_TESTS.get(mine, []) if testonly else [])
    # The entry of a folder counts, or else the entry of the folder around it ("tests/process" may
    # use all of "worker").
    if rule(to) == mine or rule(to) in allowed:
        return True
    return mine.startswith("tests") and (
        is_within(to, "tests") or any(is_within(to, one) for one in allowed if one)
    )


def wrong_arrows(targets, name):
    for target in targets.values():
        if rule(target.package) != name:
            continue
        for label in target.edges():
            if label.startswith("//") and not is_allowed(
                target.package, folder(label), target.testonly
            ):
                yield f"{target.where}: {target.label} uses {label}"


def reachable(targets, start):
    seen, todo = set(), [start]
    while todo:
        target = targets.get(todo.pop())
        for label in target.edges() if target else ():
            if label not in seen:
                seen.add(label)
                todo.append(label)
    return seen


def wrong_reaches(targets, name, forbidden):
    for target in targets.values():
        if is_within(target.package, name) and (not target.testonly or name.startswith("tests")):
            for label in sorted(reachable(targets, target.label)):
                if label.startswith(tuple(forbidden)):
                    yield f"{target.where}: {target.label} reaches {label}"


def test_every_folder_has_a_rule():
    folders = {target.package for target in TARGETS.values()}
    unruled = sorted(f for f in folders if rule(f) is None and not is_within(f, "third_party"))
    assert not unruled, f"add to ARROWS of tests/layering/arrows.py: {unruled}"


@pytest.mark.parametrize("name", sorted(ARROWS))
def test_arrows_point_downward(name):
    wrong = list(wrong_arrows(TARGETS, name))
    assert not wrong, f"{name} may use {ARROWS[name]} only:\n" + "\n".join(wrong)


@pytest.mark.parametrize("name", sorted(NEVER))
def test_what_must_not_be_reached_is_not(name):
    assert any(is_within(target.package, name) for target in TARGETS.values()), f"{name} is empty"
    wrong = list(wrong_reaches(TARGETS, name, NEVER[name]))
    assert not wrong, f"{name} must not reach {NEVER[name]}:\n" + "\n".join(wrong[:5])


def test_only_tests_choose_a_main_function():
    """A main function of GoogleTest brings the precompiled header that its test begins with. With
    two of them the compiler takes the first, which may lack most of what the test includes."""
    wrong = [
        target.where
        for target in TARGETS.values()
        if target.rule == "cc_library"
        and any(label.endswith("gtest_main") for label in target.labels("deps"))
    ]
    assert not wrong, f"depend on //third_party/system:gtest instead: {wrong}"


def test_tests_begin_with_the_precompiled_header_of_their_main_function():
    wrong = [
        target.where
        for target in TARGETS.values()
        if target.rule == "cc_test"
        and any(label.endswith("gtest_main") for label in target.labels("deps"))
        and "-fpch-deps" not in target.attributes.get("copts", [])
    ]
    assert not wrong, f"use muster_test of third_party/precompiled/defs.bzl: {wrong}"


def test_bazel_reads_the_same_from_the_build_files():
    bazel = collections.defaultdict(set)
    for line in runfile("tests/layering/edges.dot").read_text().splitlines():
        if match := re.match(r'\s*"([^"]+)" -> "([^"]+)"', line):
            bazel[match[1]].add(match[2])
    ours = [TARGETS[label] for label in bazel if label in TARGETS]
    assert len(ours) > 100, "the dependency graph is not there"
    for target in ours:
        # A choice between cases depends on what it asks, too.
        asked = {label for label in TARGETS if TARGETS[label].rule == "config_setting"}
        theirs = {label for label in bazel[target.label] if label.startswith("//")} - asked
        found = {label for label in target.edges() if label.startswith("//")}
        assert found == theirs, target.where


# Tests of the checks above.
def test_a_wrong_arrow_and_a_far_reach_are_found():
    targets = read_build_files(
        {
            "worker/optim": 'cc_library(name = "x", deps = ["//worker/control:y", "//common/z"])\n',
            "worker/control": '\n[cc_library(name = n, deps = ["//common/rpc"]) for n in ["y"]]\n',
            "common/rpc": 'cc_library(name = "rpc", deps = ["//third_party/system:grpc"])\n',
        }
    )
    assert list(wrong_arrows(targets, "worker/optim")) == [
        "worker/optim/BUILD:1: //worker/optim:x uses //worker/control:y"
    ]
    assert not list(wrong_arrows(targets, "worker/control"))
    assert list(wrong_reaches(targets, "worker/optim", ["//third_party/system:grpc"])) == [
        "worker/optim/BUILD:1: //worker/optim:x reaches //third_party/system:grpc"
    ]
    assert not list(wrong_reaches(targets, "worker/optim", ["@torch//"]))


def test_the_lists_for_sanitizers_name_targets():
    for name in ("asan", "asan_long", "tsan", "tsan_long"):
        labels = (workspace() / f"tests/{name}.txt").read_text().split()
        folders = [label.removesuffix("/...") for label in labels if label.endswith("/...")]
        for label in labels:
            if label.endswith("/..."):
                found = [t for t in TARGETS if is_within(folder(t), label[2:].removesuffix("/..."))]
            else:
                found = [t for t in TARGETS if t == label]
                twice = [f for f in folders if is_within(folder(label), f[2:])]
                assert not twice, f"tests/{name}.txt: {label} is also in {twice[0]}/..."
            tests = [t for t in found if TARGETS[t].rule.endswith("_test")]
            assert tests, f"tests/{name}.txt: there is no test {label}"
