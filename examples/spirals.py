"""Writes a labelled data set for the examples: points in the plane on three spiral arms, as .npy
files.

spirals.py [FOLDER]     train-inputs.npy, train-labels.npy, validate-inputs.npy, validate-labels.npy
"""

import pathlib
import sys

import numpy

ARMS = 3


def points(count, seed):
    """Returns points, float32 [count, 2], and the arm of each point, int64 [count]."""
    random = numpy.random.default_rng(seed)
    arm = random.integers(0, ARMS, count)
    radius = numpy.sqrt(random.uniform(0.01, 1, count))
    angle = 4 * radius + arm * 2 * numpy.pi / ARMS + random.normal(0, 0.15, count)
    inputs = numpy.stack([radius * numpy.cos(angle), radius * numpy.sin(angle)], axis=1)
    return inputs.astype(numpy.float32), arm.astype(numpy.int64)


def write(folder, train=3000, validate=600):
    folder.mkdir(parents=True, exist_ok=True)
    for name, count, seed in (("train", train, 1), ("validate", validate, 2)):
        inputs, labels = points(count, seed)
        numpy.save(folder / f"{name}-inputs.npy", inputs)
        numpy.save(folder / f"{name}-labels.npy", labels)


if __name__ == "__main__":
    here = pathlib.Path(__file__).parent
    write(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "data")
