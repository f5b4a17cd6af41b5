"""Freezing and unfreezing while a job runs, against a single process of PyTorch that flips requires_grad.

One schedule has it all: a parameter frozen from the start and freed late (the largest one), others freed, frozen and freed again, everything
frozen, and one that changes with every step. After every step the parameters, the moments and AdamW's count of steps of each
parameter are compared; what is frozen keeps its bits.

The tolerance is training_test's: 1e-6, with AdamW at eps 1e-5. Measured: see docs/trainability.md.
"""

import fnmatch
import itertools
import json
import subprocess

import pytest
import torch

from tests import bazel
from tests.parity import checkpoints, cluster, reference, workloads

STEPS = 20
LARGEST = "transformer.wte.weight"
AT_THE_START = [{"freeze": LARGEST}]
# {steps done: rules}
CHANGES = {
    2: [{"freeze": "transformer.h.0.*"}],
    4: [{"unfreeze": "transformer.h.0.*"}],
    6: [{"freeze": "*"}],
    8: [{"unfreeze": "*bias"}],
    9: [{"unfreeze": "transformer.h.*"}],
    10: [{"freeze": "transformer.h.1.*"}],
    11: [{"unfreeze": "transformer.h.1.*"}, {"freeze": "*ln_1*"}],
    12: [{"freeze": "transformer.h.1.*"}],
    13: [{"unfreeze": "transformer.h.1.*"}, {"unfreeze": "*ln_1.weight"}],
    15: [{"unfreeze": LARGEST}],
    17: [{"freeze": "transformer.h.?.mlp.*"}],
}
STRATEGIES = {
    "ddp": {"ddp": {"bucket_mb": 0.01}},
    "sharded_ddp": {"sharded_ddp": {"bucket_mb": 0.01}},
    "fsdp": {"fsdp": {}},
}
OPTIMIZERS = {
    "adamw": {"adamw": {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-5, "weight_decay": 0.1}},
    "sgd": {"sgd": {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.05}},
}
TOLERANCE = 1e-6
CASES = list(itertools.product([1, 2, 4], [1, 2], [None, 0.5], OPTIMIZERS))


def rules_before(step):
    """In force for step number `step`."""
    rules = list(AT_THE_START)
    for done in sorted(CHANGES):
        if done < step:
            rules += CHANGES[done]
    return rules


def trained(name, step):
    value = True
    for rule in rules_before(step):
        ((action, pattern),) = rule.items()
        if fnmatch.fnmatchcase(name, pattern):
            value = action == "unfreeze"
    return value


def set_flags(step, model):
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(trained(name, step))
        if not parameter.requires_grad:
            parameter.grad = None


def job(folder, world_size, accumulate, clip, optimizer):
    clipping = {} if clip is None else {"clip_grad_norm": clip}
    return (
        workloads.gpt2(folder, vocab_size=200)
        | {
            "world_size": world_size,
            "trainable": {"rules": AT_THE_START},
            "optimizer": OPTIMIZERS[optimizer],
            "schedule": {"warmup_cosine": {"warmup_steps": 5, "min_ratio": 0.1}},
            "batch": {"per_rank": 2, "accumulate": accumulate},
            "stages": [{"fit": {"steps": STEPS}}],
        }
        | clipping
    )


def write_commands(path):
    lines = [
        json.dumps({"at_step": done, "set_trainability": {"rules": rules}}) for done, rules in sorted(CHANGES.items())
    ]
    path.write_text("\n".join(lines) + "\n")


def run(spec, folder):
    """The folders of the checkpoints, by step."""
    folder.mkdir()
    spec = checkpoints.with_checkpoints(spec, folder)
    (folder / "job.yaml").write_text(json.dumps(spec))
    write_commands(folder / "commands")
    done = subprocess.run(
        [bazel.runfile("worker/control/muster-session"), folder / "job.yaml", "--commands", folder / "commands"],
        capture_output=True,
        text=True,
        env=cluster.environment(),
    )
    assert done.returncode == 0 and "command" not in done.stderr, done.stderr
    found = checkpoints.all_steps(folder / "checkpoints", "job")
    assert list(found) == list(range(1, STEPS + 1))
    return found


def largest_difference(found, expected, what):
    assert found.keys() == expected.keys(), f"{what}: {sorted(found.keys() ^ expected.keys())[:3]}"
    return max(((found[name] - expected[name]).abs().max().item() for name in expected), default=0.0)


@pytest.mark.parametrize("world_size, accumulate, clip, optimizer", CASES)
def test_each_step_is_that_of_pytorch(tmp_path, world_size, accumulate, clip, optimizer):
    spec = job(tmp_path, world_size, accumulate, clip, optimizer)
    expected = reference.train(spec, before_step=set_flags)
    states = {}
    for name, strategy in STRATEGIES.items():
        before = None
        for step, folder in run(spec | {"strategy": strategy}, tmp_path / name).items():
            state = checkpoints.read(folder)
            found = {key.removeprefix("param/"): value for key, value in state.items() if key.startswith("param/")}
            moments = {key: value for key, value in state.items() if not key.startswith("param/")}
            what = f"{name}, step {step}"
            assert largest_difference(found, expected.parameters[step], what) <= TOLERANCE, what
            assert largest_difference(moments, expected.moments[step], what) <= TOLERANCE, what
            for parameter in found:
                if before is not None and not trained(parameter, step):
                    for key in [f"param/{parameter}", *(k for k in moments if k.endswith("/" + parameter))]:
                        assert torch.equal(state[key], before[key]), f"{what}: {key} changed"
            before = state
            # All strategies to the bit.
            checkpoints_of_step = states.setdefault(step, state)
            for key, value in checkpoints_of_step.items():
                assert torch.equal(value, state[key]), f"{what}: {key} is not ddp's"


def test_the_schedule_has_all_there_is_to_show():
    names = [name for name, _ in reference.build({"model": {"gpt2": workloads_options()}}).named_parameters()]
    masks = [tuple(trained(name, step) for name in names) for step in range(1, STEPS + 1)]
    assert any(not any(mask) for mask in masks), "everything is frozen once"
    assert all(a != b for a, b in zip(masks[8:13], masks[9:14])), "each step is another mask"
    largest = names.index(LARGEST)
    assert not any(mask[largest] for mask in masks[:15]) and masks[15][largest]


def workloads_options():
    return {"vocab_size": 200, "context": 17, "layers": 2, "heads": 3, "width": 27, "inner": 70}
