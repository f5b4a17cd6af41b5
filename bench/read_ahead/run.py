#!/usr/bin/env python3
"""The gain from reading the next batch in a thread of its own: `bench/read_ahead/run.py --before
FOLDER`, the four programs of a commit without it (such as d97f78b), or of this one with a `return;`
as the first line of ReadAhead::Begin.

One rank trains a small model on large rows, 256 rows of 28 thousand numbers in a step. There are
three forms of rows. As float32 (28 MB), a step takes about as long as its batch. As bytes that
become float32, the batch takes longer. As float32 from a file of 1.1 GB, the batch waits for the
disk: the file is read once, and the kernel drops its pages before each run. Both programs run the
same job in turn, in an order that is reversed from round to round; their losses must be equal. The
figure of a run is the mean duration of its steps without the first ten, as in `muster metrics`. The
ratio is the median of the ratios within rounds, with its 95% bootstrap interval."""

import argparse
import os
import pathlib
import statistics
import struct
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = pathlib.Path.home() / ".cache/muster/venv/bin/python"
if __name__ == "__main__" and pathlib.Path(sys.executable) != PYTHON:
    os.execv(PYTHON, [PYTHON, *sys.argv])
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

from bench import harness  # noqa: E402
from bench.interval import interval  # noqa: E402
from tests.parity import cluster  # noqa: E402

PER_RANK, ROWS, NUMBERS, WARM_UP = 256, 1024, 3 * 96 * 96, 10
STEPS = {"float32": 200, "bytes": 200, "disk": 40}


def floats(folder, name="rows", count=ROWS):
    rows = {"inputs": torch.rand(count, NUMBERS), "labels": torch.arange(count) % 10}
    save_file(rows, folder / f"{name}.safetensors")
    return {"safetensors": {"path": str(folder / f"{name}.safetensors")}}


def on_disk(folder):
    return floats(folder, "disk", PER_RANK * STEPS["disk"])


def drop_pages(path):
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def images(folder):
    arrays = {
        "images": torch.randint(256, (ROWS, 3, 96, 96), dtype=torch.uint8),
        "labels": (torch.arange(ROWS) % 10).to(torch.uint8),
    }
    for name, array in arrays.items():
        header = struct.pack(f">HBB{array.dim()}I", 0, 8, array.dim(), *array.shape)
        (folder / name).write_bytes(header + array.numpy().tobytes())
    return {"idx": {name: str(folder / name) for name in arrays}}


CASES = {"float32": floats, "bytes": images, "disk": on_disk}


def job(case, folder):
    return {
        "name": "read-ahead",
        "world_size": 1,
        "model": {"mlp": {"inputs": NUMBERS, "hidden": [16], "classes": 10}},
        "data": {"train": CASES[case](folder)},
        "batch": {"per_rank": PER_RANK, "order": "sequential" if case == "disk" else "shuffled"},
        "optimizer": {"sgd": {"lr": 0.001}},
        "stages": [{"fit": {"steps": STEPS[case]}}],
    }


def run(spec, programs, folder):
    """The seconds of a step, and all losses."""
    find = pathlib.Path(programs)
    own = cluster.install(lambda path: find / pathlib.Path(path).name, folder / "bin")
    with cluster.Cluster(own, folder, slots=1) as started:
        started.run(spec, "job")
        steps = started.metrics("job")
    seconds = statistics.mean(float(step["duration"].removesuffix("s")) for step in steps[WARM_UP:])
    return seconds, [step["loss"] for step in steps]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=16)
    parser.add_argument("--programs", help="folder with the four programs; built when not given")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--before", required=True, help="folder with those of another commit")
    arguments = parser.parse_args()
    pairs = {case: [] for case in arguments.cases}
    with harness.programs_of(arguments.programs) as now, tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        specs = {case: job(case, folder) for case in arguments.cases}
        for number in range(arguments.rounds):
            order = [("now", now), ("before", arguments.before)]
            for case, spec in specs.items():
                found = {}
                for which, programs in order if number % 2 == 0 else reversed(order):
                    if case == "disk":
                        drop_pages(spec["data"]["train"]["safetensors"]["path"])
                    beside = folder / f"{case}-{which}-{number}"
                    found[which] = run(spec, programs, beside)
                assert found["now"][1] == found["before"][1], "the losses differ"
                pairs[case].append((found["now"][0], found["before"][0]))
    for case, found in pairs.items():
        now, before = (1000 * statistics.median(side) for side in zip(*found))
        ratio = interval([a / b for a, b in found])
        print(f"{case}: {now:.2f} ms per step, before {before:.2f}: %.3f (%.3f to %.3f)" % ratio)
    print(f"load at the end: {os.getloadavg()[0]:.2f}")


if __name__ == "__main__":
    main()
