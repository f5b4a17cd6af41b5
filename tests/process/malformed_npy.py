"""Malformed NumPy files."""

import struct

from tests.process import inputs
from tests.process.inputs import CLASSES, ROWS, WIDTH, floats, int64s, npy, npy_file
from tests.process.malformed_case import changed_file, changed_job, cut, first, replaced_file

NAN = float("nan")


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
npy_inputs("npy-big-endian", "'<f4'", "'>f4'", npy(">f4", [ROWS, WIDTH], GOOD_INPUTS))
npy_inputs("npy-complex", "'<f4'", "'<c8'", npy("<c8", [ROWS, WIDTH], GOOD_INPUTS * 2))
npy_inputs("npy-of-pixels", "'<f4'", "'|u1'", npy("|u1", [ROWS, WIDTH], bytes(ROWS * WIDTH)))
npy_inputs(
    "npy-float64-beyond-float32",
    "numbers that float32 can hold",
    "found 1e+300",
    npy("<f8", [ROWS, WIDTH], struct.pack("<48d", *[1e300] * 48), fortran=True),
)
npy_inputs(
    "npy-that-is-an-archive",
    "a .npy file",
    "a ZIP archive",
    b"PK\3\4" + bytes(22) + b"\1\0\0\0x",
)
replaced_file(
    "npy-that-is-a-web-page",
    "npy",
    "inputs.npy",
    b"<!DOCTYPE html><html></html>",
    "the file itself",
    "a web page (HTML)",
    by="reading",
)
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
    "npy-labels-in-float64", "npy", "labels.npy", npy("<f8", [ROWS], b"\0" * 96), "int64", "float64"
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
