"""Muster's training against plain PyTorch, and against itself where it promises the same bits.

The tolerances: both sides compute in float32 with the same kernels, but add in different orders.
Muster adds gradients of micro-batches per rank and then over ranks; PyTorch adds them one after the
other. The norm for clipping is float64 in Muster, and float32 in PyTorch. Optimizer loops are fused
or plain. Each such difference is about 1e-7 of its value.
  SGD            a difference of a gradient reaches the parameter times the learning rate: 1e-6,
                 absolute.
  AdamW, 1e-5    divides by sqrt(v) + eps, which blows rounding up at most 1e-7 / 1e-5 times the
                 rate: 1e-6.
  AdamW, 1e-8    gradients that are zero but for rounding (GPT-2's key bias: softmax does not see
                 it) are blown up to steps of the whole rate, in a random direction. They do not
                 matter to the loss, so losses are compared: 1e-5.
"""

import copy

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests import cases
from tests.parity import checkpoints, reference, shared_cluster, workloads
from tests.parity.checkpoints import assert_bitwise_equal, with_checkpoints

WORKLOADS = {"gpt2": workloads.gpt2, "mlp": workloads.mlp}
OPTIMIZERS = {
    "sgd": {"sgd": {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01}},
    "adamw": {"adamw": {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-5, "weight_decay": 0.1}},
    "adamw_1e-8": {"adamw": {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}},
}
# Buckets small enough for several, and for weights that lie in the slices of more than one rank.
STRATEGIES = {
    "ddp": {"ddp": {"bucket_mb": 0.005}},
    "sharded": {"sharded_ddp": {"bucket_mb": 0.005}},
    "sharded-micro": {"sharded_ddp": {"bucket_mb": 0.005, "reduce_every": "micro_batch"}},
    "fsdp": {"fsdp": {}},
}
# The epochs of the small data sets end within the 50 steps, so their ends are met too.
ORDERS = {"gpt2": ("shuffled", "drop"), "mlp": ("shuffled", "pad")}
# Between the gradients' norms, which fall with the samples in a step: some steps are clipped and
# some are not.
MAX_NORMS = {"gpt2": {1: 1.0, 2: 0.9, 3: 0.8, 4: 0.8}, "mlp": {1: 0.6, 2: 0.5, 3: 0.5, 4: 0.5}}
STEPS = 50


muster = shared_cluster.with_slots(4)


def training_job(folder, kind, optimizer, world_size, steps=STEPS, strategy="ddp", **model):
    spec = WORKLOADS[kind](folder, **model)
    order, last = ORDERS[kind]
    spec |= {
        "world_size": world_size,
        "strategy": copy.deepcopy(STRATEGIES[strategy]),
        "optimizer": copy.deepcopy(OPTIMIZERS[optimizer]),
        "schedule": {"warmup_cosine": {"warmup_steps": 5, "min_ratio": 0.1}},
        "batch": {"per_rank": 3, "accumulate": 2, "order": order, "last": last},
        "clip_grad_norm": MAX_NORMS[kind][world_size],
        "stages": [{"fit": {"steps": steps}}],
    }
    return spec


def largest_difference(found, expected):
    assert found.keys() == expected.keys()
    return max((found[name] - expected[name]).abs().max().item() for name in expected)


def assert_losses_close(found, expected, tolerance):
    assert len(found) == len(expected)
    worst = max(range(len(found)), key=lambda i: abs(found[i] - expected[i]))
    difference = abs(found[worst] - expected[worst])
    print(f"largest difference of a loss: {difference:.2e}, step {worst + 1}")
    assert difference <= tolerance, f"step {worst + 1}: {found[worst]} and {expected[worst]}"


EQUAL_PYTORCH = [
    (kind, optimizer, "ddp", world_size)
    for world_size, kind, optimizer in cases.every_value(
        (1, 2, 3), ("gpt2", "mlp"), ("sgd", "adamw")
    )
] + [
    # Bitwise ddp, as tests/parity/sharded_ddp and tests/parity/fsdp show in every combination; but
    # not in whole workers.
    ("gpt2", "adamw", "sharded", 3),
    ("gpt2", "adamw", "fsdp", 3),
    # The additions have another order, whose differences are of the size of those above.
    ("mlp", "sgd", "sharded-micro", 2),
]


@pytest.mark.parametrize("kind, optimizer, strategy, world_size", EQUAL_PYTORCH)
def test_fifty_steps_equal_pytorch(muster, tmp_path, kind, optimizer, strategy, world_size):
    spec = training_job(tmp_path, kind, optimizer, world_size, strategy=strategy)
    job = f"equal-{kind}-{optimizer}-{strategy}-{world_size}"
    muster.run(with_checkpoints(spec, tmp_path), job)
    expected = reference.train(spec)

    # Without this, the test would test neither clipping nor training.
    clipped = sum(norm > spec["clip_grad_norm"] for norm in expected.norms)
    assert 3 <= clipped <= STEPS - 3
    first, last = expected.parameters[1], expected.parameters[STEPS]
    assert largest_difference(first, last) > 1e-2

    metrics = muster.metrics(job)
    factor = reference.rate_factor(spec["schedule"], STEPS)
    for step, (found, norm) in enumerate(zip(metrics, expected.norms)):
        assert found["learning_rate"] == pytest.approx(
            next(iter(spec["optimizer"].values()))["lr"] * factor(step), rel=1e-12
        )
        # Our norm is rounded once; torch's is a float32 norm of float32 norms.
        assert found["grad_norm"] == pytest.approx(norm, rel=1e-5)
    assert_losses_close([step["loss"] for step in metrics], expected.losses, 1e-6)
    folders = checkpoints.all_steps(tmp_path / "checkpoints", job)
    assert list(folders) == list(range(1, STEPS + 1))
    worst = 0
    for step in [1, *range(10, STEPS + 1, 10)]:
        found = checkpoints.parameters(folders[step])
        difference = largest_difference(found, expected.parameters[step])
        assert difference <= 1e-6, f"after step {step}"
        worst = max(worst, difference)
    print(f"largest difference of a parameter: {worst:.2e}")


@pytest.mark.parametrize("world_size", [2, 3])
def test_losses_of_adamw_with_small_eps_equal_pytorch(muster, tmp_path, world_size):
    spec = training_job(tmp_path, "gpt2", "adamw_1e-8", world_size)
    muster.run(spec, f"small-eps-{world_size}")
    assert_losses_close(
        muster.losses(f"small-eps-{world_size}"), reference.train(spec).losses, 1e-5
    )


def test_sequential_order_equals_pytorch(muster, tmp_path):
    spec = training_job(tmp_path, "mlp", "sgd", world_size=2, steps=20)
    spec["batch"] |= {"order": "sequential", "last": "drop"}
    muster.run(spec, "sequential")
    assert_losses_close(muster.losses("sequential"), reference.train(spec).losses, 1e-6)


def test_another_sample_order_is_noticed(muster, tmp_path):
    # The comparison itself: with another order of samples the losses are far apart.
    spec = training_job(tmp_path, "mlp", "sgd", world_size=2, steps=20)
    muster.run(spec, "noticed")
    expected = reference.train(spec, seed_of_sampler=spec["seed"] + 1).losses
    found = muster.losses("noticed")
    assert max(abs(a - b) for a, b in zip(found, expected)) > 1e-2


@pytest.mark.parametrize("kind", ["gpt2", "mlp"])
def test_losses_agree_across_world_sizes(muster, tmp_path, kind):
    losses = {}
    for world_size, accumulate, per_rank in [(1, 2, 6), (2, 2, 3), (4, 1, 3)]:
        spec = training_job(tmp_path, kind, "adamw", world_size)
        # The same twelve samples in each step, clipped alike.
        spec["batch"] |= {"per_rank": per_rank, "accumulate": accumulate}
        spec["clip_grad_norm"] = MAX_NORMS[kind][2]
        muster.run(spec, f"world-{kind}-{world_size}")
        losses[world_size] = muster.losses(f"world-{kind}-{world_size}")
    assert_losses_close(losses[2], losses[1], 1e-5)
    assert_losses_close(losses[4], losses[1], 1e-5)


@pytest.mark.parametrize("world_size", [1, 2])
def test_the_same_job_twice_is_bitwise_equal(muster, tmp_path, world_size):
    ends = []
    for run in ["first", "second"]:
        # Dropout: the random numbers are equal too.
        spec = training_job(tmp_path, "gpt2", "adamw", world_size, steps=12, dropout=0.1)
        job = f"twice-{run}-{world_size}"
        muster.run(with_checkpoints(spec, tmp_path), job)
        folders = checkpoints.all_steps(tmp_path / "checkpoints", job)
        ends.append((muster.losses(job), checkpoints.read(folders[12])))
    assert ends[0][0] == ends[1][0]
    assert_bitwise_equal(ends[1][1], ends[0][1])


@pytest.mark.parametrize("world_size", [1, 3])
def test_validation_in_between_changes_nothing(muster, tmp_path, world_size):
    ends = {}
    for validate_every in [0, 4]:
        spec = training_job(tmp_path, "gpt2", "adamw", world_size, steps=14, dropout=0.1)
        spec["stages"][0]["fit"]["validate_every"] = validate_every
        job = f"every-{validate_every}-{world_size}"
        found = muster.run(with_checkpoints(spec, tmp_path), job)
        assert int(found.get("validation_step", 0)) == (12 if validate_every else 0)
        folders = checkpoints.all_steps(tmp_path / "checkpoints", job)
        # Parameters, moments and step counts.
        states = {step: checkpoints.read(folder) for step, folder in folders.items()}
        ends[validate_every] = (muster.losses(job), states)
    assert ends[0][0] == ends[4][0]
    for step in range(1, 15):
        assert_bitwise_equal(ends[4][1][step], ends[0][1][step])


@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("kind", ["gpt2", "mlp"])
def test_validation_loss_is_the_mean_over_all_samples(muster, tmp_path, kind, world_size):
    # 13 and 23 samples: the last round is uneven, and some ranks have nothing in it.
    spec = WORKLOADS[kind](tmp_path)
    spec |= {
        "world_size": world_size,
        "batch": {"per_rank": 4},
        "stages": [{"validate": {}}],
    }
    found = muster.run(spec, f"validate-{kind}-{world_size}")
    assert found["validation_loss"] == pytest.approx(reference.validation_loss(spec), abs=1e-6)


@pytest.mark.parametrize("strategy", ["ddp", "sharded_ddp", "fsdp"])
def test_validation_counts_each_sample_of_files_of_different_length_once(
    muster, tmp_path, strategy
):
    """One is empty. The sums are exact whatever the shares: accuracy to the last bit."""
    spec = workloads.mlp(tmp_path)
    whole = load_file(tmp_path / "validate.safetensors")
    paths = []
    for rank, (begin, end) in enumerate([(0, 14), (14, 14), (14, 23)]):
        paths.append(str(tmp_path / f"{rank}.safetensors"))
        save_file(
            {name: tensor[begin:end].contiguous() for name, tensor in whole.items()}, paths[-1]
        )
    job = spec | {
        "world_size": 3,
        "strategy": {strategy: {}},
        "data": {"validate": {"safetensors": {}, "per_rank": paths}},
        "batch": {"per_rank": 4, "last": "uneven"},
        "stages": [{"validate": {}}],
    }
    found = muster.run(job, f"validate-own-{strategy.replace('_', '-')}")
    assert found["validation_loss"] == pytest.approx(reference.validation_loss(spec), abs=1e-6)
    assert found["validation_accuracy"] == reference.validation_accuracy(spec)
