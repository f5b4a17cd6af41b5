"""The licences of the libraries that are in the programs of the wheel and of the tarball, from
Debian's copyright files."""

import pathlib
import re
import subprocess

# The packages of the libraries that are linked from their archives, or are only headers.
PACKAGES = (
    "libabsl-dev libc-ares-dev libcli11-dev libfmt-dev libgrpc++-dev libprotobuf-dev libre2-dev "
    "libspdlog-dev libsqlite3-dev libssl-dev libxxhash-dev libyaml-cpp-dev nlohmann-json3-dev "
    "zlib1g-dev"
).split()


def owner(library):
    """The package of a shared library of this machine."""
    told = subprocess.run(
        ["dpkg-query", "--search", f"*/x86_64-linux-gnu/{library}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return re.match(r"[^:,]+", told.stdout)[0]


def text(shared):
    """All of them as one text; `shared`: the names of libraries that are brought along."""
    parts = ["The programs of this package contain parts of the following libraries.\n"]
    for package in sorted({*PACKAGES, *map(owner, shared)}):
        copyright = pathlib.Path("/usr/share/doc", package, "copyright")
        parts.append(f"{'=' * 80}\n{package}\n{'=' * 80}\n")
        parts.append(copyright.read_text(encoding="utf-8"))
    return "\n".join(parts).encode()
