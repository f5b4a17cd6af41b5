"""Adadelta against torch.optim.Adadelta, and against itself: all strategies, a resumed job, and
frozen parameters; its state in Python and back.

The tolerance is training_test's: 1e-6, with eps 1e-3. (A change is sqrt(acc_delta + eps) /
sqrt(square_avg + eps) times the gradient: a small eps blows rounding of small gradients up.)
"""

import pytest
import torch

from tests.parity import checkpoints, reference, sessions, workloads
from tests.parity.checkpoints import assert_bitwise_equal

STEPS = 20
GATHERED = 12
TOLERANCE = 1e-6
SLOTS = {"square_avg", "acc_delta", "step"}
STRATEGIES = {
    "ddp": {"ddp": {"bucket_mb": 0.005}},
    "sharded_ddp": {"sharded_ddp": {"bucket_mb": 0.005}},
    "fsdp": {"fsdp": {}},
}
OPTIMIZER = {
    "adadelta": {"lr": 0.05, "rho": 0.8, "eps": 1e-3, "weight_decay": 0.1},
    "groups": [
        {"match": "*bias", "weight_decay": 0.0},
        # Patterns for the MLP and for GPT-2.
        {"match": "*.0.*", "lr_scale": 0.5},
    ],
}


def job(folder, kind, strategy="ddp", **more):
    return getattr(workloads, kind)(folder) | {
        "world_size": 3,
        "strategy": STRATEGIES[strategy],
        "optimizer": OPTIMIZER,
        "schedule": {"warmup_cosine": {"warmup_steps": 5, "min_ratio": 0.1}},
        "batch": {"per_rank": 3, "accumulate": 2},
        "stages": [{"fit": {"steps": STEPS}}],
        **more,
    }


def largest_difference(found, expected):
    assert found.keys() == expected.keys()
    return max((found[name] - expected[name]).abs().max().item() for name in expected)


@pytest.mark.parametrize("kind", ["mlp", "gpt2"])
def test_parameters_and_state_equal_pytorchs(tmp_path, kind):
    spec = job(tmp_path, kind)
    folders = sessions.run(spec, tmp_path / "run")
    expected = reference.train(spec)
    assert list(folders) == list(range(1, STEPS + 1))
    for step, folder in folders.items():
        parameters = checkpoints.parameters(folder)
        assert largest_difference(parameters, expected.parameters[step]) <= TOLERANCE, step
        state = checkpoints.read(folder, SLOTS)
        assert largest_difference(state, expected.moments[step]) <= TOLERANCE, step


@pytest.mark.parametrize(
    "other",
    [
        {"adadelta": OPTIMIZER["adadelta"] | {"rho": 0.81}},
        {"adadelta": OPTIMIZER["adadelta"] | {"eps": 1.1e-3}},
        {"adadelta": OPTIMIZER["adadelta"] | {"weight_decay": 0.2}},
        {"adadelta": OPTIMIZER["adadelta"] | {"lr": 0.055}},
        {"groups": OPTIMIZER["groups"][:1]},
        {"groups": OPTIMIZER["groups"][1:]},
    ],
    ids=["rho", "eps", "weight_decay", "lr", "lr_scale_of_a_group", "decay_of_a_group"],
)
def test_each_setting_matters(tmp_path, other):
    # The comparison itself: with another setting the reference ends elsewhere.
    spec = job(tmp_path, "mlp")
    expected = reference.train(spec).parameters[STEPS]
    found = reference.train(spec | {"optimizer": OPTIMIZER | other}).parameters[STEPS]
    assert largest_difference(found, expected) > 10 * TOLERANCE


def states(spec, folder, **more):
    found = sessions.run(spec, folder, **more)
    return {step: checkpoints.read(path) for step, path in found.items()}


def assert_all_equal(found, expected):
    assert found.keys() == expected.keys()
    for step in expected:
        assert_bitwise_equal(found[step], expected[step])


def test_strategies_are_bitwise_equal_while_parameters_are_frozen_and_freed(tmp_path):
    changes = {
        4: [{"freeze": "transformer.h.0.*"}],
        8: [{"unfreeze": "transformer.h.0.*"}, {"freeze": "*bias"}],
        12: [{"unfreeze": "*"}],
    }
    runs = {}
    for strategy in STRATEGIES:
        spec = job(tmp_path, "gpt2", strategy)
        runs[strategy] = states(spec, tmp_path / strategy, changes=changes)
    assert len(runs["ddp"]) == STEPS
    frozen = "transformer.h.0.mlp.c_fc.weight"
    for slot in SLOTS:
        assert torch.equal(runs["ddp"][4][f"{slot}/{frozen}"], runs["ddp"][8][f"{slot}/{frozen}"])
    assert runs["ddp"][STEPS][f"step/{frozen}"].item() == STEPS - 4
    assert_all_equal(runs["sharded_ddp"], runs["ddp"])
    assert_all_equal(runs["fsdp"], runs["ddp"])


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_resumed_job_is_bitwise_the_undisturbed_one(tmp_path, strategy):
    spec = job(tmp_path, "gpt2", strategy)
    folders = sessions.run(spec, tmp_path / "undisturbed")
    expected = {step: checkpoints.read(path) for step, path in folders.items()}
    found = states(spec, tmp_path / "resumed", start=folders[7])
    # The one that it started from is in its folder, too.
    assert list(found) == list(range(7, STEPS + 1))
    assert_all_equal(found, {step: expected[step] for step in found})


def test_training_goes_on_in_python_and_back_in_muster(tmp_path):
    spec = job(tmp_path, "gpt2", "fsdp")
    path = tmp_path / "state.pt"
    gather = {"at_step": GATHERED, "gather_optimizer_state": {"file": {"path": str(path)}}}
    folders = sessions.run(spec, tmp_path / "run", commands=[gather])
    state = torch.load(path, weights_only=True)
    start = reference.Start(GATHERED, checkpoints.parameters(folders[GATHERED]), state)
    went_on = reference.train(spec, start=start)
    for step in range(GATHERED + 1, STEPS + 1):
        found = checkpoints.parameters(folders[step])
        assert largest_difference(found, went_on.parameters[step]) <= TOLERANCE, step

    # Nothing is trained, so what the first checkpoint holds is what was read from the file.
    again = spec | {
        "optimizer": OPTIMIZER | {"state": str(path)},
        "world_size": 2,
        "trainable": {"rules": [{"freeze": "*"}]},
        "stages": [{"fit": {"steps": 1}}],
        "schedule": {"constant": {}},
    }
    read = checkpoints.read(sessions.run(again, tmp_path / "again")[1], SLOTS)
    assert_bitwise_equal(read, checkpoints.read(folders[GATHERED], SLOTS))
