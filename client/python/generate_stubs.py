"""Makes muster/_proto, the messages and stubs of the package `muster`, from the proto files:
`generate_stubs.py ROOT PACKAGE`. ROOT is the folder that has proto/muster/v1, and PACKAGE is the
folder `muster`.

The modules lie below muster._proto, because another package (proto-plus) has the name `proto`. The
proto files keep their paths, which programs in other languages use."""

import pathlib
import sys

from grpc_tools import protoc

PACKAGE = "proto.muster.v1"


def generate(root, package):
    out = package / "_proto"
    out.mkdir()
    protos = (root / "proto/muster/v1").glob("*.proto")
    names = sorted(str(path.relative_to(root)) for path in protos)
    assert names, f"{root} has no proto files"
    well_known = pathlib.Path(protoc.__file__).parent / "_proto"
    code = protoc.main(
        ["protoc", f"-I{root}", f"-I{well_known}", f"--python_out={out}", f"--pyi_out={out}"]
        + [f"--grpc_python_out={out}", *names]
    )
    assert code == 0, "protoc refuses the proto files"
    for path in [*out.rglob("*.py"), *out.rglob("*.pyi")]:
        moved = path.read_text().replace(f"from {PACKAGE} ", f"from muster._proto.{PACKAGE} ")
        path.write_text(moved)
    for folder in (out, out / "proto", out / "proto/muster", out / "proto/muster/v1"):
        (folder / "__init__.py").write_text("")


if __name__ == "__main__":
    generate(*map(pathlib.Path, sys.argv[1:]))
