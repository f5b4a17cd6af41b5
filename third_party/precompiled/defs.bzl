"""Libraries, programs and tests whose files begin with a precompiled header (precompiled.bzl).

A target names the header beside its files:

    muster_library(
        name = "lease",
        srcs = ["lease.cc"],
        pch = "absl",
    )

absl, rpc, torch and cli are headers of this folder, and stand for what most files of a folder
include; each file still includes what it uses. A library that gains nothing from one, or that is
compiled with other definitions (local_defines), has no precompiled header. It is a muster_library
with `pch = None`, whose files are still compiled together, or a cc_library of Bazel, which compiles
each file alone. Such a program is a cc_binary. """

# Options for code that runs only for a moment and is not optimised: tests, and files that read a
# command line.
_NOT_OPTIMISED = ["-O0", "-U_FORTIFY_SOURCE"]

# Additional options for a header and for the files that begin with this header.
PCH_COPTS = {
    "absl": [],
    "cli": _NOT_OPTIMISED,
    "rpc": [],
    "tests": _NOT_OPTIMISED,
    "torch": [],
}

def _copts(pch):
    return PCH_COPTS[pch] + ["-fpch-deps", "-include", "precompiled_%s.hh" % pch]

def _compiled(rule, pch, copts = [], deps = [], **kwargs):
    if pch:
        copts = copts + _copts(pch)
        deps = deps + ["//third_party/precompiled:" + pch]
    rule(copts = copts, deps = deps, **kwargs)

def _together(name, srcs, parts):
    """Makes `parts` files, each of which includes every parts-th of the files.

    What the files take from headers and templates is then made a few times instead of once for each
    file. Names in the unnamed namespaces of the files must differ. Returns the made files."""
    made = []
    for part in range(parts):
        lines = [
            "#include \\\"%s/%s\\\"" % (native.package_name(), src)
            for src in srcs[part::parts]
        ]
        made.append("%s_%d.cc" % (name, part))
        native.genrule(
            name = "%s_%d" % (name, part),
            outs = [made[-1]],
            cmd = "printf '%%s\\n' %s > $@" % " ".join(["\"%s\"" % line for line in lines]),
        )
    return made

def muster_library(name, pch, srcs = [], parts = 1, **kwargs):
    """A cc_library whose files are compiled together, beginning with the precompiled header `pch`.

    Args:
      name: of the library.
      pch: "absl", "cli", "rpc", "torch", or None: the files begin with no precompiled header, and
        are still compiled together.
      srcs: files of this package.
      parts: the number of files to compile.
      **kwargs: for cc_library.
    """
    sources = [src for src in srcs if src.endswith(".cc")]
    if len(sources) > parts:
        kwargs["textual_hdrs"] = sources
        headers = [src for src in srcs if not src.endswith(".cc")]
        srcs = headers + _together(name, sources, parts)
    _compiled(native.cc_library, pch, name = name, srcs = srcs, **kwargs)

def muster_binary(name, pch, **kwargs):
    """A cc_binary whose files begin with the precompiled header `pch`.

    Args:
      name: of the program.
      pch: "absl", "cli", "rpc" or "torch".
      **kwargs: for cc_binary.
    """
    _compiled(native.cc_binary, pch, name = name, **kwargs)

def muster_tests(name, srcs, parts = 1, size = "small", copts = [], **kwargs):
    """One program of many tests, compiled together: what each of them takes from headers and
    templates is then made once. What a file has in its unnamed namespace lies in a namespace of the
    file's name here, so that files can use the same names. Only a line that begins with
    `namespace {` is renamed: names outside of it collide, also `static` ones and fixtures.
    INSTANTIATE_TEST_SUITE_P of a fixture stands once in the program, for the tests of all files. A
    folder with one test file uses muster_test.

    Args:
      name: of the program.
      srcs: files of this package.
      parts: the number of files to compile.
      size: for cc_test.
      copts: for cc_test.
      **kwargs: for cc_test.
    """
    made = []
    for part in range(parts):
        made.append("%s_%d_test.cc" % (name, part))
        native.genrule(
            name = "%s_%d" % (name, part),
            testonly = True,
            srcs = srcs[part::parts],
            outs = [made[-1]],
            cmd = "for file in $(SRCS); do echo \"#line 1 \\\"$$file\\\"\"; " +
                  "sed \"s/^namespace {/namespace $$(basename $$file .cc) {/\" $$file; done > $@",
        )
    muster_test(name = name, size = size, srcs = made, copts = copts, **kwargs)

def muster_test(name, size = "small", srcs = None, copts = [], **kwargs):
    """A cc_test whose file begins with the precompiled header of the main function on which it
    depends: gtest_main, rpc_gtest_main or torch_gtest_main of third_party/system.

    Args:
      name: of the test.
      size: for cc_test.
      srcs: the file NAME.cc if left out.
      copts: for cc_test.
      **kwargs: for cc_test.
    """
    native.cc_test(
        name = name,
        size = size,
        srcs = srcs or [name + ".cc"],
        copts = copts + _copts("tests"),
        **kwargs
    )
