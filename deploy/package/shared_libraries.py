"""Which shared libraries programs need, and those that a package brings along."""

import pathlib
import subprocess
import tempfile

# What every Linux has in the version that the wheel's platform tag names.
SYSTEM = {
    "ld-linux-x86-64.so.2",
    "libc.so.6",
    "libdl.so.2",
    "libgcc_s.so.1",
    "libm.so.6",
    "libpthread.so.0",
    "librt.so.1",
    "libstdc++.so.6",
}
# LibTorch's, which is a package of its own. The last two come with CUDA's.
LIBTORCH = ("libtorch", "libc10", "libcudart", "libnccl")
# Where the libraries of this machine are.
FOLDER = pathlib.Path("/usr/lib/x86_64-linux-gnu")


def dynamic(content):
    """The entries of a program's dynamic section, such as {"NEEDED": ["libc.so.6"], "RUNPATH":
    ["$ORIGIN"]}; {} if it is no ELF file."""
    if not content.startswith(b"\x7fELF"):
        return {}
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        told = subprocess.run(
            ["readelf", "-dW", file.name], capture_output=True, text=True, check=True
        )
    found = {}
    for line in told.stdout.splitlines():
        if "[" in line and "(" in line:
            tag, value = line.split("(", 1)[1].split(")", 1)
            found.setdefault(tag, []).append(value.split("[", 1)[1].rstrip("]"))
    return found


def brought_along(contents):
    """Name -> bytes of the libraries that these programs need, directly or not, and that neither
    every Linux nor LibTorch has."""
    found = {}
    todo = [file.content for file in contents.values()]
    while todo:
        for name in dynamic(todo.pop()).get("NEEDED", []):
            if name in SYSTEM or name.startswith(LIBTORCH) or name in found:
                continue
            found[name] = (FOLDER / name).read_bytes()
            todo.append(found[name])
    return dict(sorted(found.items()))
