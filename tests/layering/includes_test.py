"""A target whose files include a header depends on the header's target in its BUILD file.

Bazel's compile actions run here without a sandbox, so a file finds the headers of the whole
checkout, whether its target depends on them or not. If a BUILD file lacks a dependency,
layering_test.py does not see it, and neither does a reader of the BUILD file."""

import pytest

from tests.layering.build_files import project_targets, read_build_files
from tests.layering.fix import Change, changes, edited, unknown
from tests.layering.includes import Include, Sources, source_files


def sources():
    return Sources(project_targets())


def told(lines):
    """The text of a failure, one line for each finding."""
    return "\n" + "\n".join(sorted(lines))


def badly_owned(of, files):
    for file in files:
        owners = [target.label for target in of.owners[file]]
        if not owners:
            yield f"{file}: no target has it in srcs or hdrs: add it to one in its folder's BUILD"
        elif len(owners) > 1 and file.endswith((".h", ".hh")):
            yield f"{file}: several targets own it, leave it to one: {', '.join(owners)}"


def test_deps_are_what_the_files_include():
    wrong = [str(change) for change in changes(sources())]
    assert not wrong, f"{told(wrong)}\n`python3 -m tests.layering.fix --write` writes these lines."


def test_every_include_is_of_a_known_file():
    wrong = list(unknown(sources()))
    assert not wrong, told(wrong)


def test_every_file_has_a_target_and_every_header_one():
    of = sources()
    files = source_files()
    assert len(files) > 800, "the checkout is not there"
    wrong = list(badly_owned(of, files))
    assert not wrong, told(wrong)


def test_no_files_include_one_another_in_a_ring():
    ring = sources().cycle()
    assert ring is None, " includes ".join(ring)


# Tests of the checks above, on a small checkout of three packages.
BUILD_FILES = {
    "a": """
[cc_library(name = name, hdrs = [name + ".h"], deps = deps) for name, deps in {
    "low": [],
    "middle": [":low"],
}.items()]

cc_library(name = "all", deps = [":middle", ":low"])
""",
    "b": """
cc_library(
    name = "top",
    srcs = ["top.cc"],
    deps = ["//a:middle"],
)
""",
    "third_party/system": 'cc_library(name = "grpc")\n',
}


def small(files, **build_files):
    targets = read_build_files(BUILD_FILES | build_files)
    texts = {"a/low.h": "", "a/middle.h": '#include "a/low.h"\n', "b/top.cc": ""} | files
    return Sources(targets, lambda name: texts[name])


MIDDLE = '#include <vector>\n\n#include "a/middle.h"\n'


def told_changes(files, **build_files):
    return [str(change) for change in changes(small(files, **build_files))]


def test_what_only_a_dep_of_a_dep_owns_is_found():
    assert not told_changes({"b/top.cc": MIDDLE})
    assert told_changes({"b/top.cc": MIDDLE + '#include "a/low.h"\n'}) == [
        'b/BUILD:2: add to the deps of //b:top: "//a:low",  # b/top.cc:4: #include "a/low.h"'
    ]


def test_a_target_without_files_stands_for_its_deps():
    of_all = BUILD_FILES["b"].replace("//a:middle", "//a:all")
    assert not told_changes({"b/top.cc": '#include "a/low.h"\n'}, b=of_all)


def test_a_target_that_is_visible_stands_for_one_that_is_not():
    hidden = BUILD_FILES["a"].replace('"middle": [":low"],', "").replace('":middle", ', "")
    hidden = hidden.replace('name = "all",', 'name = "all", visibility = ["//b:__pkg__"],')
    alone = 'cc_library(name = "top", srcs = ["top.cc"])'
    (line,) = told_changes({"b/top.cc": '#include "a/low.h"\n'}, a=hidden, b=alone)
    assert '"//a:all",' in line


def test_a_header_that_no_target_offers_is_found():
    private = 'cc_library(name = "low", srcs = ["low.h"])'
    alone = 'cc_library(name = "top", srcs = ["top.cc"])'
    of = small({"b/top.cc": '#include "a/low.h"\n'}, a=private, b=alone)
    assert list(unknown(of)) == [
        'b/top.cc:1: #include "a/low.h": no target has this header in hdrs'
    ]


def test_a_dep_that_nothing_includes_is_found():
    assert told_changes({}) == ['b/BUILD:2: take out of the deps of //b:top: "//a:middle",']


def test_a_library_that_is_not_depended_on_is_found():
    text = "#include <grpcpp/server.h>\n" + MIDDLE
    (line,) = told_changes({"b/top.cc": text})
    assert '"//third_party/system:grpc",' in line
    with_grpc = BUILD_FILES["b"].replace('"//a', '"//third_party/system:grpc", "//a')
    assert not told_changes({"b/top.cc": text}, b=with_grpc)
    assert len(told_changes({"b/top.cc": MIDDLE}, b=with_grpc)) == 1
    assert "LIBRARIES" in next(unknown(small({"b/top.cc": "#include <x/y.h>\n"})))


def test_a_precompiled_header_is_no_reason_for_a_dependency():
    header = 'cc_library(name = "rpc", deps = ["//third_party/system:grpc"])'
    with_header = BUILD_FILES["b"].replace('"//a', '"//third_party/precompiled:rpc", "//a')
    text = "#include <grpcpp/server.h>\n" + MIDDLE
    files = {"b": with_header, "third_party/precompiled": header}
    assert len(told_changes({"b/top.cc": text}, **files)) == 1


def test_a_file_without_a_target_and_a_header_with_two_are_found():
    second = BUILD_FILES["b"] + 'cc_library(name = "second", hdrs = ["//a:low.h"])\n'
    found = list(badly_owned(small({}, b=second), ["a/low.h", "a/middle.h", "a/other.cc"]))
    assert [line.split(":")[0] for line in found] == ["a/low.h", "a/other.cc"]


def test_a_ring_of_includes_is_found():
    assert small({}).cycle() is None
    ring = small({"a/low.h": '#include "a/middle.h"\n'}).cycle()
    assert ring == ["a/low.h", "a/middle.h", "a/low.h"]


# The text of a BUILD file before and after a change. `wanted` and `gone` are deps of //b:top.
@pytest.mark.parametrize(
    ("before", "wanted", "gone", "after"),
    [
        ('deps = ["//a:x"],', "//b:y", None, 'deps = [\n    ":y",\n    "//a:x",\n],'),
        ('deps = ["//a:x"],', "//a:a", "//a:x", 'deps = ["//a"],'),
        ('deps = ["//a:x"],', None, "//a:x", None),
        (None, "//c:c", None, 'deps = ["//c"],'),
        (None, "@torch//:torch", None, 'deps = ["@torch"],'),
        # Comments stay above what they are about.
        (
            'deps = [\n    ":a",\n    # Why c.\n    ":c",\n    # Below.\n],',
            "//b:b",
            None,
            'deps = [\n    ":a",\n    ":b",\n    # Why c.\n    ":c",\n    # Below.\n],',
        ),
        (
            'deps = [\n    ":a",\n    # Those of c.\n    "//c:x",\n    "//c:y",\n],',
            None,
            "//c:x",
            'deps = [\n    ":a",\n    # Those of c.\n    "//c:y",\n],',
        ),
        (
            'deps = SHARED + [\n    ":a",\n    ":c",\n],',
            None,
            "//b:c",
            'deps = SHARED + [":a"],',
        ),
    ],
)
def test_a_line_is_written(before, wanted, gone, after):
    def build_file(deps):
        lines = ["cc_library(", '    name = "top",', '    srcs = ["top.cc"],']
        lines += ["    " + line for line in deps.split("\n")] if deps else []
        return "\n".join(["SHARED = []", "", *lines, ")", ""])

    text = build_file(before)
    target = read_build_files({"b": text})["//b:top"]
    for dep, include in ((wanted, Include("b/top.cc", 1, "x.h")), (gone, None)):
        if dep:
            text = edited(text, Change(target, dep, include))
    assert text == build_file(after)


def test_a_line_is_written_beside_the_name_in_a_list_of_targets():
    text = """[cc_test(
    name = name + "_test",
    deps = deps + [":common"],
) for name, deps in {
    "a": [],
    "c": [":c"],
}.items()]
"""
    targets = read_build_files({"b": text})
    needed = Include("b/a_test.cc", 1, "x.h")
    written = edited(text, Change(targets["//b:a_test"], "//b:a", needed))
    assert written == text.replace('"a": [],', '"a": [":a"],')
    # A file that all targets share does not belong to one target.
    assert edited(text, Change(targets["//b:a_test"], "//b:common")) is None
