"""A job that trains at the pace of a test. Its steps wait more than they compute, so that a long
test leaves the machine to others."""

import numpy

from tests import bazel
from tests.process import jobs

ROWS, WIDTH, CLASSES = 96, 8, 4


def write_job(folder, pace_ms, name="job.yaml", more_options=None, **changes):
    """The job of tests/process/jobs.py with the model of paced.cc, whose steps take at least
    `pace_ms` milliseconds each, with more options of the model, and `changes` to its top level
    (None removes)."""
    # Only once: another job may be reading them already, and a save truncates the file first.
    if not (folder / "labels.npy").exists():
        source = numpy.random.default_rng(5)
        numpy.save(folder / "inputs.npy", source.standard_normal((ROWS, WIDTH), numpy.float32))
        numpy.save(folder / "labels.npy", numpy.arange(ROWS) % CLASSES)
    options = {"inputs": WIDTH, "width": 32, "classes": CLASSES, "pace_ms": pace_ms}
    options |= more_options or {}
    model = {
        "path": str(bazel.runfile("tests/process/paced.so")),
        "name": "paced",
        "options": {key: str(value) for key, value in options.items()},
    }
    data = {"inputs": ["inputs.npy"], "labels": ["labels.npy"]}
    given = {
        "model": {"plugin": model},
        "data": {"train": {"npy": data}},
        "batch": {"per_rank": 4},
    }
    return jobs.write_job(folder, name=name, **(given | changes))
