"""Malformed rows in safetensors files."""

import struct

from tests.process import inputs
from tests.process.inputs import CLASSES, ROWS, WIDTH, floats, int64s, npy
from tests.process.malformed_case import case, changed_file, cut, first, replaced_file

NAN, INFINITE = float("nan"), float("inf")


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
    """Changes the text of the header and keeps the data."""

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
    "expected a safetensors file",
    "found a .npy file",
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
    "'inputs' appears twice",
    lambda text: text.replace('"labels"', '"inputs"'),
)
rows_header(
    "rows-deep-header",
    "the header",
    "more than 200 levels",
    lambda text: '{"a":' * 10000 + "1" + "}" * 10000,
)
rows_header(
    "rows-nul-in-header", "JSON", "the header", lambda text: text.replace("labels", "lab\0ls")
)
rows_file("rows-without-labels", "'labels'", "found no 'labels'", labels=None)
rows_file("rows-without-inputs", "'inputs'", "found no 'inputs'", inputs=None)
rows_file("rows-in-int64", "F32", "I64", inputs=("I64", [ROWS, WIDTH], b"\0" * 8 * ROWS * WIDTH))
rows_file("rows-labels-in-uint64", "I64", "U64", labels=("U64", [ROWS], b"\0" * 8 * ROWS))
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
