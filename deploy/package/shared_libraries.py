"""The shared libraries that programs need, and the libraries that a package contains."""

import pathlib
import subprocess
import tempfile

# Libraries that every Linux has in the version that the wheel's platform tag names.
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
# LibTorch's libraries, which are a package of their own. The last two come with LibTorch for CUDA.
LIBTORCH = ("libtorch", "libc10", "libcudart", "libnccl")
# The folder of this machine's libraries.
FOLDER = pathlib.Path("/usr/lib/x86_64-linux-gnu")


def dynamic(content):
    """Returns the entries of a program's dynamic section, such as {"NEEDED": ["libc.so.6"],
    "RUNPATH": ["$ORIGIN"]}; {} if the program is no ELF file."""
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
    """Returns name -> bytes of the libraries that these programs need, directly or indirectly.
    Libraries of every Linux and of LibTorch are left out."""
    found = {}
    todo = [file.content for file in contents.values()]
    while todo:
        for name in dynamic(todo.pop()).get("NEEDED", []):
            if name in SYSTEM or name.startswith(LIBTORCH) or name in found:
                continue
            found[name] = (FOLDER / name).read_bytes()
            todo.append(found[name])
    return dict(sorted(found.items()))
