"""Training a convnet with BatchNorm against its PyTorch twin, and against itself where the same
bits are promised.

The bound: as in training_test.py both sides compute in float32 with the same kernels, and add up
gradients in different orders. The difference is about 1e-7 of a gradient, times the learning rate:
1e-6, absolute. BatchNorm divides by the deviation of a micro-batch, which is of the size of 1 here,
so differences do not grow in it. Statistics are averages of activations, of the size of 1 too: the
same bound (seen over 10 steps: 3e-7 and 4e-7). Counts are exact."""

import math
import os
import signal
import time

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests import bazel
from tests.parity import checkpoints, convnet_reference, shared_cluster
from tests.parity.checkpoints import assert_bitwise_equal, with_checkpoints

TOLERANCE = 1e-6
STEPS = 10
# Sizes that a layout mistake does not survive; 7 x 6, 4 x 3 and 2 x 2 pixels.
OPTIONS = {"inputs": [2, 7, 6], "widths": [5, 8, 6], "blocks": [1, 2, 1], "classes": 5}


muster = shared_cluster.with_slots(3)


def write_images(path, shape, count, seed):
    """Images whose class is the place of a bright spot."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(count, *OPTIONS["inputs"], generator=generator)
    labels = torch.randint(OPTIONS["classes"], (count,), generator=generator)
    for image, label in zip(images, labels):
        image[:, label, :] += 2 + torch.rand(1, generator=generator)
    save_file({"inputs": images.view(count, *shape), "labels": labels}, path)


def job(folder, world_size, steps=STEPS, shape=(2, 7, 6)):
    write_images(folder / "train.safetensors", shape, count=90, seed=1)
    write_images(folder / "validate.safetensors", shape, count=23, seed=2)
    torch.manual_seed(5)
    model = convnet_reference.Convnet(**OPTIONS)
    with torch.no_grad():  # the defaults would hide what is not loaded
        for name, tensor in model.state_dict().items():
            if "num_batches" in name:
                tensor.fill_(3)
            elif "bn" in name or "downsample.1" in name:
                tensor.uniform_(0.5, 1.5)
    save_file(model.state_dict(), folder / "weights.safetensors")
    return {
        "name": "parity-convnet",
        "seed": 17,
        "world_size": world_size,
        "model": {"convnet": OPTIONS, "weights": str(folder / "weights.safetensors")},
        "data": {
            name: {"safetensors": {"path": str(folder / f"{name}.safetensors")}}
            for name in ("train", "validate")
        },
        # Small enough for several buckets.
        "strategy": {"ddp": {"bucket_mb": 0.005}},
        "optimizer": {"sgd": {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01}},
        "batch": {"per_rank": 6, "accumulate": 2, "last": "pad"},
        "stages": [{"fit": {"steps": steps}}],
    }


def largest_difference(found, expected):
    assert found.keys() == expected.keys()
    return max((found[name] - expected[name]).abs().max().item() for name in expected)


def split(buffers):
    """Statistics and counts."""
    counts = {name: tensor for name, tensor in buffers.items() if "num_batches" in name}
    return {name: tensor for name, tensor in buffers.items() if name not in counts}, counts


@pytest.mark.parametrize("world_size, shape", [(1, (2, 7, 6)), (2, (84,)), (3, (14, 6))])
def test_ten_steps_equal_pytorch(muster, tmp_path, world_size, shape):
    spec = job(tmp_path, world_size, shape=shape)
    spec["stages"][0]["fit"]["validate_every"] = STEPS
    exported = tmp_path / "model.safetensors"
    name = f"equal-{world_size}"
    found = muster.run(with_checkpoints(spec, tmp_path) | {"export": {"path": str(exported)}}, name)
    expected = convnet_reference.train(spec)
    # Without this, the test would not test training.
    assert largest_difference(expected.parameters[1], expected.parameters[STEPS]) > 1e-2

    for step, (ours, theirs) in enumerate(
        zip(muster.losses(name), expected.losses, strict=True), 1
    ):
        assert abs(ours - theirs) <= TOLERANCE, f"step {step}"
    folders = checkpoints.all_steps(tmp_path / "checkpoints", name)
    assert list(folders) == list(range(1, STEPS + 1))
    worst = {"parameters": 0, "buffers": 0}
    for step, folder in folders.items():
        difference = largest_difference(checkpoints.parameters(folder), expected.parameters[step])
        assert difference <= TOLERANCE, f"parameters after step {step}"
        worst["parameters"] = max(worst["parameters"], difference)
        # The buffers of the highest rank, whatever rank wrote them.
        statistics, counts = split(checkpoints.buffers(folder))
        highest_statistics, highest_counts = split(expected.buffers[step][-1])
        difference = largest_difference(statistics, highest_statistics)
        assert difference <= TOLERANCE, f"buffers after step {step}"
        worst["buffers"] = max(worst["buffers"], difference)
        assert_bitwise_equal(counts, highest_counts)
        assert set(map(int, counts.values())) == {3 + 2 * step}
        # The comparison itself: another rank's are far away.
        for other in expected.buffers[step][:-1]:
            assert largest_difference(statistics, split(other)[0]) > 1000 * TOLERANCE
    print(f"largest differences: {worst}")

    final = convnet_reference.validation_loss(
        spec, expected.parameters[STEPS], expected.buffers[STEPS][-1]
    )
    assert found["validation_loss"] == pytest.approx(final, abs=TOLERANCE)
    last = folders[STEPS]
    assert_bitwise_equal(
        load_file(exported), checkpoints.parameters(last) | checkpoints.buffers(last)
    )


def test_training_in_bfloat16_equals_torchs_autocast(muster, tmp_path):
    # Convolutions in bfloat16, statistics in float32. What rounds the other way somewhere is off by
    # 2^-8 of it.
    spec = job(tmp_path, 2) | {"precision": "bfloat16"}
    muster.run(with_checkpoints(spec, tmp_path), "bfloat16")
    expected, full = (
        convnet_reference.train(spec | {"precision": name}) for name in ("bfloat16", "float32")
    )
    found = muster.losses("bfloat16")
    difference = max(
        abs(ours - theirs) for ours, theirs in zip(found, expected.losses, strict=True)
    )
    assert difference <= 5e-3
    assert abs(found[0] - expected.losses[0]) < abs(full.losses[0] - expected.losses[0]) / 4
    statistics, _ = split(
        checkpoints.buffers(checkpoints.all_steps(tmp_path / "checkpoints", "bfloat16")[1])
    )
    moved = largest_difference(statistics, split(expected.agreed[1])[0])
    print(f"losses differ by {difference:.1e}, statistics after a step by {moved:.1e}")
    assert moved <= 1e-4


def test_a_step_that_is_left_out_leaves_the_statistics_alone(muster, tmp_path):
    spec = job(tmp_path, 2) | {"on_nan": "skip_step"}
    rows = load_file(tmp_path / "train.safetensors")
    rows["inputs"][7] = 3e38  # the sum over a few pixels is infinite
    save_file(rows, tmp_path / "train.safetensors")
    muster.run(with_checkpoints(spec, tmp_path), "skipping")
    expected = convnet_reference.train(spec)
    skipped = [not math.isfinite(loss) for loss in expected.losses]
    assert 2 <= sum(skipped) <= STEPS - 4
    assert [step.get("skipped", False) for step in muster.metrics("skipping")] == skipped
    for step, folder in checkpoints.all_steps(tmp_path / "checkpoints", "skipping").items():
        found = checkpoints.parameters(folder)
        assert largest_difference(found, expected.parameters[step]) <= TOLERANCE, f"step {step}"
        statistics, counts = split(checkpoints.buffers(folder))
        expected_statistics, expected_counts = split(expected.agreed[step])
        assert largest_difference(statistics, expected_statistics) <= TOLERANCE, f"step {step}"
        assert_bitwise_equal(counts, expected_counts)


@pytest.mark.parametrize("world_size", [1, 2])
def test_validation_in_between_changes_nothing(muster, tmp_path, world_size):
    ends = {}
    for validate_every in [0, 3]:
        spec = job(tmp_path, world_size)
        spec["stages"][0]["fit"]["validate_every"] = validate_every
        name = f"every-{validate_every}-{world_size}"
        muster.run(with_checkpoints(spec, tmp_path), name)
        folders = checkpoints.all_steps(tmp_path / "checkpoints", name)
        # Parameters, momentum and buffers.
        states = {step: checkpoints.read(folder) for step, folder in folders.items()}
        ends[validate_every] = (muster.losses(name), states)
    assert ends[0][0] == ends[3][0]
    for step in range(1, STEPS + 1):
        assert_bitwise_equal(ends[3][1][step], ends[0][1][step])


def test_a_killed_run_ends_with_the_bits_of_the_undisturbed_one(muster, tmp_path):
    steps, ends = 300, []
    for kill in [False, True]:
        name = "killed" if kill else "undisturbed"
        spec = with_checkpoints(job(tmp_path, 2, steps=steps), tmp_path, every_steps=20)
        muster.submit(spec, name)
        if kill:
            deadline = time.monotonic() + bazel.bound(20)
            while not checkpoints.all_steps(tmp_path / "checkpoints", name):
                assert time.monotonic() < deadline
                time.sleep(0.01)
            os.kill(int(muster.job(name)["ranks"][1]["pid"]), signal.SIGKILL)
        found = muster.wait(name)
        assert found.get("restarts", 0) == (1 if kill else 0)
        last = checkpoints.all_steps(tmp_path / "checkpoints", name)[steps]
        assert last.name == f"step-{steps}-g{2 if kill else 1}"
        ends.append(checkpoints.read(last))
    assert any(name.startswith("buffer/") for name in ends[0])
    assert_bitwise_equal(ends[1], ends[0])
