"""The example of docs/reference/data.md: a job that learns to read drawn digits, which a linear
model cannot."""

import resource
import struct
import subprocess
import sys

import numpy
import pytest
import torch
import torch.nn.functional as F
import yaml

from tests import bazel, cases
from tests.parity import cluster


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    return cluster.install(bazel.runfile, tmp_path_factory.mktemp("bin"))


def draw(folder, *options):
    """The files of examples/images/digits.py: name -> bytes."""
    script = bazel.runfile("examples/images/digits.py")
    subprocess.run([sys.executable, script, folder, *options], check=True)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    draw(folder)
    return folder


def read(path, header):
    return torch.from_numpy(numpy.fromfile(path, dtype=numpy.uint8)[header:])


def load(folder, name):
    labels = read(folder / f"{name}-labels-idx1-ubyte", 8).long()
    rows = read(folder / f"{name}-images-idx3-ubyte", 16).reshape(len(labels), -1).float() / 255
    return rows, labels


def test_the_files_have_the_layout_of_mnist(tmp_path):
    files = draw(tmp_path, "--train", "30", "--test", "7", "--size", "20")
    shapes = {
        "train-images-idx3-ubyte": (30, 20, 20),
        "train-labels-idx1-ubyte": (30,),
        "t10k-images-idx3-ubyte": (7, 20, 20),
        "t10k-labels-idx1-ubyte": (7,),
    }
    assert set(files) == set(shapes)
    for name, shape in shapes.items():
        header = struct.pack(f">BBBB{len(shape)}I", 0, 0, 8, len(shape), *shape)
        assert files[name].startswith(header)
        assert len(files[name]) == len(header) + numpy.prod(shape)


def test_a_seed_gives_the_same_images_however_many_there_are(tmp_path):
    few, more, others = (
        draw(tmp_path / name, "--train", count, "--test", "9", "--seed", seed)
        for name, count, seed in [("few", "40", "3"), ("more", "5000", "3"), ("others", "40", "4")]
    )
    for name, header in [("train-images-idx3-ubyte", 16), ("train-labels-idx1-ubyte", 8)]:
        assert more[name][header:].startswith(few[name][header:])
        assert few[name] != others[name]
    images = "images-idx3-ubyte"
    assert few[f"t10k-{images}"] == more[f"t10k-{images}"]
    assert few[f"t10k-{images}"][16:] != few[f"train-{images}"][16 : 16 + 9 * 28 * 28]


@pytest.mark.parametrize(
    "option, value",
    [("train", 0), ("test", -1), ("seed", -1), ("size", 7), ("size", 513), ("train", 1_000_001)],
)
def test_a_number_out_of_range_is_named_and_nothing_is_written(tmp_path, option, value):
    script = bazel.runfile("examples/images/digits.py")
    result = subprocess.run(
        [sys.executable, script, tmp_path / "new", f"--{option}", str(value)],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 2
    assert f"--{option} is {value}; expected " in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("size", [8, 512])
def test_the_smallest_and_the_largest_images_show_something(tmp_path, size):
    files = draw(tmp_path, "--train", "2", "--test", "1", "--size", str(size))
    pixels = numpy.frombuffer(files["train-images-idx3-ubyte"][16:], numpy.uint8)
    for image in pixels.reshape(2, -1):
        assert image.max() > 2 * numpy.median(image)


def test_the_files_are_replaced_only_when_all_new_ones_are_written(tmp_path):
    before = draw(tmp_path, "--train", "30", "--test", "7")
    # A data set that is drawn but cannot be written: the training images fit on the disk, the test
    # images do not.
    limit = 40 * 28 * 28
    script = bazel.runfile("examples/images/digits.py")
    result = subprocess.run(
        [sys.executable, script, tmp_path, "--train", "30", "--test", "50", "--seed", "1"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        capture_output=True,
        text=True,
    )
    assert result.returncode == 1
    assert result.stderr.startswith("digits.py: ") and "Traceback" not in result.stderr
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_all_digits_are_equally_frequent(images):
    _, labels = load(images, "train")
    counts = torch.bincount(labels, minlength=10)
    # More than four standard deviations.
    assert len(counts) == 10 and (counts - 2000).abs().max() < 200


def test_the_example_reads_97_of_100_digits(programs, images, tmp_path):
    spec = yaml.safe_load(bazel.runfile("examples/images/images.yaml").read_text())
    for data in spec["data"].values():
        for kind in ("images", "labels"):
            data["idx"][kind] = str(images / data["idx"][kind])
    spec["export"]["path"] = str(tmp_path / "digits.safetensors")
    assert spec["world_size"] == 2
    with cluster.Cluster(programs, tmp_path / "cluster", slots=2) as muster:
        job = muster.run(spec, "images")
    print(f"accuracy {job['validation_accuracy']:.4f}")
    assert job["validation_accuracy"] >= 0.97
    assert int(job["validation_step"]) == spec["stages"][0]["fit"]["steps"]


@pytest.mark.skipif(not cases.all_are_run(), reason="only with ./test.sh --all")
def test_a_linear_model_reads_far_fewer(images):
    rows, labels = load(images, "train")
    model = torch.nn.Linear(rows.shape[1], 10)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    torch.manual_seed(1)
    # The accuracy has stopped rising by then.
    for _ in range(6):
        for samples in torch.randperm(len(rows)).split(128):
            optimizer.zero_grad()
            F.cross_entropy(model(rows[samples]), labels[samples]).backward()
            optimizer.step()
    rows, labels = load(images, "t10k")
    accuracy = (model(rows).argmax(1) == labels).float().mean().item()
    print(f"accuracy {accuracy:.4f}")
    assert 0.5 < accuracy < 0.75
