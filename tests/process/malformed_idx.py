"""Malformed IDX files, including gzipped ones."""

import struct

from tests.process import inputs
from tests.process.inputs import CLASSES, ROWS, idx
from tests.process.malformed_case import changed_file, changed_job, cut, first, replaced_file


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
    lambda: inputs.some_bytes(500),
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
