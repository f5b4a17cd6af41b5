#!/usr/bin/env python3
"""What reading the next batch in a thread of its own gains: `bench/read_ahead/run.py --before
FOLDER`, the four programs of a commit without it (such as d97f78b).

One rank trains a small model on large rows (256 rows of 28 thousand numbers in a step: 28 MB), so
that a step takes about as long as its batch. Both programs run the same job in turn, in an order
that is reversed from round to round; their losses must be equal. The figure of a run is the mean
duration of its steps without the first ten, as `muster metrics` has it; the ratio is the median of
those within rounds, with its 95% bootstrap interval."""

import argparse
import os
import pathlib
import statistics
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

ROWS, NUMBERS, STEPS, WARM_UP = 1024, 3 * 96 * 96, 200, 10


def job(folder):
    rows = {"inputs": torch.randn(ROWS, NUMBERS), "labels": torch.arange(ROWS) % 10}
    save_file(rows, folder / "rows.safetensors")
    return {
        "name": "read-ahead",
        "world_size": 1,
        "model": {"mlp": {"inputs": NUMBERS, "hidden": [16], "classes": 10}},
        "data": {"train": {"safetensors": {"path": str(folder / "rows.safetensors")}}},
        "batch": {"per_rank": 256},
        "optimizer": {"sgd": {"lr": 0.001}},
        "stages": [{"fit": {"steps": STEPS}}],
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
    parser.add_argument("--before", required=True, help="folder with those of another commit")
    arguments = parser.parse_args()
    pairs = []
    with harness.programs_of(arguments.programs) as now, tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        spec = job(folder)
        for number in range(arguments.rounds):
            order = [("now", now), ("before", arguments.before)]
            found = {}
            for which, programs in order if number % 2 == 0 else reversed(order):
                beside = folder / f"{which}-{number}"
                found[which] = run(spec, programs, beside)
            assert found["now"][1] == found["before"][1], "the losses differ"
            pairs.append((found["now"][0], found["before"][0]))
    now, before = (1000 * statistics.median(side) for side in zip(*pairs))
    ratio = interval([a / b for a, b in pairs])
    print(f"{now:.2f} ms per step, before {before:.2f}: %.3f (%.3f to %.3f)" % ratio)


if __name__ == "__main__":
    main()
