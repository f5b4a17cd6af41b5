"""A target whose files include a header depends on the header's target in its BUILD file.

Bazel's compile actions run here without a sandbox, so a file finds the headers of the whole
checkout, whether its target depends on them or not. If a BUILD file lacks a dependency,
layering_test.py does not see it, and neither does a reader of the BUILD file."""

from tests.layering.build_files import project_targets, read_build_files
from tests.layering.includes import Sources, source_files


def sources():
    return Sources(project_targets())


def told(lines):
    """The text of a failure, one line for each finding."""
    return "\n" + "\n".join(sorted(lines))


def undeclared(of):
    for include, target in of.undeclared():
        owners = " or ".join(owner.label for owner in of.owners[include.header]) or "its target"
        yield f"{include}: add {owners} to the deps of {target.label} ({target.where})"


def unused(of):
    for target, dep in of.unused():
        yield (
            f"{target.where}: no file of {target.label} includes a header of {dep}: take it out of "
            "its deps"
        )


def undeclared_libraries(of):
    for include, target, library in of.undeclared_libraries():
        if library:
            yield f"{include}: {target.label} ({target.where}) does not depend on {library}: add it"
        else:
            yield f"{include}: say in LIBRARIES of tests/layering/includes.py whose header this is"


def badly_owned(of, files):
    for file in files:
        owners = [target.label for target in of.owners[file]]
        if not owners:
            yield f"{file}: no target has it in srcs or hdrs: add it to one in its folder's BUILD"
        elif len(owners) > 1 and file.endswith((".h", ".hh")):
            yield f"{file}: several targets own it, leave it to one: {', '.join(owners)}"


def test_every_include_is_of_a_file_that_the_target_or_a_direct_dep_owns():
    wrong = list(undeclared(sources()))
    assert not wrong, told(wrong)


def test_every_dep_with_headers_is_included():
    wrong = list(unused(sources()))
    assert not wrong, told(wrong)


def test_libraries_of_others_are_depended_on():
    wrong = list(undeclared_libraries(sources()))
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


def test_what_only_a_dep_of_a_dep_owns_is_found():
    assert not list(undeclared(small({"b/top.cc": MIDDLE})))
    assert list(undeclared(small({"b/top.cc": MIDDLE + '#include "a/low.h"\n'}))) == [
        'b/top.cc:4: #include "a/low.h": add //a:low to the deps of //b:top (b/BUILD:2)'
    ]


def test_a_target_without_files_stands_for_its_deps():
    of_all = BUILD_FILES["b"].replace("//a:middle", "//a:all")
    assert not list(undeclared(small({"b/top.cc": '#include "a/low.h"\n'}, b=of_all)))


def test_a_dep_that_nothing_includes_is_found():
    assert not list(unused(small({"b/top.cc": MIDDLE})))
    assert [line.split(":")[0] for line in unused(small({}))] == ["b/BUILD"]


def test_a_library_that_is_not_depended_on_is_found():
    text = "#include <grpcpp/server.h>\n"
    assert len(list(undeclared_libraries(small({"b/top.cc": text})))) == 1
    with_grpc = BUILD_FILES["b"].replace("//a:middle", "//third_party/system:grpc")
    assert not list(undeclared_libraries(small({"b/top.cc": text}, b=with_grpc)))
    assert "LIBRARIES" in next(undeclared_libraries(small({"b/top.cc": "#include <x/y.h>\n"})))


def test_a_file_without_a_target_and_a_header_with_two_are_found():
    second = BUILD_FILES["b"] + 'cc_library(name = "second", hdrs = ["//a:low.h"])\n'
    found = list(badly_owned(small({}, b=second), ["a/low.h", "a/middle.h", "a/other.cc"]))
    assert [line.split(":")[0] for line in found] == ["a/low.h", "a/other.cc"]


def test_a_ring_of_includes_is_found():
    assert small({}).cycle() is None
    ring = small({"a/low.h": '#include "a/middle.h"\n'}).cycle()
    assert ring == ["a/low.h", "a/middle.h", "a/low.h"]
