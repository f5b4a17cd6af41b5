"""The Python of the virtual environment that the project's scripts make (~/.cache/muster/venv), for
what is generated in Python: that of $MUSTER_PYTHON if it is set."""

def _python_repository_impl(ctx):
    python = ctx.os.environ.get("MUSTER_PYTHON")
    if not python:
        python = ctx.os.environ.get("HOME", "/root") + "/.cache/muster/venv/bin/python"
    if not ctx.path(python).exists:
        fail("There is no %s: run third_party/install.sh --tests, or set MUSTER_PYTHON" % python)
    ctx.file("python.sh", "#!/bin/sh\nexec %s \"$@\"\n" % python, executable = True)
    ctx.symlink(Label("//third_party/python:python.BUILD"), "BUILD")

python_repository = repository_rule(
    implementation = _python_repository_impl,
    environ = ["HOME", "MUSTER_PYTHON"],
    local = True,
)
