"""Tests of data files of every format, written by NumPy and others. The losses of a real job are
those of plain PyTorch on the same samples, in the same order (docs/reference/data.md,
docs/reference/sampler.md)."""

import gzip
import struct

import numpy
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from tests.parity import cluster, reference, sampler, shared_cluster

INPUTS, CLASSES, LEARNING_RATE = 20, 4, 0.1
# Losses of SGD in float32 that differ in the order of their sums only.
TOLERANCE = 1e-6


muster = shared_cluster.with_slots(3)


def job(folder, data, world_size=2, **batch):
    """A job that trains an mlp for 25 steps from weights that Python knows."""
    torch.manual_seed(3)
    options = {"inputs": INPUTS, "hidden": [9], "classes": CLASSES}
    save_file(reference.Mlp(**options).state_dict(), folder / "weights.safetensors")
    return {
        "name": "data",
        "world_size": world_size,
        "seed": 9,
        "model": {"mlp": options, "weights": str(folder / "weights.safetensors")},
        "data": {"train": data, "validate": data},
        "optimizer": {"sgd": {"lr": LEARNING_RATE}},
        "batch": {"per_rank": 3, "accumulate": 2, "last": "pad"} | batch,
        "stages": [{"fit": {"steps": 25}}, {"validate": {}}],
    }


def expected(spec, steps):
    """Losses of each step, and the model after them; `steps` yields the micro-batches (inputs,
    labels) of each."""
    model = reference.build(spec)
    optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE)
    losses = []
    for _, micro_batches in zip(range(25), steps):
        optimizer.zero_grad()
        step = []
        for inputs, labels in micro_batches:
            loss = F.cross_entropy(model(inputs), labels)
            (loss / len(micro_batches)).backward()
            step.append(loss.item())
        optimizer.step()
        losses.append(sum(step) / len(step))
    return losses, model


def common_steps(spec, inputs, labels):
    batch = spec["batch"]
    plan = sampler.steps(
        len(labels),
        spec["seed"],
        spec["world_size"],
        batch["per_rank"],
        batch["accumulate"],
        batch.get("order", "shuffled"),
        batch["last"],
    )
    for ranks in plan:
        yield [(inputs[samples], labels[samples]) for rank in ranks for samples in rank]


def check(muster, name, spec, steps, inputs, labels):
    done = muster.run(spec, name)
    losses, model = expected(spec, steps)
    worst = max(abs(a - b) for a, b in zip(muster.losses(name), losses, strict=True))
    print(f"largest difference of a loss: {worst:.2e}")
    assert worst <= TOLERANCE
    with torch.no_grad():
        validation = F.cross_entropy(model(inputs), labels).item()
    assert done["validation_loss"] == pytest.approx(validation, abs=TOLERANCE)


def rows(count, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 4, 5, generator=generator), torch.randint(
        CLASSES, (count,), generator=generator
    )


def write_safetensors(folder, name, inputs, labels):
    save_file({"inputs": inputs, "labels": labels}, folder / name)
    return str(folder / name)


def test_npy_files_follow_one_another(muster, tmp_path):
    parts = [rows(17, 1), rows(31, 2)]
    paths = {"inputs": [], "labels": []}
    for number, part in enumerate(parts):
        for kind, tensor in zip(paths, part):
            paths[kind].append(str(tmp_path / f"{kind}-{number}.npy"))
            numpy.save(paths[kind][-1], tensor.numpy())
    inputs, labels = (torch.cat(tensors) for tensors in zip(*parts))
    spec = job(tmp_path, {"npy": paths})
    check(muster, "npy", spec, common_steps(spec, inputs, labels), inputs, labels)


def test_safetensors_files_follow_one_another(muster, tmp_path):
    parts = [rows(20, 3), rows(7, 4), rows(12, 5)]
    paths = [write_safetensors(tmp_path, f"{n}.safetensors", *part) for n, part in enumerate(parts)]
    inputs, labels = (torch.cat(tensors) for tensors in zip(*parts))
    spec = job(tmp_path, {"safetensors": {"path": paths}}, world_size=3, last="drop")
    check(muster, "safetensors", spec, common_steps(spec, inputs, labels), inputs, labels)


def test_shuffled_v2(muster, tmp_path):
    inputs, labels = rows(43, 13)
    path = write_safetensors(tmp_path, "rows.safetensors", inputs, labels)
    spec = job(tmp_path, {"safetensors": {"path": path}}, world_size=3, order="shuffled_v2")
    check(muster, "shuffled-v2", spec, common_steps(spec, inputs, labels), inputs, labels)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_idx_images_are_scaled(muster, tmp_path, packed):
    random = numpy.random.default_rng(6)
    images = random.integers(0, 256, (40, 4, 5), dtype=numpy.uint8)
    labels = random.integers(0, CLASSES, 40, dtype=numpy.uint8)
    paths = {}
    for kind, array in [("images", images), ("labels", labels)]:
        data = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()
        paths[kind] = str(tmp_path / (kind + ("-idx-ubyte.gz" if packed else "-idx-ubyte")))
        with (gzip.open if packed else open)(paths[kind], "wb") as file:
            file.write(data)
    spec = job(tmp_path, {"idx": paths | {"mean": 0.4, "std": 0.3}})
    inputs = (torch.from_numpy(images).double() / 255 - 0.4) / 0.3
    labels = torch.from_numpy(labels).long()
    name = "idx-gzip" if packed else "idx"
    check(muster, name, spec, common_steps(spec, inputs.float(), labels), inputs.float(), labels)


@pytest.mark.parametrize(
    "last, order", [("drop", "shuffled"), ("pad", "shuffled"), ("pad", "shuffled_v2")]
)
def test_each_rank_has_its_own_file(muster, tmp_path, last, order):
    parts = [rows(26, 7), rows(40, 8), rows(15, 9)]
    paths = [write_safetensors(tmp_path, f"{n}.safetensors", *part) for n, part in enumerate(parts)]
    data = {"safetensors": {}, "per_rank": paths}
    spec = job(tmp_path, data, world_size=3, last=last, order=order)

    def steps():
        sizes = [len(labels) for _, labels in parts]
        for ranks in sampler.own_steps(sizes, spec["seed"], 3, 2, order, last):
            yield [
                (inputs[samples], labels[samples])
                for (inputs, labels), rank in zip(parts, ranks)
                for samples in rank
            ]

    inputs, labels = (torch.cat(tensors) for tensors in zip(*parts))
    name = f"own-{last}-{order.replace('_', '-')}"
    check(muster, name, spec, steps(), inputs, labels)


def test_a_bad_sample_ends_the_job_and_is_named(muster, tmp_path):
    inputs, labels = rows(40, 10)
    inputs[33, 2, 1] = float("nan")
    numpy.save(tmp_path / "inputs.npy", inputs.numpy())
    numpy.save(tmp_path / "labels.npy", labels.numpy())
    paths = {kind: str(tmp_path / f"{kind}.npy") for kind in ("inputs", "labels")}
    spec = job(tmp_path, {"npy": paths}) | {"on_nan": "skip_step"}
    with pytest.raises(cluster.JobFailed):
        muster.run(spec, "bad-sample")
    failed = muster.job("bad-sample")
    assert failed["state"] == "FAILED" and failed.get("restarts", 0) == 0
    offset = 128 + 4 * (33 * 20 + 2 * 5 + 1)
    assert f"inputs.npy: inputs: row 33, byte offset {offset}" in failed["failure"]["reason"]
