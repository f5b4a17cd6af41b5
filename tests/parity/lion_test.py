"""Lion against its formula written out in PyTorch (reference.Lion), and against itself: all
strategies, a resumed job and frozen parameters.

The tolerance is training_test's: 1e-6. Lion takes the sign of a sum, and where that is zero but for
rounding the sign is by chance: an element then ends two rates away. In the MLP no such element is
met; in GPT-2 the keys' biases are, which softmax does not see, so there losses are compared.
"""

import pytest
import torch

from tests.parity import reference, sessions, workloads, checkpoints
from tests.parity.checkpoints import assert_bitwise_equal

STEPS = 20
TOLERANCE = 1e-6
WORLD_SIZE = 3
STRATEGIES = {
    "ddp": {"ddp": {"bucket_mb": 0.005}},
    "sharded_ddp": {"sharded_ddp": {"bucket_mb": 0.005}},
    "fsdp": {"fsdp": {}},
}
OPTIMIZER = {
    "lion": {"lr": 1e-3, "betas": [0.8, 0.95], "weight_decay": 0.3},
    "groups": [
        {"match": "*bias", "weight_decay": 0.0},
        # Patterns for the MLP and for GPT-2.
        {"match": "*.0.*", "lr_scale": 0.5},
    ],
}


def job(folder, kind, strategy="ddp", **more):
    return getattr(workloads, kind)(folder) | {
        "world_size": WORLD_SIZE,
        "strategy": STRATEGIES[strategy],
        "optimizer": OPTIMIZER,
        "schedule": {"warmup_cosine": {"warmup_steps": 5, "min_ratio": 0.1}},
        "batch": {"per_rank": 3, "accumulate": 2},
        "clip_grad_norm": 0.5,
        "stages": [{"fit": {"steps": STEPS}}],
        **more,
    }


def largest_difference(found, expected):
    assert found.keys() == expected.keys()
    return max((found[name] - expected[name]).abs().max().item() for name in expected)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_parameters_and_means_equal_the_written_out_formula(tmp_path, strategy):
    spec = job(tmp_path, "mlp", strategy)
    folders = sessions.run(spec, tmp_path / "run")
    expected = reference.train(spec)
    assert list(folders) == list(range(1, STEPS + 1))
    for step, folder in folders.items():
        parameters = checkpoints.parameters(folder)
        assert largest_difference(parameters, expected.parameters[step]) <= TOLERANCE, step
        means = checkpoints.read(folder, {"exp_avg"})
        assert largest_difference(means, expected.moments[step]) <= TOLERANCE, step


@pytest.mark.parametrize(
    "other",
    [
        {"lion": OPTIMIZER["lion"] | {"betas": [0.8, 0.96]}},
        {"lion": OPTIMIZER["lion"] | {"betas": [0.7, 0.95]}},
        {"lion": OPTIMIZER["lion"] | {"weight_decay": 0.2}},
        {"lion": OPTIMIZER["lion"] | {"lr": 1.1e-3}},
        {"groups": OPTIMIZER["groups"][:1]},
        {"groups": OPTIMIZER["groups"][1:]},
    ],
    ids=["beta2", "beta1", "weight_decay", "lr", "lr_scale_of_a_group", "decay_of_a_group"],
)
def test_each_setting_matters(tmp_path, other):
    # The comparison itself: with another setting the reference ends elsewhere.
    spec = job(tmp_path, "mlp")
    expected = reference.train(spec).parameters[STEPS]
    found = reference.train(spec | {"optimizer": OPTIMIZER | other}).parameters[STEPS]
    assert largest_difference(found, expected) > 10 * TOLERANCE


def test_the_loss_of_gpt2_equals_that_of_the_written_out_formula(tmp_path):
    spec = job(tmp_path, "gpt2")
    folders = sessions.run(spec, tmp_path / "run")
    # Measured alike, by PyTorch, with the parameters of both.
    expected = reference.train(spec)
    losses = []
    for parameters in (checkpoints.parameters(folders[STEPS]), expected.parameters[STEPS]):
        model = reference.build(spec).eval()
        model.load_state_dict(parameters, strict=False)
        data = reference.open_data(spec, "validate")
        with torch.no_grad():
            losses.append(reference.mean_loss(model, *data[list(range(len(data)))]).item())
    initial = reference.validation_loss(spec)
    assert losses[0] == pytest.approx(losses[1], rel=0, abs=1e-5)
    assert losses[0] < initial - 0.05


def states(spec, folder, **more):
    found = sessions.run(spec, folder, **more)
    return {step: checkpoints.read(path) for step, path in found.items()}


def assert_all_equal(found, expected):
    assert found.keys() == expected.keys()
    for step in expected:
        assert_bitwise_equal(found[step], expected[step])


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_strategies_are_bitwise_equal_while_parameters_are_frozen_and_freed(tmp_path, precision):
    # With dropout, and with all that a change of what is trained moves.
    changes = {
        4: [{"freeze": "transformer.h.0.*"}],
        8: [{"unfreeze": "transformer.h.0.*"}, {"freeze": "*bias"}],
        12: [{"unfreeze": "*"}],
    }
    runs = {}
    for strategy in STRATEGIES:
        spec = job(tmp_path, "gpt2", strategy, precision=precision)
        runs[strategy] = states(spec, tmp_path / strategy, changes=changes)
    assert len(runs["ddp"]) == STEPS
    frozen = "exp_avg/transformer.h.0.mlp.c_fc.weight"
    assert torch.equal(runs["ddp"][4][frozen], runs["ddp"][8][frozen])
    assert not torch.equal(runs["ddp"][8][frozen], runs["ddp"][9][frozen])
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
