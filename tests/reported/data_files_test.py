"""Data that are not what was meant: refused by name, or read, or doubted once."""

import gzip
import struct

import numpy
import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

from tests.process import jobs

VOCABULARY = 65536
POINTER = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
    b"size 548105171\n"
)
WEB_PAGE = b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head></html>\n"


def token_job(muster, contents, vocabulary=VOCABULARY, dtype="uint16", **changes):
    (muster.folder / "train.bin").write_bytes(contents)
    gpt2 = {"vocab_size": vocabulary, "context": 8, "layers": 1, "heads": 1, "width": 8}
    return jobs.write_job(
        muster.folder,
        **{
            "world_size": 1,
            "model": {"gpt2": gpt2},
            "data": {"train": {"tokens": {"path": "train.bin", "dtype": dtype}}},
            "schedule": None,
            "batch": {"per_rank": 2},
            "stages": [{"fit": {"steps": 2}}],
            "checkpoint": None,
            "export": None,
        }
        | changes,
    )


def row_job(muster, data, **changes):
    """A job with `export` of a linear model on rows of 4 numbers and 3 classes."""
    path = muster.folder / "job.yaml"
    job = {
        "name": "rows",
        "world_size": 1,
        "seed": 3,
        "model": {"mlp": {"inputs": 4, "hidden": [5], "classes": 3}},
        "data": {"train": data},
        "optimizer": {"sgd": {"lr": 0.5}},
        "batch": {"per_rank": 4, "order": "sequential"},
        "stages": [{"fit": {"steps": 6}}],
        "export": {"path": "model.safetensors", "overwrite": True},
    } | changes
    path.write_text(yaml.safe_dump(job))
    return path


def refused(muster, job_file):
    """Returns the message about a job that does not train."""
    result = muster.cli("run", job_file, expect=None)
    assert result.code in (2, 100), result
    muster.assert_no_process()
    return result.err


def some_tokens(count=4000, below=50000):
    return numpy.random.default_rng(1).integers(0, below, count)


# ---- Tokens ----


@pytest.mark.parametrize("magic, dtype", [(20240520, "uint16"), (20240801, "uint32")])
def test_a_token_file_of_llm_c_is_refused_with_the_command_that_takes_the_header_away(
    muster, magic, dtype
):
    """Muster issue 49: 1024 bytes of header were read as tokens wherever the vocabulary allowed
    them."""
    header = struct.pack("<256i", magic, 1, 4000, *[0] * 253)
    contents = some_tokens().astype(dtype).tobytes()
    said = refused(muster, token_job(muster, header + contents, dtype=dtype))
    assert "train.bin: expected token numbers, found a token file of llm.c" in said, said
    assert "tail -c +1025 FILE > NEW" in said and f"dtype is {dtype}" in said, said


@pytest.mark.parametrize(
    "contents, found, remedy",
    [
        (POINTER, "a git-lfs pointer (a text in place of a file of 548105171", "git lfs pull"),
        (WEB_PAGE, "a web page (HTML)", "download the file"),
        (gzip.compress(some_tokens().tobytes()), "a gzip file", "gzip -dc FILE > NEW"),
        ("npy", "a .npy file", ".astype('<u2').tofile("),
    ],
    ids=["git-lfs", "html", "gzip", "npy"],
)
def test_what_lies_in_place_of_a_token_file_is_named(muster, contents, found, remedy):
    """Muster issue 49."""
    if contents == "npy":
        numpy.save(muster.folder / "x.npy", some_tokens().astype("<u2"))
        contents = (muster.folder / "x.npy").read_bytes()
    said = refused(muster, token_job(muster, contents))
    assert f"found {found}" in said and remedy in said and "train.bin" in said, said


DOUBTS = {
    "of-another-width": {
        "train": (some_tokens().astype("<u4"), "with 4 bytes for each token?"),
        "validate": (some_tokens().astype("<i8"), "with 8 bytes for each token?"),
        "test": (some_tokens().astype("<u2"), None),
    },
    "of-another-kind": {
        "train": (some_tokens().astype(">u2"), "big-endian?"),
        "validate": (some_tokens().astype("<f4"), "whole numbers of type float32"),
        "test": (b"First Citizen:\nBefore we proceed any further.\n" * 200, "muster data pack"),
    },
}


@pytest.mark.parametrize("kind", DOUBTS)
def test_a_token_file_that_looks_like_another_one_is_doubted_once(muster, kind):
    """Muster issue 49: trained on every second token being 0, without a word."""
    sets = DOUBTS[kind]
    job_file = token_job(
        muster,
        b"",
        data={name: {"tokens": {"path": f"{name}.bin"}} for name in sets},
        stages=[{"fit": {"steps": 1}}, {"test": {}}],
    )
    for name, (contents, _) in sets.items():
        (muster.folder / f"{name}.bin").write_bytes(bytes(contents))
    said = muster.cli("run", job_file).err
    for name, (_, doubt) in sets.items():
        events = [line for line in said.splitlines() if f"DATA_DOUBTFUL: data.{name}: " in line]
        assert len(events) == (1 if doubt else 0), said
        assert not doubt or (f"{name}.bin: " in events[0] and doubt in events[0]), said


def test_a_token_beyond_the_vocabulary_comes_with_the_reading_that_fits(muster):
    """Muster issue 49: `dtype: uint32` for a file of uint16 said only "token 1234567 is beyond the
    vocabulary"."""
    job_file = token_job(
        muster, some_tokens(below=1000).astype("<u2").tobytes(), vocabulary=1000, dtype="uint32"
    )
    said = refused(muster, job_file)
    assert "beyond the model's vocabulary of 1000" in said, said
    assert "with 2 bytes each: 'dtype: uint16' reads them" in said, said


# ---- Rows ----


def trained(muster, job_file):
    result = muster.cli("run", job_file)
    return load_file(muster.folder / "model.safetensors"), result.err


def rows(source=5):
    random = numpy.random.default_rng(source)
    return random.normal(size=(24, 2, 2)), random.integers(0, 3, 24)


@pytest.mark.parametrize("dtype, order", [("<f2", "C"), ("<f8", "F")], ids=["f2", "f8-fortran"])
def test_npy_files_that_nearly_fit_are_read_as_numpy_casts_them(muster, dtype, order):
    """Muster issue 49: float64 inputs, int32 labels and Fortran order were refused."""
    inputs, labels = rows()
    inputs = inputs.astype(dtype)
    numpy.save(muster.folder / "y.npy", labels.astype("<i4"))
    numpy.save(muster.folder / "x.npy", numpy.array(inputs, order=order))
    data = {"npy": {"inputs": "x.npy", "labels": "y.npy"}}
    found, said = trained(muster, row_job(muster, data))
    assert said.count("DATA_CONVERTED") == 1, said
    assert "labels: int32 is read as int64" in said, said
    assert ("in Fortran order" in said) == (order == "F"), said
    assert ("is read as float32" in said) == (dtype != "<f4"), said
    # The results of NumPy's own cast.
    numpy.save(muster.folder / "x.npy", numpy.ascontiguousarray(inputs.astype("<f4")))
    numpy.save(muster.folder / "y.npy", labels.astype("<i8"))
    expected, said = trained(muster, row_job(muster, data))
    assert "DATA_CONVERTED" not in said, said
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


def test_safetensors_rows_that_nearly_fit_are_read_as_pytorch_casts_them(muster):
    """Muster issue 49."""
    inputs, labels = (torch.from_numpy(part) for part in rows())
    data = {"safetensors": {"path": "rows.safetensors"}}
    path = muster.folder / "rows.safetensors"
    save_file({"inputs": inputs.bfloat16(), "labels": labels.to(torch.int32)}, path)
    found, said = trained(muster, row_job(muster, data))
    assert said.count("DATA_CONVERTED") == 1, said
    save_file({"inputs": inputs.bfloat16().float(), "labels": labels.long()}, path)
    expected, _ = trained(muster, row_job(muster, data))
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


def test_a_number_that_float32_cannot_hold_is_named(muster):
    """Muster issue 49, a further case: NumPy's cast would make it infinite."""
    inputs, labels = rows()
    inputs[3, 1, 0] = 1e300
    numpy.save(muster.folder / "x.npy", numpy.asfortranarray(inputs))
    numpy.save(muster.folder / "y.npy", labels)
    said = refused(muster, row_job(muster, {"npy": {"inputs": "x.npy", "labels": "y.npy"}}))
    assert "row 3" in said and "expected numbers that float32 can hold, found 1e+300" in said, said


@pytest.mark.parametrize(
    "make, remedy",
    [
        (lambda x: x.astype(">f4"), ".astype('<f4')"),
        (lambda x: x.astype("O"), "allow_pickle=True"),
    ],
    ids=["big-endian", "objects"],
)
def test_npy_files_that_do_not_fit_come_with_the_line_that_converts_them(muster, make, remedy):
    """Muster issue 49: only Fortran order said what to do."""
    inputs, labels = rows()
    numpy.save(muster.folder / "x.npy", make(numpy.abs(inputs)))
    numpy.save(muster.folder / "y.npy", labels)
    said = refused(muster, row_job(muster, {"npy": {"inputs": "x.npy", "labels": "y.npy"}}))
    assert "numpy.save('new.npy', numpy.load(FILE" in said and remedy in said, said


def idx(shape, data):
    return struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape) + data


def test_idx_files_are_packed_or_not_whatever_their_name(muster):
    """Muster issue 49, a further case: a browser unpacks train-images-idx3-ubyte.gz and keeps the
    name."""
    images = idx([12, 2, 2], bytes(range(48)))
    (muster.folder / "images.gz").write_bytes(images)
    (muster.folder / "labels").write_bytes(gzip.compress(idx([12], bytes([0, 1, 2] * 4))))
    muster.cli("run", row_job(muster, {"idx": {"images": "images.gz", "labels": "labels"}}))


# ---- Every other file ----

FORMS = {
    "npy": {"data": {"train": {"npy": {"inputs": "bad", "labels": "bad"}}}},
    "safetensors": {"data": {"train": {"safetensors": {"path": "bad"}}}},
    "idx": {"data": {"train": {"idx": {"images": "bad", "labels": "bad"}}}},
    "weights": {"model": {"mlp": {"inputs": 4, "hidden": [5], "classes": 3}, "weights": "bad"}},
    "torchscript": {"model": {"torchscript": {"path": "bad", "inputs": [4], "classes": 3}}},
    "plugin": {"model": {"plugin": {"path": "bad", "name": "x"}}},
    "optimizer": {"optimizer": {"sgd": {"lr": 0.1}, "state": "bad"}},
}


@pytest.mark.parametrize("form", FORMS)
def test_a_git_lfs_pointer_is_named_in_place_of_every_file_before_anything_starts(muster, form):
    """Muster issue 49: "expected a header of at most 100000000 bytes, found a length of
    2336927755350992246"."""
    (muster.folder / "bad").write_bytes(POINTER)
    changes = dict(FORMS[form])
    data = changes.pop("data", {"train": {"safetensors": {"path": "bad"}}})
    job_file = row_job(muster, data["train"], **changes)
    result = muster.cli("validate", job_file, expect=2)
    assert "bad: expected the file itself, found a git-lfs pointer" in result.err, result.err
    assert "'git lfs pull' in its repository fetches the file" in result.err, result.err


def test_weights_of_torch_save_come_with_the_line_that_converts_them(muster):
    """Muster issue 49, a further case: pytorch_model.bin in place of model.safetensors."""
    torch.save({"a": torch.ones(3)}, muster.folder / "pytorch_model.bin")
    inputs, labels = rows()
    numpy.save(muster.folder / "x.npy", inputs.astype("<f4"))
    numpy.save(muster.folder / "y.npy", labels)
    mlp = {"inputs": 4, "hidden": [5], "classes": 3}
    job_file = row_job(
        muster,
        {"npy": {"inputs": "x.npy", "labels": "y.npy"}},
        model={"mlp": mlp, "weights": "pytorch_model.bin"},
    )
    said = refused(muster, job_file)
    assert "expected a safetensors file, found an archive of PyTorch" in said, said
    assert "safetensors.torch.save_file(torch.load(FILE, weights_only=True)" in said, said


def test_a_pointer_is_not_packed_as_text(muster):
    """Muster issue 49, a further case: 130 bytes of a pointer would be the training data."""
    (muster.folder / "text").write_bytes(POINTER)
    result = muster.cli("data", "pack", "--tokenizer", "bytes", "--out", "t.bin", "text", expect=2)
    assert "text: expected the text itself, found a git-lfs pointer" in result.err, result.err
    assert not (muster.folder / "t.bin").exists()


def test_prompts_and_job_files_of_another_kind_are_named(muster):
    """Muster issue 49, a further case."""
    job_file = muster.folder / "packed.yaml"
    job_file.write_bytes(gzip.compress(b"name: x\n"))
    said = muster.cli("validate", job_file, expect=2).err
    assert "expected a job file (YAML), found a gzip file: 'gzip -dc FILE > NEW'" in said, said
    (muster.folder / "prompts.json").write_bytes(gzip.compress(b"[[1]]"))
    generate = {"prompts": "prompts.json", "max_tokens": 2}
    job_file = token_job(
        muster,
        some_tokens().astype("<u2").tobytes(),
        stages=[{"predict": {"output": "out.json", "generate": generate}}],
        optimizer=None,
    )
    said = muster.cli("validate", job_file, expect=2).err
    assert "prompts.json: expected JSON, found a gzip file" in said, said
