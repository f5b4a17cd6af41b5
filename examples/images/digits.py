"""Draws a labelled data set for the examples: the ten digits, as files in the layout of MNIST.

digits.py FOLDER [--train 20000] [--test 4000] [--seed 0] [--size 28]

    train-images-idx3-ubyte, t10k-images-idx3-ubyte     unsigned bytes [count, size, size], 0 black
    train-labels-idx1-ubyte, t10k-labels-idx1-ubyte     unsigned bytes [count], 0 to 9

Each digit has several shapes. An image shows one of them stretched, sheared, turned and shifted at
random, in random thickness and brightness, with clutter and noise. So a linear model is far worse
than a small convolutional network. The same seed gives the same images, and a smaller set is the
beginning of a larger one. Files of an earlier call are replaced when all images are drawn and all
new files are written.
"""

import argparse
import pathlib
import struct
import sys
import tempfile

import numpy

# The shapes of each digit. A shape is a list of strokes, and a stroke is how the pen moves and its
# points, x and y in percent of the digit's width and height, y down. The pen moves along straight
# lines, or along a curve (a quadratic B-spline) that is open or closed.
SHAPES = [
    [["loop 20 -5 80 -5 98 50 80 105 20 105 2 50"], ["loop 50 -10 95 10 95 90 50 110 5 90 5 10"]],
    [
        ["line 50 2 50 98"],
        ["line 25 28 55 2 55 98"],
        ["line 28 25 52 2 52 97", "line 20 97 85 97"],
    ],
    [
        ["curve 10 30 15 -5 88 -8 98 40 45 70 8 97", "line 8 97 94 97"],
        ["curve 12 22 35 -10 95 2 85 45 10 97", "curve 10 97 35 80 60 105 95 88"],
    ],
    [
        ["curve 10 15 45 -12 98 8 90 48 40 48", "curve 40 48 98 46 105 92 50 112 6 86"],
        ["line 12 4 86 4 45 42", "curve 45 42 98 42 102 95 50 110 8 88"],
    ],
    [["line 66 98 66 3 6 68 95 68"], ["line 22 3 12 56 90 56", "line 72 22 70 98"]],
    [
        ["line 88 4 22 4 17 46", "curve 17 46 55 30 102 45 98 98 45 110 8 88"],
        ["curve 92 5 55 8 25 2 22 44", "curve 22 44 75 30 105 70 75 105 10 95"],
    ],
    [
        ["curve 82 4 35 10 2 55 8 105 60 110 98 90 92 46 45 40 12 66"],
        ["curve 68 2 28 30 8 72", "loop 25 50 75 48 95 75 75 102 25 102 5 75"],
    ],
    [
        ["line 6 5 94 5 40 98"],
        ["line 6 5 92 5 42 98", "line 34 52 84 52"],
        ["curve 6 20 15 0 60 14 95 2", "curve 95 2 55 45 48 98"],
    ],
    [
        ["loop 25 -2 75 -2 92 24 70 50 30 50 8 24", "loop 28 46 72 46 100 75 75 103 25 103 0 75"],
        ["loop 80 10 45 -12 2 12 20 42 85 60 98 92 50 112 2 92 15 60 80 42 98 15"],
    ],
    [
        ["loop 25 -2 75 -2 94 27 72 56 28 56 6 27", "line 86 25 80 98"],
        ["loop 28 -2 72 -2 90 27 72 55 25 55 6 27", "curve 86 22 98 75 70 108 15 95"],
    ],
]
# The strokes of each shape, with points [points, 2] in the unit square, and the digit of each
# shape.
STROKES = [
    [(pen, numpy.array(xy, float).reshape(-1, 2) / 100) for pen, *xy in map(str.split, shape)]
    for shapes in SHAPES
    for shape in shapes
]
DIGITS = numpy.array([digit for digit, shapes in enumerate(SHAPES) for _ in shapes])


def dots(pen, points, size):
    """Returns the places where the pen touches the paper: pixels [images, points, 2] -> [images,
    dots, 2]."""
    if pen == "loop":
        points = numpy.concatenate([points, points[:, :2]], axis=1)
    middle = (points[:, :-1] + points[:, 1:]) / 2
    if pen == "line":
        begin, control, end = points[:, :-1], middle, points[:, 1:]
    else:
        begin, control, end = middle[:, :-1], points[:, 1:-1], middle[:, 1:]
    if pen == "curve":
        begin = numpy.concatenate([points[:, :1], begin[:, 1:]], axis=1)
        end = numpy.concatenate([end[:, :-1], points[:, -1:]], axis=1)
    # Each piece of the stroke is a line or a parabola, with so many dots that they touch.
    t = numpy.linspace(0, 1, min(size // 2, 32))[:, None, None, None]
    return numpy.concatenate((1 - t) ** 2 * begin + 2 * t * (1 - t) * control + t**2 * end, axis=1)


def ink(dots, radius, brightness, size):
    """Returns round dots [images, dots, 2] as pixels [images, size, size] from 0 to `brightness`
    [images]. The radius [images] is in pixels, and the edge is one pixel soft."""
    away = (dots[..., None] - numpy.arange(size)).astype(numpy.float32) ** 2
    nearest = numpy.full((len(dots), size, size), numpy.inf, numpy.float32)
    for x, y in away.transpose(1, 2, 0, 3):  # of each dot: [images, size]
        numpy.minimum(nearest, x[:, None, :] + y[:, :, None], out=nearest)
    cover = numpy.clip(radius[:, None, None] + 0.5 - numpy.sqrt(nearest), 0, 1)
    return cover * brightness[:, None, None]


def draw(count, size, random):
    """Returns images [count, size, size] and labels [count], unsigned bytes."""
    # All numbers of an image are in one row, so that the image does not depend on `count`.
    rows = random.random((count, 64 + size * size))
    numbers = iter(rows[:, :64].T)

    def uniform(low, high):
        return low + (high - low) * next(numbers)

    def pairs(low, high):
        return numpy.stack([uniform(low, high), uniform(low, high)], axis=-1)

    labels = uniform(0, len(SHAPES)).astype(int)
    shapes = numpy.searchsorted(DIGITS, labels)
    shapes += (uniform(0, 1) * numpy.bincount(DIGITS)[labels]).astype(int)

    # The way from the unit square to pixels: stretched, sheared, turned and shifted.
    height = size * uniform(0.48, 0.74)
    width = height * uniform(0.55, 0.85)
    shear, angle = uniform(-0.35, 0.35), uniform(-0.4, 0.4)
    sine, cosine = numpy.sin(angle), numpy.cos(angle)
    matrix = [[cosine * width, (cosine * shear - sine) * height]]
    matrix += [[sine * width, (sine * shear + cosine) * height]]
    matrix = numpy.array(matrix).transpose(2, 1, 0)  # [images, from, to]
    middle = ((size - 1) / 2 + size * pairs(-0.12, 0.12))[:, None]

    radius, brightness = size * uniform(0.022, 0.055), uniform(0.55, 1)
    shaky = numpy.stack([pairs(-0.05, 0.05) for _ in range(12)], axis=1)
    canvas = numpy.empty((count, size, size), numpy.float32)
    for shape, strokes in enumerate(STROKES):
        chosen = shapes == shape
        touched, begin = [], 0
        for pen, points in strokes:
            end = begin + len(points)
            drawn = points - 0.5 + shaky[chosen, begin:end]
            touched.append(dots(pen, drawn @ matrix[chosen] + middle[chosen], size))
            begin = end
        touched = numpy.concatenate(touched, axis=1)
        canvas[chosen] = ink(touched, radius[chosen], brightness[chosen], size)

    # Clutter: short lines, fainter than most digits.
    lines = uniform(0, 4).astype(int)
    for line in range(3):
        begin = size * pairs(0, 1)
        ends = numpy.stack([begin, begin + size * pairs(-0.22, 0.22)], axis=1)
        radius, brightness = size * uniform(0.015, 0.04), uniform(0.25, 0.6) * (line < lines)
        clutter = ink(dots("line", ends, size), radius, brightness, size)
        numpy.maximum(canvas, clutter, out=canvas)

    background = uniform(0, 0.15)[:, None, None]
    noise = 0.2 * rows[:, 64:].reshape(canvas.shape) - 0.1
    seen = numpy.clip(background + (1 - background) * canvas + noise, 0, 1)
    return (255 * seen + 0.5).astype(numpy.uint8), labels.astype(numpy.uint8)


def files(train=20000, test=4000, seed=0, size=28):
    """Returns the contents of the four files, by name."""
    contents = {}
    most = max(1, 2**21 // size**2)  # images at a time, because of the memory
    for name, count, number in (("train", train, 0), ("t10k", test, 1)):
        random = numpy.random.default_rng([seed, number])
        batches = [min(most, count - done) for done in range(0, count, most)]
        images, labels = map(numpy.concatenate, zip(*(draw(n, size, random) for n in batches)))
        # Two zeros, the code of unsigned bytes, and the dimensions.
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            header = struct.pack(f">4B{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
            contents[f"{name}-{kind}-ubyte"] = header + array.tobytes()
    return contents


def write(folder, contents):
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".digits-") as name:
        temporary = pathlib.Path(name)
        for file, content in contents.items():
            (temporary / file).write_bytes(content)
        for file in contents:
            (temporary / file).replace(folder / file)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path, help="where the four files are written")
    parser.add_argument("--train", type=int, default=20000, help="training images (20000)")
    parser.add_argument("--test", type=int, default=4000, help="test images (4000)")
    parser.add_argument("--seed", type=int, default=0, help="another seed gives other images (0)")
    parser.add_argument("--size", type=int, default=28, help="pixels of a side (28)")
    arguments = parser.parse_args()
    ranges = {"train": (1, 1_000_000), "test": (1, 1_000_000), "seed": (0, 2**63), "size": (8, 512)}
    options = {name: getattr(arguments, name) for name in ranges}
    for name, (least, most) in ranges.items():
        if not least <= options[name] <= most:
            parser.error(f"--{name} is {options[name]}; expected {least} to {most}")
    contents = files(**options)
    try:
        write(arguments.folder, contents)
    except OSError as error:
        sys.exit(f"digits.py: {error}")


if __name__ == "__main__":
    main()
