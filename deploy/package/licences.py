"""The licences of the libraries in a package's programs: from Debian's copyright files, and
PyTorch's, because the worker contains parts of its headers."""

import pathlib
import re
import subprocess

# The packages of header-only libraries, and of libraries whose archives are in the programs of the
# wheel and the tarball.
HEADERS = ["libcli11-dev", "nlohmann-json3-dev"]
ARCHIVES = (
    "libabsl-dev libc-ares-dev libcurl4-openssl-dev libfmt-dev libgrpc++-dev libpcre2-dev "
    "libprotobuf-dev libre2-dev libspdlog-dev libsqlite3-dev libssl-dev libutf8proc-dev "
    "libxxhash-dev libyaml-cpp-dev zlib1g-dev"
).split()
# The name of the file with the licences.
FILE = "licences-of-libraries.txt"


def owner(library):
    """Returns the package of a shared library of this machine."""
    told = subprocess.run(
        ["dpkg-query", "--search", f"*/x86_64-linux-gnu/{library}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return re.match(r"[^:,]+", told.stdout)[0]


def text(packages, torch=None):
    """Returns all licences as one text. `torch`: the file with PyTorch's licence, for a package
    with the worker."""
    files = {name: f"/usr/share/doc/{name}/copyright" for name in sorted({*HEADERS, *packages})}
    if torch is not None:
        files["PyTorch"] = torch
    parts = ["The programs of this package contain parts of the following libraries.\n"]
    for name, file in files.items():
        parts.append(f"{'=' * 80}\n{name}\n{'=' * 80}\n")
        parts.append(pathlib.Path(file).read_text(encoding="utf-8"))
    return "\n".join(parts).encode()
