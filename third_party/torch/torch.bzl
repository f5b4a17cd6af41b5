"""Finds LibTorch on this machine.

With --config=cuda it is the one of third_party/cuda/install.sh. Otherwise, in this order: $LIBTORCH
(a folder with include/ and lib/), the virtual environment that the project's scripts make
(~/.cache/muster/venv), then whatever `python3` imports as torch. """

def _has_torch(ctx, root):
    library = ctx.path(root + "/lib/libtorch_cpu.so")
    return library.exists and ctx.path(root + "/include/torch").exists

def _from_python(ctx, python):
    result = ctx.execute([
        python,
        "-c",
        "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])",
    ])
    return result.stdout.strip() if result.return_code == 0 else None

def _minor_version(ctx, root):
    """"2.13", from the header that says it in PyTorch's wheel and in the archive for C++."""
    found = {}
    for line in ctx.read(root + "/include/torch/headeronly/version.h").splitlines():
        words = line.split(" ")
        if len(words) == 3 and words[0] == "#define":
            found[words[1]] = words[2]
    return "%s.%s" % (found["TORCH_VERSION_MAJOR"], found["TORCH_VERSION_MINOR"])

def _torch_repository_impl(ctx):
    tried = []
    cuda = ctx.os.environ.get("MUSTER_CUDA") == "1"
    root = ctx.os.environ.get("LIBTORCH")
    if cuda:
        root = ctx.os.environ.get("HOME", "/root") + "/.cache/muster/cuda/torch"
        tried.append(root)
    elif root:
        tried.append("$LIBTORCH=" + root)
    else:
        venv = ctx.os.environ.get("HOME", "/root") + "/.cache/muster/venv/bin/python3"
        for python in [venv, "python3"]:
            tried.append(python)
            there = python == "python3" or ctx.path(venv).exists
            root = _from_python(ctx, python) if there else None
            if root:
                break
    if not root or not _has_torch(ctx, root):
        fail("LibTorch not found (tried: %s). " % ", ".join(tried) +
             "Set LIBTORCH to a folder with include/ and lib/, or run ./quickstart.sh")

    # Only these four folders, because torch/include also has a protobuf and a fmt that clash with
    # the system's.
    for folder in ["ATen", "c10", "torch", "caffe2"]:
        ctx.symlink(root + "/include/" + folder, "include/" + folder)
    for header in ["Context", "DeviceGuard", "TensorUtils", "TracerMode"]:
        ctx.symlink(Label("//third_party/torch:lean/ATen/%s.h" % header), "lean/ATen/%s.h" % header)
    ctx.symlink(root + "/lib", "lib")

    # The minor version: a program runs only with the version against which it was built.
    ctx.file("version.bzl", "TORCH_VERSION = \"%s\"\n" % _minor_version(ctx, root))

    # The libtorch.so of 2.11 for CUDA has some functions of std::filesystem and lacks others, so a
    # program that takes remove_all from there crashes. With this option the program finds the
    # functions of libstdc++ first.
    ctx.template("BUILD", Label("//third_party/torch:libtorch.BUILD"), {
        "{ROOT}": root,
        "{FIRST}": "\"-lstdc++\"," if cuda else "",
        "{CUDA}": "\"-ltorch_cuda\", \"-lc10_cuda\"," if cuda else "",
    })

torch_repository = repository_rule(
    implementation = _torch_repository_impl,
    environ = ["LIBTORCH", "HOME", "MUSTER_CUDA"],
    local = True,
)
