"""The example of docs/data.md: a job that learns to read drawn digits, which a linear model
cannot."""

import subprocess

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


@pytest.fixture(scope="module")
def images(programs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    subprocess.run([programs / "muster", "data", "images", "--out", folder], check=True)
    return folder


def read(path, header):
    return torch.from_numpy(numpy.fromfile(path, dtype=numpy.uint8)[header:])


def load(folder, name):
    labels = read(folder / f"{name}-labels-idx1-ubyte", 8).long()
    rows = read(folder / f"{name}-images-idx3-ubyte", 16).reshape(len(labels), -1).float() / 255
    return rows, labels


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
