"""Makes the wheel: `wheel.py --out FILE --version V --torch 2.13 --epoch SECONDS --stubs
generate_stubs.py --protos FILE... --readme FILE --license FILE --torch-license FILE --entry PROGRAM
--file ...`. The same files give the same bytes.

The contents of the package `muster` come from --file and --folder. The program --entry is on PATH
under the name of each program in bin/. The messages and stubs are generated from the protos."""

import argparse
import base64
import hashlib
import importlib.util
import os
import pathlib
import re
import tempfile
import time
import zipfile

import contents
import licences
import prefix

TAG = "py3-none-manylinux_2_36_x86_64"


def generated(generator, protos):
    """Returns the files of muster/_proto."""
    spec = importlib.util.spec_from_file_location("generate_stubs", generator)
    generate_stubs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate_stubs)
    with tempfile.TemporaryDirectory() as folder:
        package = pathlib.Path(folder)
        generate_stubs.generate(pathlib.Path(protos[0]).absolute().parents[3], package)
        return {
            str(path.relative_to(package)): contents.File(path.read_bytes())
            for path in sorted(package.rglob("*.py*"))
            if path.is_file() and path.suffix in (".py", ".pyi")
        }


def only(pattern, stubs):
    """Returns the only text in the stubs that matches a pattern."""
    texts = [file.content.decode() for file in stubs.values()]
    found = {match for text in texts for match in re.findall(pattern, text)}
    assert len(found) == 1, f"{pattern} has the values {found}"
    return found.pop()


def requirements(torch, stubs):
    """Returns the required packages. The stubs refuse older packages than those with which they
    were made, and another major version of protobuf."""
    protobuf = only(r"# Protobuf Python Version: (\S+)", stubs)
    return [
        f"grpcio>={only(r'GRPC_GENERATED_VERSION = .([0-9.]+).', stubs)}",
        "numpy",
        f"protobuf>={protobuf},<{int(protobuf.split('.')[0]) + 1}",
        f"torch=={torch}.*",
        "xxhash>=2",
        'gguf; extra == "gguf"',
        'jinja2; extra == "data"',
        'pandas; extra == "pandas"',
        'pyarrow; extra == "data"',
        'safetensors; extra == "export"',
        'tokenizers; extra == "data"',
    ]


def metadata(version, required, readme):
    fields = [
        ("Metadata-Version", "2.1"),
        ("Name", "muster"),
        ("Version", version),
        ("Summary", "Training orchestration in C++: coordinator, agents, LibTorch workers, client"),
        ("License", "Apache-2.0"),
        ("License-File", "LICENSE"),
        ("License-File", licences.FILE),
        ("Classifier", "Operating System :: POSIX :: Linux"),
        ("Classifier", "Programming Language :: C++"),
        ("Classifier", "Programming Language :: Python :: 3"),
        ("Requires-Python", ">=3.10"),
        *(("Requires-Dist", one) for one in required),
        ("Provides-Extra", "data"),
        ("Provides-Extra", "export"),
        ("Provides-Extra", "gguf"),
        ("Provides-Extra", "pandas"),
        ("Description-Content-Type", "text/markdown"),
    ]
    return "".join(f"{name}: {value}\n" for name, value in fields).encode() + b"\n" + readme


def write(out, files, record, epoch):
    """`record` is the path of the list of all files, which comes last."""
    lines = []
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:

        def add(path, file):
            entry = zipfile.ZipInfo(path, time.gmtime(epoch)[:6])
            entry.create_system = 3  # Unix, which has modes
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100000 | file.mode) << 16
            archive.writestr(entry, file.content)

        for path, file in sorted(files.items()):
            add(path, file)
            digest = base64.urlsafe_b64encode(hashlib.sha256(file.content).digest())
            lines.append(f"{path},sha256={digest.decode().rstrip('=')},{len(file.content)}\n")
        add(record, contents.File("".join([*lines, f"{record},,\n"]).encode()))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in "out version torch stubs readme license torch-license entry".split():
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--epoch", type=int, required=True)
    parser.add_argument("--protos", nargs="+", required=True)
    contents.add_arguments(parser)
    arguments = parser.parse_args()

    installed = contents.of_arguments(arguments)
    programs = [os.path.basename(path) for path in installed if path.startswith("bin/")]
    text_of_licences = prefix.complete(installed, arguments.torch_license)
    stubs = generated(arguments.stubs, arguments.protos)
    files = {f"muster/{path}": file for path, file in [*installed.items(), *stubs.items()]}
    name = f"muster-{arguments.version}"
    entry = contents.read(arguments.entry)
    for program in programs:
        files[f"{name}.data/scripts/{program}"] = entry
    info = f"{name}.dist-info"
    readme = pathlib.Path(arguments.readme).read_bytes()
    required = requirements(arguments.torch, stubs)
    texts = {
        "METADATA": metadata(arguments.version, required, readme),
        "WHEEL": f"Wheel-Version: 1.0\nGenerator: muster ({arguments.version})\n"
        f"Root-Is-Purelib: false\nTag: {TAG}\n".encode(),
        "licenses/LICENSE": pathlib.Path(arguments.license).read_bytes(),
        f"licenses/{licences.FILE}": text_of_licences,
    }
    files |= {f"{info}/{path}": contents.File(text) for path, text in texts.items()}
    write(arguments.out, files, f"{info}/RECORD", arguments.epoch)


if __name__ == "__main__":
    main()
