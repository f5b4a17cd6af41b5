"""Freezing and unfreezing while a job runs, against a single process of PyTorch that flips
requires_grad.

One schedule has all cases: the largest parameter is frozen from the start and freed late. Others
are freed, frozen and freed again. At one time everything is frozen. One parameter changes with
every step. After every step the parameters, the moments and AdamW's count of steps of each
parameter are compared; what is frozen keeps its bits.

The tolerance is training_test's: 1e-6, with AdamW at eps 1e-5.
"""

import fnmatch
import itertools
import json

import pytest
import torch

from tests import cases
from tests.parity import checkpoints, reference, sessions, workloads

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
CASES = cases.every_value([1, 2, 4], [1, 2], [None, 0.5], OPTIMIZERS)


def rules_before(step, changes):
    """In force for step number `step`."""
    rules = list(AT_THE_START)
    for done in sorted(changes):
        if done < step:
            rules += changes[done]
    return rules


def trained(name, step, changes=CHANGES):
    value = True
    for rule in rules_before(step, changes):
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


def largest_difference(found, expected, what):
    assert found.keys() == expected.keys(), f"{what}: {sorted(found.keys() ^ expected.keys())[:3]}"
    return max(
        ((found[name] - expected[name]).abs().max().item() for name in expected), default=0.0
    )


@pytest.mark.parametrize("world_size, accumulate, clip, optimizer", CASES)
def test_each_step_is_that_of_pytorch(tmp_path, world_size, accumulate, clip, optimizer):
    spec = job(tmp_path, world_size, accumulate, clip, optimizer)
    expected = reference.train(spec, before_step=set_flags)
    states = {}
    for name, strategy in STRATEGIES.items():
        before = None
        found = sessions.run(spec | {"strategy": strategy}, tmp_path / name, CHANGES)
        assert list(found) == list(range(1, STEPS + 1))
        for step, folder in found.items():
            state = checkpoints.read(folder)
            found = {
                key.removeprefix("param/"): value
                for key, value in state.items()
                if key.startswith("param/")
            }
            moments = {key: value for key, value in state.items() if not key.startswith("param/")}
            what = f"{name}, step {step}"
            assert largest_difference(found, expected.parameters[step], what) <= TOLERANCE, what
            assert largest_difference(moments, expected.moments[step], what) <= TOLERANCE, what
            for parameter in found:
                if before is not None and not trained(parameter, step):
                    for key in [
                        f"param/{parameter}",
                        *(k for k in moments if k.endswith("/" + parameter)),
                    ]:
                        assert torch.equal(state[key], before[key]), f"{what}: {key} changed"
            before = state
            # All strategies to the bit.
            checkpoints_of_step = states.setdefault(step, state)
            for key, value in checkpoints_of_step.items():
                assert torch.equal(value, state[key]), f"{what}: {key} is not ddp's"


# The schedule without the steps in which everything is frozen: torch.amp.GradScaler has nothing to
# look at then.
CHANGES_IN_16_BITS = {done: rules for done, rules in CHANGES.items() if done < 6 or done > 8}
IN_16_BITS = {
    "bfloat16": {"precision": "bfloat16"},
    # The first steps overflow.
    "float16": {"precision": "float16", "loss_scale": {"initial": 2.0**23}},
}
# The same bounds as in precision_test.py, which explains them.
PARAMETERS_IN_16_BITS = {"bfloat16": 5e-3, "float16": 1e-3}


@pytest.mark.parametrize("precision, accumulate", itertools.product(IN_16_BITS, [1, 2]))
def test_steering_in_16_bits_is_near_pytorch_and_ddps_to_the_bit(tmp_path, precision, accumulate):
    spec = job(tmp_path, 2, accumulate, 0.5, "adamw") | IN_16_BITS[precision]

    def flags(step, model):
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(trained(name, step, CHANGES_IN_16_BITS))
            if not parameter.requires_grad:
                parameter.grad = None

    expected = reference.train(spec, before_step=flags)
    if precision == "float16":
        assert min(expected.scales) < expected.scales[0], "no step overflowed"
    states = {}
    for name, strategy in STRATEGIES.items():
        found = sessions.run(spec | {"strategy": strategy}, tmp_path / name, CHANGES_IN_16_BITS)
        assert list(found) == list(range(1, STEPS + 1))
        for step, folder in found.items():
            state = checkpoints.read(folder)
            what = f"{name}, step {step}"
            parameters = {
                key.removeprefix("param/"): value
                for key, value in state.items()
                if key.startswith("param/")
            }
            difference = largest_difference(parameters, expected.parameters[step], what)
            assert difference <= PARAMETERS_IN_16_BITS[precision], what
            if precision == "float16" and step < STEPS:
                assert state["scaler/scale"].item() == expected.scales[step], what
            for key, value in states.setdefault(step, state).items():
                assert torch.equal(value, state[key]), f"{what}: {key} is not ddp's"


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_what_is_frozen_goes_with_a_checkpoint_into_any_strategy_and_world_size(
    tmp_path, optimizer
):
    """From step 6 on everything is frozen: whoever goes on writes, one step later, what he was
    given."""
    changes = {done: rules for done, rules in CHANGES.items() if done <= 6}
    start, expected = None, None
    chain = [
        ("sharded_ddp", 4),
        ("fsdp", 2),
        ("ddp", 2),
        ("fsdp", 4),
        ("sharded_ddp", 1),
        ("ddp", 1),
        ("fsdp", 2),
    ]
    for hop, (strategy, world_size) in enumerate(chain):
        spec = job(tmp_path, world_size, 1, None, optimizer) | {
            "strategy": STRATEGIES[strategy],
            "stages": [{"fit": {"steps": 7 + hop}}],
        }
        found = sessions.run(spec, tmp_path / f"hop-{hop}", changes, start)
        start = found[7 + hop]
        state = checkpoints.read(start)
        expected = expected or state
        checkpoints.assert_bitwise_equal(state, expected)
        rules = json.loads((start / "MANIFEST.json").read_text())["steering"]["trainability"]
        assert rules == {"version": 4, "rules": [{"freeze": "*"}], "pending": []}
    assert sum(name.startswith(("exp_avg/", "momentum_buffer/")) for name in expected) == 27


def test_a_run_goes_on_from_the_middle_of_the_schedule_in_another_strategy(tmp_path):
    spec = job(tmp_path, 2, 2, 0.5, "adamw")
    calm = sessions.run(spec | {"strategy": STRATEGIES["fsdp"]}, tmp_path / "calm", CHANGES)
    resumed = sessions.run(
        spec | {"strategy": STRATEGIES["sharded_ddp"]}, tmp_path / "resumed", CHANGES, calm[9]
    )
    assert list(resumed) == list(range(9, STEPS + 1))
    for step in range(10, STEPS + 1):
        checkpoints.assert_bitwise_equal(
            checkpoints.read(resumed[step]), checkpoints.read(calm[step])
        )


def test_the_schedule_has_all_there_is_to_show():
    names = [
        name
        for name, _ in reference.build({"model": {"gpt2": workloads_options()}}).named_parameters()
    ]
    masks = [tuple(trained(name, step) for name in names) for step in range(1, STEPS + 1)]
    assert any(not any(mask) for mask in masks), "everything is frozen once"
    assert all(a != b for a, b in zip(masks[8:13], masks[9:14])), "each step is another mask"
    largest = names.index(LARGEST)
    assert not any(mask[largest] for mask in masks[:15]) and masks[15][largest]


def workloads_options():
    return {"vocab_size": 200, "context": 17, "layers": 2, "heads": 3, "width": 27, "inner": 70}
