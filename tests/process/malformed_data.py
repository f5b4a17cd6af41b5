"""What is wrong with files of training data."""

import struct

from tests.process import inputs
from tests.process.inputs import (
    CLASSES,
    ROWS,
    VOCABULARY,
    WIDTH,
    floats,
    idx,
    int64s,
    npy,
    npy_file,
)
from tests.process.malformed_case import case, changed_file, changed_job, cut, first, replaced_file

NAN, INFINITE = float("nan"), float("inf")

# ---- Files of tokens ----

changed_file(
    "tokens-half-a-token", "tokens", "train.bin", cut(1), expected="multiple of 2", found="399"
)
changed_file(
    "tokens-too-short", "tokens", "train.bin", first(16), expected="9 tokens", found="found 8"
)
changed_file(
    "tokens-empty",
    "tokens",
    "train.bin",
    first(0),
    expected="data.train.tokens.path[0]",
    found="is empty",
    by="reading",
)
changed_file(
    "tokens-beyond-vocabulary",
    "tokens",
    "train.bin",
    lambda data: data[:100] + b"\x20\0" + data[102:],
    expected=f"vocabulary of {VOCABULARY}",
    found="token 32 at byte offset 100",
)
replaced_file(
    "tokens-that-are-text",
    "tokens",
    "train.bin",
    b"just words, and nothing but words.",
    f"vocabulary of {VOCABULARY}",
    "token 30058",
)
replaced_file(
    "tokens-that-are-safetensors",
    "tokens",
    "train.bin",
    lambda: inputs.safetensors(inputs.rows()),
    f"vocabulary of {VOCABULARY}",
    "token 144 at byte offset 0",
)
changed_job(
    "tokens-labelled-uint32",
    "tokens",
    {"data.train.tokens.dtype": "uint32"},
    "train.bin",
    f"vocabulary of {VOCABULARY}",
    "token 262152 at byte offset 0",
    by="session",
)


@case(
    "tokens-that-are-a-folder",
    "train.bin",
    "data.train.tokens.path[0]",
    "is not a regular file",
    by="reading",
)
def tokens_folder(folder):
    job = inputs.tokens_job(folder)
    (folder / "train.bin").unlink()
    (folder / "train.bin").mkdir()
    return job


@case("tokens-missing", "train.bin", "cannot read", "No such file", by="reading")
def tokens_missing(folder):
    job = inputs.tokens_job(folder)
    (folder / "train.bin").unlink()
    return job


@case("tokens-second-file-cut", "second.bin", "multiple of 2", "found 33")
def tokens_second(folder):
    job = inputs.tokens_job(folder)
    (folder / "second.bin").write_bytes(b"\1" * 33)
    job["data"]["train"]["tokens"]["path"] = ["train.bin", "second.bin"]
    return job


changed_job(
    "tokens-for-rows",
    "tokens",
    {"model": {"mlp": inputs.MLP}},
    "data.train.tokens",
    "allowed: safetensors, idx, npy",
    "found tokens",
)
changed_job(
    "rows-for-tokens",
    "rows",
    {"model": {"gpt2": inputs.GPT2}},
    "data.train.safetensors",
    "allowed: tokens",
    "found rows",
)

# ---- Files of one rank each ----


@case(
    "per-rank-too-few",
    "data.train.per_rank",
    "as many paths as world_size, 2",
    "found 1",
    by="reading",
)
def per_rank_too_few(folder):
    job = inputs.tokens_job(folder, world_size=2)
    job["data"]["train"] = {"tokens": {}, "per_rank": ["train.bin"]}
    return job


@case("per-rank-one-cut", "other.bin", "multiple of 2", "found 33")
def per_rank_cut(folder):
    job = inputs.tokens_job(folder, world_size=2)
    (folder / "other.bin").write_bytes(b"\1" * 33)
    job["data"]["train"] = {"tokens": {}, "per_rank": ["train.bin", "other.bin"]}
    return job


# ---- Rows in safetensors ----


def rows_file(name, expected, found, **changes):
    replaced_file(
        name,
        "rows",
        "rows.safetensors",
        lambda: inputs.safetensors(inputs.rows(**changes)),
        expected,
        found,
    )


def rows_header(name, expected, found, change):
    """The header's text changed, the data as they were."""

    def changed(data):
        length = struct.unpack_from("<Q", data)[0]
        return inputs.safetensors_file(change(data[8 : 8 + length].decode()), data[8 + length :])

    changed_file(name, "rows", "rows.safetensors", changed, expected=expected, found=found)


changed_file(
    "rows-cut-in-data", "rows", "rows.safetensors", cut(5), expected="data within", found="found ["
)
changed_file(
    "rows-cut-in-header",
    "rows",
    "rows.safetensors",
    first(40),
    expected="a header of",
    found="found 32 bytes",
)
changed_file(
    "rows-cut-in-length",
    "rows",
    "rows.safetensors",
    first(5),
    expected="at least 8 bytes",
    found="found 5",
)
changed_file(
    "rows-longer",
    "rows",
    "rows.safetensors",
    lambda data: data + b"more",
    expected="288 bytes of data",
    found="found 292",
)
changed_file(
    "rows-huge-header",
    "rows",
    "rows.safetensors",
    lambda data: struct.pack("<Q", 1 << 60) + data[8:],
    expected="a header of at most",
    found=str(1 << 60),
)
replaced_file(
    "rows-that-are-tokens",
    "rows",
    "rows.safetensors",
    lambda: inputs.tokens([1] * 200),
    "a header of at most",
    "found a length of",
)
replaced_file(
    "rows-that-are-npy",
    "rows",
    "rows.safetensors",
    lambda: npy("<f4", [1], floats([1])),
    "a header of at most",
    "found a length of",
)
rows_header("rows-header-no-json", "JSON", "header", lambda text: text[:-20])
rows_header("rows-header-a-list", "start with '{'", "the header", lambda text: "[]")
rows_header(
    "rows-overlapping",
    "expected its data at 192",
    "found 191",
    lambda text: text.replace("[192, 288]", "[191, 287]"),
)
rows_header(
    "rows-offsets-backwards",
    "data within",
    "[288, 192)",
    lambda text: text.replace("[192, 288]", "[288, 192]"),
)
rows_header("rows-unknown-dtype", "unknown dtype", "'F31'", lambda text: text.replace("F32", "F31"))
rows_header(
    "rows-dtype-of-another-size",
    "takes 384 bytes",
    "found 192",
    lambda text: text.replace("F32", "F64"),
)
rows_header(
    "rows-negative-shape",
    "a list of sizes",
    "'inputs': shape",
    lambda text: text.replace("[12, 4]", "[-12, -4]"),
)
rows_header(
    "rows-shape-overflows",
    "overflows",
    "[4611686018427387904, 4]",
    lambda text: text.replace("[12, 4]", "[4611686018427387904, 4]"),
)
rows_header(
    "rows-fractional-shape",
    "a list of sizes",
    "'inputs': shape",
    lambda text: text.replace("[12, 4]", "[12.5, 4]"),
)
rows_header(
    "rows-name-twice",
    "the header",
    "'inputs' is there twice",
    lambda text: text.replace('"labels"', '"inputs"'),
)
rows_header(
    "rows-deep-header",
    "dtype, shape and data_offsets",
    "entry 'a'",
    lambda text: '{"a":' * 10000 + "1" + "}" * 10000,
)
rows_header(
    "rows-nul-in-header", "JSON", "the header", lambda text: text.replace("labels", "lab\0ls")
)
rows_file("rows-without-labels", "'labels'", "found no 'labels'", labels=None)
rows_file("rows-without-inputs", "'inputs'", "found no 'inputs'", inputs=None)
rows_file("rows-in-float64", "F32", "F64", inputs=("F64", [ROWS, WIDTH], b"\0" * 8 * ROWS * WIDTH))
rows_file("rows-labels-in-int32", "I64", "I32", labels=("I32", [ROWS], b"\0" * 4 * ROWS))
rows_file(
    "rows-labels-that-are-numbers", "int64", "float32", labels=("F32", [ROWS], b"\0" * 4 * ROWS)
)
rows_file(
    "rows-too-wide",
    f"{WIDTH} numbers per row",
    f"[{ROWS}, 5]",
    inputs=("F32", [ROWS, 5], b"\0" * 20 * ROWS),
)
rows_file("rows-flat", f"{WIDTH} numbers per row", "[48]", inputs=("F32", [48], b"\0" * 192))
rows_file("rows-fewer-labels", f"[{ROWS}]", "[11]", labels=("I64", [11], int64s(inputs.labels(11))))
rows_file(
    "rows-label-too-large",
    f"[0, {CLASSES})",
    "found 3",
    labels=("I64", [ROWS], int64s([0] * 11 + [3])),
)
rows_file(
    "rows-label-negative",
    f"[0, {CLASSES})",
    "found -1",
    labels=("I64", [ROWS], int64s([-1] + [0] * 11)),
)
rows_file(
    "rows-none", "a row", "found none", inputs=("F32", [0, WIDTH], b""), labels=("I64", [0], b"")
)
rows_file(
    "rows-with-nan",
    "finite",
    "found nan",
    inputs=("F32", [ROWS, WIDTH], floats([0.5] * 41 + [NAN] + [0.5] * 6)),
)
rows_file(
    "rows-with-infinity",
    "finite",
    "found -inf",
    inputs=("F32", [ROWS, WIDTH], floats([-INFINITE] + [0.5] * 47)),
)


@case("rows-second-file-of-another-shape", "second.safetensors", "[4]", "[2, 2]")
def rows_second(folder):
    job = inputs.rows_job(folder)
    other = inputs.rows(inputs=("F32", [ROWS, 2, 2], b"\0" * 192))
    (folder / "second.safetensors").write_bytes(inputs.safetensors(other))
    job["data"]["train"]["safetensors"]["path"] = ["rows.safetensors", "second.safetensors"]
    return job


# ---- NumPy ----


def npy_inputs(name, expected, found, contents):
    replaced_file(name, "npy", "inputs.npy", contents, expected, found)


GOOD_INPUTS = floats([0.5] * ROWS * WIDTH)
changed_file(
    "npy-cut-in-data", "npy", "inputs.npy", cut(4), expected="expected 192 bytes", found="found 188"
)
changed_file(
    "npy-longer",
    "npy",
    "inputs.npy",
    lambda data: data + b"\0",
    expected="expected 192 bytes",
    found="found 193",
)
changed_file(
    "npy-cut-in-header",
    "npy",
    "inputs.npy",
    first(50),
    expected="expected a header of 118 bytes",
    found="found 40",
)
changed_file(
    "npy-cut-in-magic",
    "npy",
    "inputs.npy",
    first(7),
    expected="expected a header",
    found="found 7 bytes",
)
changed_file(
    "npy-other-magic",
    "npy",
    "inputs.npy",
    lambda data: b"\x93NUMPX" + data[6:],
    expected="begin with",
    found="not a .npy file",
)
npy_inputs(
    "npy-version-9",
    "1.0, 2.0 or 3.0",
    "found 9.0",
    npy("<f4", [ROWS, WIDTH], GOOD_INPUTS, version=(9, 0)),
)
npy_inputs(
    "npy-fortran-order",
    "C order",
    "Fortran order",
    npy("<f4", [ROWS, WIDTH], GOOD_INPUTS, fortran=True),
)
npy_inputs("npy-big-endian", "'<f4'", "'>f4'", npy(">f4", [ROWS, WIDTH], GOOD_INPUTS))
npy_inputs("npy-float64", "'<f4'", "'<f8'", npy("<f8", [ROWS, WIDTH], GOOD_INPUTS * 2))
npy_inputs(
    "npy-of-objects",
    "'<f4'",
    "'|O' (Python objects)",
    npy("|O", [1], b"cos\nsystem\n(S'touch pwned'\ntR."),
)
npy_inputs(
    "npy-of-fields",
    "one number",
    "several fields",
    npy_file("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (12, 4), }", GOOD_INPUTS),
)
npy_inputs(
    "npy-header-is-code",
    "{'descr': ...",
    "found no '{'",
    npy_file("__import__('os').system('touch pwned')", GOOD_INPUTS),
)
npy_inputs(
    "npy-header-without-shape",
    "'shape'",
    "keys missing",
    npy_file("{'descr': '<f4', 'fortran_order': False}", GOOD_INPUTS),
)
npy_inputs(
    "npy-negative-shape",
    "shape",
    "no list of sizes",
    npy_file("{'descr': '<f4', 'fortran_order': False, 'shape': (-12, 4), }", GOOD_INPUTS),
)
npy_inputs(
    "npy-huge-shape", "more than 2^64", "found 192", npy("<f4", [1 << 62, 1 << 62], GOOD_INPUTS)
)
npy_inputs("npy-too-wide", f"{WIDTH} numbers per row", "[6, 8]", npy("<f4", [6, 8], GOOD_INPUTS))
npy_inputs("npy-scalar", f"{WIDTH} numbers per row", "[]", npy("<f4", [], floats([1])))
npy_inputs(
    "npy-with-nan", "finite", "found nan", npy("<f4", [ROWS, WIDTH], floats([NAN] + [0.5] * 47))
)
replaced_file(
    "npy-labels-in-float64", "npy", "labels.npy", npy("<f8", [ROWS], b"\0" * 96), "'<i8'", "'<f8'"
)
replaced_file(
    "npy-fewer-labels",
    "npy",
    "labels.npy",
    npy("<i8", [11], int64s(inputs.labels(11))),
    f"[{ROWS}]",
    "[11]",
)
replaced_file(
    "npy-label-too-large",
    "npy",
    "labels.npy",
    npy("<i8", [ROWS], int64s([3] * ROWS)),
    f"[0, {CLASSES})",
    "found 3",
)
changed_job(
    "npy-labels-missing",
    "npy",
    {"data.train.npy.labels": []},
    "data.train.npy.labels",
    "one or more paths",
    "is missing",
)
changed_job(
    "npy-more-inputs",
    "npy",
    {"data.train.npy.inputs": ["inputs.npy", "inputs.npy"]},
    "data.train.npy.labels",
    "as many paths as inputs, 2",
    "found 1",
)

# ---- IDX ----


def idx_images(name, expected, found, contents):
    replaced_file(name, "idx", "images.idx", contents, expected, found)


PIXELS = bytes(ROWS * 64)
changed_file(
    "idx-cut", "idx", "images.idx", cut(10), expected="expected 768 bytes", found="found 758"
)
changed_file(
    "idx-longer",
    "idx",
    "images.idx",
    lambda data: data + b"\0",
    expected="expected 768 bytes",
    found="found 769",
)
changed_file(
    "idx-cut-in-header", "idx", "images.idx", first(9), expected="a header", found="found 9 bytes"
)
changed_file(
    "idx-cut-in-magic", "idx", "images.idx", first(3), expected="a header", found="found 3 bytes"
)
changed_file(
    "idx-other-magic",
    "idx",
    "images.idx",
    lambda data: b"\x89PNG" + data[4:],
    expected="two zero bytes",
    found="0x8950",
)
idx_images("idx-of-floats", "0x08", "type 0x0d", idx([ROWS, 8, 8], PIXELS * 4, kind=0x0D))
idx_images("idx-two-dimensions", "[N, H, W]", f"[{ROWS}, 64]", idx([ROWS, 64], PIXELS))
idx_images("idx-no-dimensions", "1 to 4 dimensions", "found 0", idx([], b""))
idx_images(
    "idx-many-dimensions", "1 to 4 dimensions", "found 200", struct.pack(">HBB", 0, 8, 200) + PIXELS
)
idx_images(
    "idx-of-another-size", "64 numbers per row", "4, 8]", idx([ROWS, 4, 8], PIXELS[: ROWS * 32])
)
idx_images("idx-huge", "IDX", "the shape overflows", idx([0xFFFFFFFF] * 4, PIXELS))
replaced_file("idx-no-labels", "idx", "labels.idx", idx([0], b""), f"[{ROWS}]", "[0]")
replaced_file("idx-fewer-labels", "idx", "labels.idx", idx([11], bytes(11)), f"[{ROWS}]", "[11]")
replaced_file(
    "idx-label-too-large",
    "idx",
    "labels.idx",
    idx([ROWS], bytes([0] * 11 + [200])),
    f"[0, {CLASSES})",
    "found 200",
)
replaced_file(
    "idx-labels-cut", "idx", "labels.idx", idx([ROWS], bytes(3)), "expected 12 bytes", "found 3"
)
changed_job(
    "idx-swapped",
    "idx",
    {"data.train.idx": {"images": "labels.idx", "labels": "images.idx"}},
    "labels.idx",
    "[N, H, W]",
    f"[{ROWS}]",
    by="session",
)
changed_job(
    "idx-std-zero", "idx", {"data.train.idx.std": 0}, "data.train.idx.std", "above 0", "found 0"
)


@case("idx-packed-without-its-name", "images.idx", "two zero bytes", "0x1f8b")
def idx_packed(folder):
    job = inputs.idx_job(folder)
    (folder / "images.idx").write_bytes(inputs.gzipped(inputs.images()))
    return job


changed_file(
    "gzip-cut", "gzip", "images.gz", cut(30), expected="whole gzip file", found="ends within"
)
changed_file(
    "gzip-wrong-checksum",
    "gzip",
    "images.gz",
    lambda data: data[:-8] + bytes([data[-8] ^ 1]) + data[-7:],
    expected="whole gzip file",
    found="incorrect data check",
)
changed_file(
    "gzip-damaged",
    "gzip",
    "images.gz",
    lambda data: data[:40] + b"\xff" * 20 + data[60:],
    expected="whole gzip file",
    found="incorrect data check",
)
replaced_file(
    "gzip-that-is-none",
    "gzip",
    "images.gz",
    inputs.images,
    "whole gzip file",
    "incorrect header check",
)
replaced_file(
    "gzip-that-says-more",
    "gzip",
    "images.gz",
    lambda: inputs.gzipped(idx([60000, 28, 28], PIXELS)),
    "expected 47040000 bytes",
    "found a gzip file of",
)
replaced_file(
    "gzip-that-holds-more",
    "gzip",
    "images.gz",
    lambda: inputs.gzipped(inputs.images() + bytes(1 << 24)),
    "expected 768 bytes",
    "found more",
)
replaced_file(
    "gzip-huge-header",
    "gzip",
    "images.gz",
    lambda: inputs.gzipped(idx([0x7FFFFFFF, 0x7FFF, 0x7FFF], PIXELS)),
    "expected 2305702272799145983 bytes",
    "which holds at most",
)
replaced_file(
    "gzip-twice",
    "gzip",
    "images.gz",
    lambda: inputs.gzipped(inputs.gzipped(inputs.images())),
    "two zero bytes",
    "0x1f8b",
)
