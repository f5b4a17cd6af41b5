"""Samples that are left out while a job runs (muster skip-data), against plain PyTorch that takes
the samples of docs/reference/sampler.md without them; and again after a rollback."""

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

from tests.parity import checkpoints, reference, sampler, sessions, workloads

SIZE, INPUTS, CLASSES, RATE, EPOCHS = 29, 20, 4, 0.1, 3
# Samples that are left out, by steps done: within an epoch, and across the end of one.
SKIPS = {2: 7, 4: 20}
# Parameters of SGD in float32 that differ in the order of their sums only.
TOLERANCE = 1e-6


def job(folder, **batch):
    torch.manual_seed(3)
    options = {"inputs": INPUTS, "hidden": [9], "classes": CLASSES}
    save_file(reference.Mlp(**options).state_dict(), folder / "weights.safetensors")
    workloads.mlp_rows(folder / "rows.safetensors", (4, 5), CLASSES, SIZE, seed=1)
    return {
        "name": "skip",
        "world_size": 2,
        "seed": 9,
        "model": {"mlp": options, "weights": str(folder / "weights.safetensors")},
        "data": {"train": {"safetensors": {"path": str(folder / "rows.safetensors")}}},
        "optimizer": {"sgd": {"lr": RATE}},
        "schedule": {"warmup_cosine": {"warmup_steps": 0}},
        "batch": {"per_rank": 3} | batch,
        "stages": [{"fit": {"epochs": EPOCHS}}],
    }


def places(size, batch, last, together=1):
    """The first place, and the epoch, of each step of the job."""
    epoch, cursor, done = 0, 0, 0
    while True:
        left = -(-SKIPS.get(done, 0) // together) * together
        while True:
            rest = size - cursor
            rest = rest // batch * batch if last == "drop" else rest
            if rest == 0:
                epoch, cursor = epoch + 1, 0
                continue
            if left == 0:
                break
            cursor, left = cursor + min(left, rest), max(left - rest, 0)
        if epoch == EPOCHS:
            return
        yield epoch, cursor
        cursor, done = min(cursor + batch, size), done + 1


def expected(spec, steps):
    """The parameters after each step, of which `steps` has the inputs and labels."""
    model = reference.build(spec)
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    found = []
    for inputs, labels in steps:
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        found.append({name: p.detach().clone() for name, p in model.named_parameters()})
    return found


def rows_of_one_file(spec):
    batch = spec["batch"]
    size = spec["world_size"] * batch["per_rank"] * batch.get("accumulate", 1)
    rows = load_file(spec["data"]["train"]["safetensors"]["path"])
    for epoch, cursor in places(SIZE, size, batch["last"]):
        order = sampler.order_of("shuffled", spec["seed"], epoch, SIZE)
        taken = [order[(cursor + i) % SIZE] for i in range(size)]
        yield rows["inputs"][taken], rows["labels"][taken]


def rows_of_own_files(spec):
    files = [load_file(path) for path in spec["data"]["train"]["per_rank"]]
    ranks, each = len(files), spec["batch"]["per_rank"]
    size = min(len(rows["labels"]) for rows in files)
    for epoch, cursor in places(ranks * size, ranks * each, "drop", together=ranks):
        parts = []
        for rank, rows in enumerate(files):
            order = sampler.order_of("shuffled", spec["seed"], epoch, len(rows["labels"]), rank)
            taken = order[cursor // ranks : cursor // ranks + each]
            parts.append((rows["inputs"][taken], rows["labels"][taken]))
        yield tuple(torch.cat(part) for part in zip(*parts))


def commands(replay=False):
    return [
        {"at_step": done, "replay": replay, "skip_data": {"samples": samples}}
        for done, samples in SKIPS.items()
    ]


def check_steps(spec, folder, rows):
    del spec["schedule"]
    folders = sessions.run(spec, folder, commands=commands())
    steps = expected(spec, rows)
    assert max(folders) == len(steps), "what was left out counts as consumed"
    for step, written in folders.items():
        found = checkpoints.parameters(written)
        for name, value in steps[step - 1].items():
            assert torch.allclose(found[name], value, rtol=0, atol=TOLERANCE), (step, name)


@pytest.mark.parametrize(
    "batch", [{"last": "drop"}, {"last": "pad"}, {"last": "pad", "per_rank": 1, "accumulate": 3}]
)
def test_the_steps_after_it_take_the_samples_that_follow(tmp_path, batch):
    spec = job(tmp_path, **batch)
    check_steps(spec, tmp_path / "run", rows_of_one_file(spec))


def test_as_many_samples_of_each_file_are_left_out_if_ranks_have_their_own(tmp_path):
    spec = job(tmp_path)
    paths = [str(tmp_path / f"own-{rank}.safetensors") for rank in range(2)]
    for path, size in zip(paths, (17, 15)):
        workloads.mlp_rows(path, (4, 5), CLASSES, size, seed=size)
    spec["data"]["train"] = {"safetensors": {}, "per_rank": paths}
    check_steps(spec, tmp_path / "run", rows_of_own_files(spec))


@pytest.mark.parametrize("start", [1, 2, 3, 5])
def test_after_a_rollback_it_takes_effect_again_at_its_step(tmp_path, start):
    """Bitwise, with a schedule that ends with the steps that are left."""
    spec = job(tmp_path)
    folders = sessions.run(spec, tmp_path / "run", commands=commands())
    again = sessions.run(
        spec, tmp_path / "again", start=folders[start], commands=commands(replay=True)
    )
    assert max(again) == max(folders) > start
    for step in range(start + 1, max(folders) + 1):
        checkpoints.assert_bitwise_equal(
            checkpoints.read(again[step]), checkpoints.read(folders[step])
        )
