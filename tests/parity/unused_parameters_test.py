"""Tests of parameters that no rank uses in some steps, or in any. Every strategy is compared with
PyTorch, alone and as DistributedDataParallel with find_unused_parameters. Parameters, moments and
step counts agree after each step.

In PyTorch such a parameter's grad is None, and no optimizer touches it then. Tolerance: 1e-6, as in
training_test; between strategies there is none.
"""

import os

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from tests import bazel, cases
from tests.parity import checkpoints, join_reference, reference, sessions

INPUTS, CLASSES, PER_RANK, STEPS = 6, 3, 2, 8
STRATEGIES = {
    "ddp": {"ddp": {"bucket_mb": 0.0005}},
    "sharded_ddp": {"sharded_ddp": {"bucket_mb": 0.0005}},
    "fsdp": {"fsdp": {}},
}
OPTIMIZERS = {
    "adamw": {"adamw": {"lr": 1e-2, "eps": 1e-5, "weight_decay": 0.5}},
    "sgd": {"sgd": {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.05}},
    "adadelta": {"adadelta": {"lr": 1.0, "eps": 1e-5, "weight_decay": 0.1}},
    "several": {
        "adamw": {"lr": 1e-2, "eps": 1e-5, "weight_decay": 0.5},
        "groups": [
            {"match": "*bias", "optimizer": {"sgd": {"lr": 0.1, "momentum": 0.9}}},
            {"match": "never.*", "weight_decay": 0.9},
        ],
    },
}


class Branches(torch.nn.Module):
    """`extra` is used where the first number of a micro-batch is above zero, `never` nowhere. The
    gradient of `zero` is zero, and often -0.0, where it is used: that is a use."""

    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(INPUTS, 17)
        self.extra = torch.nn.Linear(17, 17)
        self.never = torch.nn.Linear(33, 5)
        self.zero = torch.nn.Parameter(torch.ones(1))
        self.head = torch.nn.Linear(17, CLASSES)

    def forward(self, x):
        h = torch.tanh(self.body(x)) - 0.0 * self.zero
        if bool(x[0, 0] > 0):
            h = h + torch.tanh(self.extra(h))
        return self.head(h)


def build():
    torch.manual_seed(4)
    return Branches()


def used(step, rank, micro_batch, ranks, accumulate):
    if step % 4 == 2:
        return (rank, micro_batch) == (ranks - 1, accumulate - 1)
    return step % 4 == 0


def micro_batches(ranks, accumulate):
    """By step and rank: (inputs, labels) of each."""
    random = torch.Generator().manual_seed(8)

    def one(*where):
        inputs = torch.randn(PER_RANK, INPUTS, generator=random)
        inputs[0, 0] = 1.0 if used(*where, ranks, accumulate) else -1.0
        return inputs, torch.randint(CLASSES, (PER_RANK,), generator=random)

    return [
        [[one(step, rank, micro) for micro in range(accumulate)] for rank in range(ranks)]
        for step in range(STEPS)
    ]


def job(folder, ranks, accumulate, optimizer, **more):
    torch.jit.script(build()).save(str(folder / "model.pt"))
    batches = [
        batch for step in micro_batches(ranks, accumulate) for own in step for batch in own
    ]
    inputs, labels = map(torch.cat, zip(*batches, strict=True))
    save_file({"inputs": inputs, "labels": labels}, folder / "train.safetensors")
    model = {"path": str(folder / "model.pt"), "inputs": [INPUTS], "classes": CLASSES}
    return {
        "name": "unused",
        "seed": 21,
        "world_size": ranks,
        "model": {"torchscript": model},
        "data": {"train": {"safetensors": {"path": str(folder / "train.safetensors")}}},
        "batch": {"per_rank": PER_RANK, "accumulate": accumulate, "order": "sequential"},
        "optimizer": OPTIMIZERS[optimizer],
        "stages": [{"fit": {"steps": STEPS}}],
        **more,
    }


def alone(spec):
    """The state after each step of one process that takes the micro-batches of all ranks."""
    ranks, accumulate = spec["world_size"], spec["batch"]["accumulate"]
    model = build()
    optimizer = reference.build_optimizer(spec["optimizer"], model)
    for step in micro_batches(ranks, accumulate):
        optimizer.zero_grad(set_to_none=True)
        for inputs, labels in (batch for own in step for batch in own):
            (F.cross_entropy(model(inputs), labels) / (ranks * accumulate)).backward()
        if "clip_grad_norm" in spec:
            torch.nn.utils.clip_grad_norm_(model.parameters(), spec["clip_grad_norm"])
        optimizer.step()
        yield join_reference.state_of(model, optimizer)


def run(spec, folder):
    return {step: checkpoints.read(path) for step, path in sessions.run(spec, folder).items()}


def assert_close(found, expected, what):
    expected = join_reference.with_zeros(expected, found)
    assert expected.keys() == found.keys(), what
    for name, tensor in expected.items():
        off = (found[name] - tensor).abs().max().item()
        assert off <= 1e-6, f"{what}: {name} is off by {off}"


@pytest.mark.parametrize(
    "optimizer, ranks, accumulate, clip",
    cases.every_value(OPTIMIZERS, [2, 3, 1, 2], [2, 1], [None, None, 0.3]),
)
def test_every_strategy_leaves_what_pytorch_leaves(tmp_path, optimizer, ranks, accumulate, clip):
    more = {} if clip is None else {"clip_grad_norm": clip}
    spec = job(tmp_path, ranks, accumulate, optimizer, **more)
    first = None
    for name, strategy in STRATEGIES.items():
        found = run(spec | {"strategy": strategy}, tmp_path / name)
        assert list(found) == list(range(1, STEPS + 1))
        first = first or found
        for step, expected in enumerate(alone(spec), 1):
            assert_close(found[step], expected, f"{name}, step {step}")
            checkpoints.assert_bitwise_equal(found[step], first[step])


@pytest.mark.parametrize("every", ["step", "micro_batch"])
@pytest.mark.parametrize("strategy", ["sharded_ddp", "fsdp"])
def test_with_gradients_in_bfloat16_and_a_loss_scale(tmp_path, strategy, every):
    """Parameters that a step did not use keep their bits, and all others change."""
    sharding = {"reduce_every": every, "reduce_dtype": "bfloat16"}
    scaled = {"precision": "float16", "loss_scale": {"initial": 256.0}}
    more = scaled | {"strategy": {strategy: sharding}}
    spec = job(tmp_path, 2, 2, "adamw", **more)
    found = run(spec, tmp_path / "run")
    before = {f"param/{name}": value for name, value in build().named_parameters()}
    for step in range(STEPS):
        for name in (name for name in before if not name.startswith("param/zero")):
            same = torch.equal(found[step + 1][name], before[name])
            stays = "never" in name or ("extra" in name and step % 2 == 1)
            assert same == stays, f"{name} in step {step + 1}"
        before = {name: found[step + 1][name] for name in before}
    assert found[STEPS]["step/never.weight"] == 0
    assert found[STEPS]["step/extra.weight"] == STEPS / 2
    assert found[STEPS]["step/zero"] == STEPS


def train_rank(rank, folder, ranks, accumulate, options):
    torch.set_num_threads(1)
    store = torch.distributed.FileStore(str(folder / "store"), ranks)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    module = build()
    model = torch.nn.parallel.DistributedDataParallel(module, find_unused_parameters=True)
    optimizer = reference.build_optimizer(options, module)
    for step in micro_batches(ranks, accumulate):
        optimizer.zero_grad(set_to_none=True)
        *first, last = step[rank]
        with model.no_sync():
            for inputs, labels in first:
                (F.cross_entropy(model(inputs), labels) / accumulate).backward()
        (F.cross_entropy(model(last[0]), last[1]) / accumulate).backward()
        optimizer.step()
    if rank == 0:
        torch.save(join_reference.state_of(module, optimizer), folder / "state.pt")
    torch.distributed.barrier()
    os._exit(0)  # as in join_model.py


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_the_last_step_has_the_state_of_pytorchs_own_ranks(tmp_path, optimizer):
    ranks, accumulate = 2, 2
    spec = job(tmp_path, ranks, accumulate, optimizer)
    processes = torch.multiprocessing.spawn(
        train_rank, (tmp_path, ranks, accumulate, spec["optimizer"]), ranks, join=False
    )
    # A call returns when the next process has ended, and is true when none is left.
    ended = [processes.join(timeout=bazel.bound(60)) for _ in range(ranks)]
    assert any(ended), "PyTorch's ranks do not end"
    expected = torch.load(tmp_path / "state.pt")
    for name, strategy in STRATEGIES.items():
        found = run(spec | {"strategy": strategy}, tmp_path / name)
        assert_close(found[STEPS], expected, name)
