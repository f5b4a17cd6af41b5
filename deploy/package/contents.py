"""The contents of a package: the path of each file, its bytes, and whether it is a program.

The files come from arguments: `--file PATH=SOURCE`, and `--folder PATH SOURCE...` for files that
keep their names."""

import dataclasses
import os
import pathlib
import re


@dataclasses.dataclass(frozen=True)
class File:
    content: bytes
    executable: bool = False

    @property
    def mode(self):
        return 0o755 if self.executable else 0o644


def read(source):
    source = pathlib.Path(source)
    content = source.read_bytes()
    library = re.search(r"\.so[.0-9]*$", source.name)
    return File(content, content.startswith((b"\x7fELF", b"#!")) and not library)


def add_arguments(parser):
    parser.add_argument("--file", action="append", default=[], metavar="PATH=SOURCE")
    parser.add_argument("--folder", nargs="+", action="append", default=[], metavar="PATH SOURCE")


def of_arguments(arguments):
    """Path -> File, sorted by path."""
    sources = dict(one.split("=", 1) for one in arguments.file)
    for folder, *files in arguments.folder:
        for source in files:
            path = os.path.normpath(f"{folder}/{os.path.basename(source)}")
            assert path not in sources, f"two files for {path}: {sources[path]} and {source}"
            sources[path] = source
    return {path: read(source) for path, source in sorted(sources.items())}
