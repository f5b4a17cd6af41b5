"""Tests of parameters that a step does not use: they stay as in PyTorch. Without DDP their grad is
None. DistributedDataParallel with find_unused_parameters does not change the grad of parameters
that no rank used (documentation of the class).

What is compared: the whole parameters after some steps, with those of one process of PyTorch that
takes the micro-batches of all ranks. The tolerance is README's, 1e-6; between strategies there is
none.
"""

import copy
import json

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

from tests.process import harness

INPUTS, CLASSES = 6, 3
RANKS, ACCUMULATE, PER_RANK = 2, 2, 2
# That no rank uses in some steps, and in none.
LAYERS = ("extra", "never")
STRATEGIES = ("ddp", "sharded_ddp", "fsdp")
# Which micro-batches use the layer `extra`: by step, (rank 0's two, rank 1's two).
USES = [
    ((1, 1), (1, 1)),
    ((0, 0), (0, 0)),
    ((0, 0), (0, 1)),  # one rank, in one of its micro-batches
    ((0, 0), (0, 0)),
    ((1, 0), (0, 0)),
    ((0, 0), (0, 0)),
]
OPTIMIZERS = {
    "adamw": (
        {"lr": 0.01, "eps": 1e-5, "weight_decay": 0.5},
        lambda parameters: torch.optim.AdamW(parameters, lr=0.01, eps=1e-5, weight_decay=0.5),
    ),
    "sgd": (
        {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01},
        lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01),
    ),
}


class Branches(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(INPUTS, 8)
        self.extra = torch.nn.Linear(8, 8)
        self.never = torch.nn.Linear(5, 4)
        self.head = torch.nn.Linear(8, CLASSES)

    def forward(self, x):
        h = torch.tanh(self.body(x))
        if bool(x[0, 0] > 0):
            h = h + torch.tanh(self.extra(h))
        return self.head(h)


def model():
    torch.manual_seed(5)
    return Branches()


def micro_batches():
    """(inputs, labels) of each, in the order of steps, ranks and micro-batches: the order of the
    data."""
    random = torch.Generator().manual_seed(3)
    for step in USES:
        for used in (used for of_rank in step for used in of_rank):
            inputs = torch.randn(PER_RANK, INPUTS, generator=random)
            inputs[0, 0] = 1.0 if used else -1.0
            yield inputs, torch.randint(CLASSES, (PER_RANK,), generator=random)


def pytorchs(optimizer):
    """The parameters after all steps in one process of PyTorch."""
    trained = model()
    steps = OPTIMIZERS[optimizer][1](trained.parameters())
    batches = micro_batches()
    for _ in USES:
        steps.zero_grad(set_to_none=True)
        for _ in range(RANKS * ACCUMULATE):
            inputs, labels = next(batches)
            loss = torch.nn.functional.cross_entropy(trained(inputs), labels)
            (loss / (RANKS * ACCUMULATE)).backward()
        steps.step()
    return {name: parameter.detach() for name, parameter in trained.named_parameters()}


def job_id(strategy):
    return strategy.replace("_", "-")


def write_jobs(folder, optimizer):
    torch.jit.script(model()).save(str(folder / "model.pt"))
    inputs, labels = map(torch.cat, zip(*micro_batches(), strict=True))
    save_file({"inputs": inputs, "labels": labels}, folder / "train.safetensors")
    for strategy in STRATEGIES:
        job = {
            "name": job_id(strategy),
            "world_size": RANKS,
            "device": "cpu",
            "seed": 7,
            "model": {"torchscript": {"path": "model.pt", "inputs": [INPUTS], "classes": CLASSES}},
            "strategy": {strategy: {}},
            "data": {"train": {"safetensors": {"path": "train.safetensors"}}},
            "batch": {"per_rank": PER_RANK, "accumulate": ACCUMULATE, "order": "sequential"},
            "optimizer": {optimizer: copy.copy(OPTIMIZERS[optimizer][0])},
            "stages": [{"fit": {"steps": len(USES)}}],
            "export": {"path": f"{strategy}.safetensors"},
        }
        (folder / f"{strategy}.yaml").write_text(yaml.safe_dump(job))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_layer_that_a_step_does_not_use_is_left_as_pytorch_leaves_it(muster, optimizer):
    """Muster issue 49: an unused layer decayed under AdamW, and one that is used in some steps
    moved on its momentum in the others."""
    write_jobs(muster.folder, optimizer)
    daemon = muster.musterd(local_slots=len(STRATEGIES) * RANKS)
    for strategy in STRATEGIES:
        muster.cli("submit", f"{strategy}.yaml", "--id", job_id(strategy))
    expected = pytorchs(optimizer)
    found = {}
    for strategy in STRATEGIES:
        muster.cli("wait", job_id(strategy), "--timeout", f"{harness.BOUND:.0f}s")
        found[strategy] = load_file(muster.folder / f"{strategy}.safetensors")
    # The layers in question first: when they move, all others do, too.
    layers = sorted(model().named_parameters(), key=lambda one: one[0].split(".")[0] not in LAYERS)
    for name, value in layers:
        for strategy in STRATEGIES:
            own = found[strategy][name]
            assert torch.equal(own, found["ddp"][name]), f"{strategy}: {name} is not ddp's"
            off = (own - expected[name]).abs().max().item()
            assert off <= 1e-6, f"{strategy}: {name} is off by {off}"
            if name.startswith("never."):
                assert torch.equal(own, value.detach()), f"{strategy}: {name} was changed"
    for strategy in STRATEGIES:
        job = json.loads(muster.cli("get", job_id(strategy), "-o", "json").out)
        told = [e["message"] for e in job["events"] if e["reason"] == "PARAMETERS_UNUSED"]
        named = {
            name
            for name, _ in model().named_parameters()
            if any(name in message for message in told)
        }
        assert 1 <= len(told) <= 2, f"not once for each step: {told}"
        assert {name.split(".")[0] for name in named} <= set(LAYERS), told
        assert "never.weight" in told[0] or "never.bias" in told[0], told
    muster.stop(daemon)
