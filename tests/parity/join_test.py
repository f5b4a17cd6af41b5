"""Ranks with different amounts of input: every strategy against a single process, step by step, over two epochs.

The model has BatchNorm and parameters that nothing uses. Most ranks' last micro-batch is short. Each step is saved, and a save
compares parameters and buffers of all ranks bitwise (join_session_test has the optimizer's state). Tolerance: training_test's, 1e-6
with AdamW at eps 1e-5; between strategies there is none.

JOIN_CASES=all runs the whole product instead of all pairs.
"""

import itertools
import json
import os
import shutil
import subprocess

import pytest
import torch
from safetensors.torch import save_file

from tests import bazel
from tests.parity import checkpoints, cluster, join_reference

INPUTS, CLASSES, PER_RANK = 6, 5, 8
STRATEGIES = {
    "ddp": {"ddp": {"bucket_mb": 0.0005}},
    "sharded_ddp": {"sharded_ddp": {"bucket_mb": 0.0005}},
    "fsdp": {"fsdp": {}},
}
OPTIMIZERS = {
    "adamw": {"adamw": {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-5, "weight_decay": 0.1}},
    "sgd": {"sgd": {"lr": 0.02, "momentum": 0.9, "weight_decay": 0.05}},
}
DIVIDE_BY = ["initial", "active", "samples"]
# Micro-batches of each rank in an epoch.
PATTERNS = [(5, 5), (3, 5), (0, 5), (1, 4, 2), (7, 0, 0, 2)]
TOLERANCE = 1e-6


def pairwise(*factors):
    """Greedily: each case is the one of the product with the most pairs that no case has yet."""

    def pairs(case):
        return set(itertools.combinations(enumerate(case), 2))

    product, cases = list(itertools.product(*factors)), []
    missing = set().union(*map(pairs, product))
    while missing:
        cases.append(max(product, key=lambda case: len(pairs(case) & missing)))
        missing -= pairs(cases[-1])
    return cases


FACTORS = (DIVIDE_BY, PATTERNS, [1, 2], list(OPTIMIZERS))
CASES = list(itertools.product(*FACTORS)) if os.environ.get("JOIN_CASES") == "all" else pairwise(*FACTORS)


class Block(torch.nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = torch.nn.Linear(inputs, outputs, bias=False)  # a bias before BatchNorm has no gradient but noise
        self.norm = torch.nn.BatchNorm1d(outputs)
        self.unused = torch.nn.Linear(3, 5)

    def forward(self, x):
        return torch.relu(self.norm(self.linear(x)))


def build():
    torch.manual_seed(4)
    return torch.nn.Sequential(Block(INPUTS, 17), Block(17, 12), torch.nn.Linear(12, CLASSES))


def parts(sizes):
    random = torch.Generator().manual_seed(8)
    return [
        (torch.randn(size, INPUTS, generator=random), torch.randint(CLASSES, (size,), generator=random))
        for size in sizes
    ]


def sizes_of(pattern):
    """Samples of each rank: the last micro-batch of every rank but the first is one short."""
    return [max(count * PER_RANK - (rank > 0), 0) for rank, count in enumerate(pattern)]


def job(folder, pattern, accumulate, divide_by, optimizer, **more):
    torch.jit.script(build()).save(str(folder / "model.pt"))
    paths = []
    for rank, (inputs, labels) in enumerate(parts(sizes_of(pattern))):
        paths.append(str(folder / f"{rank}.safetensors"))
        save_file({"inputs": inputs, "labels": labels}, paths[-1])
    return {
        "name": "join",
        "seed": 21,
        "world_size": len(pattern),
        "model": {"torchscript": {"path": str(folder / "model.pt"), "inputs": [INPUTS], "classes": CLASSES}},
        "data": {"train": {"safetensors": {}, "per_rank": paths}},
        "batch": {"per_rank": PER_RANK, "accumulate": accumulate, "last": "uneven"},
        "uneven_inputs": {"join": {"divide_by": divide_by}},
        "optimizer": OPTIMIZERS[optimizer],
        "stages": [{"fit": {"steps": 2 * join_reference.steps_of_an_epoch(pattern, accumulate)}}],
        **more,
    }


def run(spec, folder, start=None):
    """The folders of the checkpoints, by step. `start`: of the checkpoint to go on from."""
    folder.mkdir()
    spec = checkpoints.with_checkpoints(spec, folder)
    (folder / "job.yaml").write_text(json.dumps(spec))
    command = [bazel.runfile("worker/control/muster-session"), folder / "job.yaml"]
    if start is not None:
        own = folder / "checkpoints/job" / start.name
        shutil.copytree(start, own)
        shutil.copy(start.parent / ".muster-job", own.parent)
        command += ["--from", own]
    done = subprocess.run(command, capture_output=True, text=True, env=cluster.environment())
    assert done.returncode == 0, done.stderr
    return {step: checkpoints.read(path) for step, path in checkpoints.all_steps(folder / "checkpoints", "job").items()}


def reference_of(spec, pattern, before_step=lambda model: lambda step: None):
    sizes, model = sizes_of(pattern), build()
    (stage,) = spec["stages"]
    steps = itertools.islice(join_reference.own_steps(spec, sizes), stage["fit"]["steps"])
    return list(join_reference.train(spec, model, parts(sizes), steps, before_step(model)))


def assert_close(found, expected, what):
    assert found.keys() == expected.keys(), what
    difference = {name: (found[name] - expected[name]).abs().max().item() for name in expected}
    worst = max(difference, key=difference.get)
    assert difference[worst] <= TOLERANCE, f"{what}: {worst} is off by {difference[worst]}"


def check(spec, pattern, folder, before_step=lambda model: lambda step: None):
    expected = reference_of(spec, pattern, before_step)
    first = None
    for name, strategy in STRATEGIES.items():
        found = run(spec | {"strategy": strategy}, folder / name)
        assert list(found) == list(range(1, len(expected) + 1))
        for step, wanted in enumerate(expected, 1):
            assert_close(found[step], wanted.state, f"{name}, step {step}")
        first = first or found
        for step in found:
            checkpoints.assert_bitwise_equal(found[step], first[step])
    return first


@pytest.mark.parametrize("divide_by, pattern, accumulate, optimizer", CASES)
def test_every_strategy_is_the_single_process(tmp_path, divide_by, pattern, accumulate, optimizer):
    check(job(tmp_path, pattern, accumulate, divide_by, optimizer), pattern, tmp_path)
