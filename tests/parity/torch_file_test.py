"""Tests that PyTorch and Python's zipfile read the files of TorchFile and PickleWriter."""

import collections
import os
import subprocess
import zipfile
import zlib

import pytest
import torch

from tests import bazel


PROGRAM = "tests/parity/muster-torch-file"


@pytest.fixture
def write(tmp_path):
    def written(kind):
        path = tmp_path / f"{kind}.pt"
        subprocess.run([bazel.runfile(PROGRAM), path, kind], check=True)
        return path

    return written


def read(path):
    done = subprocess.run([bazel.runfile(PROGRAM), path, "read"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return eval(done.stdout)


def refusal(path):
    done = subprocess.run([bazel.runfile(PROGRAM), path, "read"], capture_output=True, text=True)
    assert done.returncode == 1
    return done.stderr


TYPES = {
    torch.float32: "F32",
    torch.float64: "F64",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def literal(value):
    """Returns a value as `read` prints it."""
    if isinstance(value, torch.Tensor):
        storage = value.untyped_storage()
        return (
            "tensor",
            TYPES[value.dtype],
            value.storage_offset(),
            list(value.shape),
            list(value.stride()),
            zlib.crc32(bytes(storage.tolist())),
        )
    if isinstance(value, dict):
        return {literal(key): literal(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(literal(item) for item in value)
    return value.encode() if isinstance(value, str) else value


def test_pytorch_reads_values_of_every_kind(write):
    found = torch.load(write("small"), weights_only=True)
    assert found.pop("matrix").equal(torch.arange(6.0).reshape(2, 3))
    scalar = found.pop("scalar")
    assert scalar.shape == () and scalar.item() == -0.5
    assert found.pop("nothing").shape == (3, 0)
    assert found == {
        "none": None,
        "bools": [True, False],
        "ints": (0, -1, 2**31, -(2**62)),
        "float": 3e-4,
        "größe": "",
        7: {},
        "empty": [],
    }
    assert type(found["ints"]) is tuple


def test_pytorch_maps_it_into_memory(write):
    found = torch.load(write("small"), weights_only=True, mmap=True)
    assert found["matrix"].equal(torch.arange(6.0).reshape(2, 3))


def test_the_archive_is_whole_for_other_readers(write):
    path = write("small")
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        assert names[0] == "archive/data.pkl"
        assert archive.read("archive/data/1") == b"\x00\x00\x00\xbf"
        assert archive.read("archive/version") == b"3\n"
    # PyTorch's files have the same members.
    path = path.with_name("theirs.pt")
    torch.save({"matrix": torch.zeros(2, 3)}, path)
    with zipfile.ZipFile(path) as theirs:
        members = {name.split("/", 1)[1] for name in theirs.namelist()}
    assert {"data.pkl", "byteorder", "data/0", "version"} <= members
    assert {name.split("/", 1)[1] for name in names} == {
        *("data.pkl", "byteorder", "version"),
        *(f"data/{storage}" for storage in range(3)),
    }


def test_files_beyond_4_gib(write):
    path = write("huge")
    first, second = torch.load(path, weights_only=True, mmap=True)
    assert first.numel() == 5 * 2**28 and first[-1] == 0
    assert second.tolist() == [-0.5]
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo("archive/data/1")
        assert info.header_offset > 2**32
        assert archive.read(info) == b"\x00\x00\x00\xbf"
        assert archive.getinfo("archive/data/0").file_size == 5 * 2**30


def test_what_pytorch_writes_is_read(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95))
    model(torch.randn(5, 3)).sum().backward()
    optimizer.step()
    shared = torch.arange(12.0)
    values = {
        "optimizer": optimizer.state_dict(),
        "model": model.state_dict(),  # an OrderedDict with an attribute
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "ordered": collections.OrderedDict([("a", 1), ("b", (2, 3))]),
        "views": [shared[2:8:2], shared.view(3, 4).t(), shared[:0]],
        "types": [torch.ones(3, dtype=dtype) for dtype in TYPES],
        "numbers": [0, 1, 255, 256, 65535, 65536, -1, 2**40, -(2**62), 0.1, float("inf")],
        "long": "x" * 300,
        "twice": [shared, shared],
    }
    for protocol in (2, 3, 4, 5):
        torch.save(values, tmp_path / "theirs.pt", pickle_protocol=protocol)
        assert read(tmp_path / "theirs.pt") == literal(values)


def test_what_muster_writes_is_read(write):
    path = write("small")
    assert read(path) == literal(torch.load(path, weights_only=True))


def test_code_and_other_files_are_refused(tmp_path, write):
    class Runs:
        def __reduce__(self):
            return os.system, ("touch was_run",)

    path = tmp_path / "bad.pt"
    torch.save({"state": Runs()}, path)
    assert "'posix system' is not allowed" in refusal(path)
    assert not os.path.exists("was_run")
    torch.save(torch.zeros(2), path, _use_new_zipfile_serialization=False)
    assert "found a Python pickle: in Python, torch.save(torch.load(FILE" in refusal(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"N" * 100 + b".")
    assert "member 'archive/data.pkl' is compressed" in refusal(path)
    whole = write("small").read_bytes()
    for size in range(0, len(whole), 7):
        path.write_bytes(whole[:size])
        refusal(path)
    # The storage is shorter than the tensor says.
    assert whole.count(b"cpuJ\x06") == 1
    path.write_bytes(whole.replace(b"cpuJ\x06", b"cpuJ\x07"))
    assert "storage '0' has 24 bytes, expected 7 elements" in str(read(path))
