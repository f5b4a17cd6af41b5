"""Tests written in Python: pytest on one file, each case counted in the test's XML."""

def python_test(name, src, data = [], deps = [], args = [], **kwargs):
    """Runs pytest on a file, with the repository's root on PYTHONPATH (`from tests import bazel`).

    Args:
      name: of the test.
      src: the file with the test cases.
      data: what they need at run time, binaries too: `tests.bazel.runfile("coordinator/musterd")`.
      deps: Python files that it imports.
      args: for pytest.
      **kwargs: for sh_test: size, timeout, tags, env, shard_count (cases are dealt out one by one).
    """
    native.sh_test(
        name = name,
        srcs = ["//tests:run_pytest.sh"],
        args = ["$(rootpath %s)" % src] + args,
        data = [src, "//tests:pytest_support"] + deps + data,
        **kwargs
    )
