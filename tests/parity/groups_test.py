"""Parameter groups, decay and Nesterov momentum against torch.optim's param_groups.

The tolerance is training_test's: 1e-6, with AdamW at eps 1e-5.
"""

import pytest

from tests.parity import checkpoints, cluster, reference, shared_cluster, workloads

STEPS = 20
OPTIMIZERS = {
    "adamw": {
        "adamw": {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-5, "weight_decay": 0.1},
        "groups": [
            {"match": "*", "lr_scale": 0.75},
            # Biases begin at zero: only a strong decay shows.
            {"match": "*.bias", "weight_decay": 10.0},
            {"match": "*.ln_?.*", "weight_decay": 0.0, "lr_scale": 0.5},
            {"match": "transformer.wte.weight", "weight_decay": 1.0, "lr_scale": 2.0},
            # Stands still.
            {"match": "transformer.h.1.attn.*", "lr_scale": 0.0},
        ],
    },
    # The decay is a part of the gradient here. Where there is no other (GPT-2's key bias), a step
    # multiplies the parameter by 1 - lr * weight_decay / eps, which must not blow rounding up.
    "adam": {
        "adam": {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-3, "weight_decay": 0.1},
        "groups": [
            {"match": "*.bias", "weight_decay": 0.5},
            {"match": "*.ln_?.*", "weight_decay": 0.0, "lr_scale": 0.5},
        ],
    },
    "sgd": {
        "sgd": {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.05, "nesterov": True},
        "groups": [
            {"match": "*.bias", "weight_decay": 0.0},
            {"match": "transformer.h.0.*", "lr_scale": 0.1},
            {"match": "*.h.0.ln_1.weight", "lr_scale": 3.0},
        ],
    },
    "own-rates": {
        "adamw": {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-5, "weight_decay": 0.1},
        "groups": [
            {"match": "*.h.0.*", "lr": 3e-3, "betas": [0.8, 0.9]},
            {"match": "*.weight", "eps": 1e-3, "lr_scale": 0.5},
            {"match": "*.ln_?.*", "lr": 5e-3, "eps": 1e-2},
        ],
    },
    "momenta": {
        "sgd": {"lr": 0.05},
        "groups": [
            {"match": "*.h.0.*", "momentum": 0.9},
            {"match": "*.h.0.attn.*", "momentum": 0.5, "lr": 0.1},
            {"match": "*.h.1.ln_1.*", "optimizer": {"sgd": {"lr": 0.02, "momentum": 0.9}}},
        ],
    },
    "several": {
        "adamw": {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-5, "weight_decay": 0.1},
        "groups": [
            # The scale stays when another optimizer is chosen, the decay does not.
            {"match": "*.h.1.*", "lr_scale": 0.5, "weight_decay": 5.0},
            {"match": "*.attn.*", "optimizer": {"sgd": {"lr": 0.05, "momentum": 0.9}}},
            {"match": "*.ln_?.*", "optimizer": {"adadelta": {"lr": 1.0, "eps": 1e-5}}},
            {"match": "*.ln_1.weight", "lr": 0.5, "weight_decay": 0.1},
            {"match": "*.wpe.*", "optimizer": {"adam": {"lr": 2e-3, "eps": 1e-4}}},
        ],
    },
}


muster = shared_cluster.with_slots(2)


def job(folder, optimizer):
    return workloads.gpt2(folder) | {
        "world_size": 2,
        "strategy": {"ddp": {"bucket_mb": 0.005}},
        "optimizer": optimizer,
        "schedule": {"warmup_cosine": {"warmup_steps": 5, "min_ratio": 0.1}},
        "batch": {"per_rank": 3},
        "stages": [{"fit": {"steps": STEPS}}],
        "checkpoint": {"directory": str(folder / "checkpoints")},
    }


def largest_difference(found, expected):
    assert found.keys() == expected.keys()
    return max((found[name] - expected[name]).abs().max().item() for name in expected)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_groups_equal_pytorchs(muster, tmp_path, optimizer):
    spec = job(tmp_path, OPTIMIZERS[optimizer])
    muster.run(spec, f"groups-{optimizer}")
    expected = reference.train(spec)
    assert muster.losses(f"groups-{optimizer}") == pytest.approx(expected.losses, rel=0, abs=1e-6)
    (folder,) = checkpoints.all_steps(tmp_path / "checkpoints", f"groups-{optimizer}").values()
    found = checkpoints.parameters(folder)
    assert largest_difference(found, expected.parameters[STEPS]) <= 1e-6

    # Each group matters: without it the end is elsewhere.
    groups = spec["optimizer"]["groups"]
    for left_out in range(len(groups)):
        kept = groups[:left_out] + groups[left_out + 1 :]
        other = reference.train(spec | {"optimizer": spec["optimizer"] | {"groups": kept}})
        assert largest_difference(found, other.parameters[STEPS]) > 1e-5, groups[left_out]


def test_nesterov_is_not_plain_momentum(muster, tmp_path):
    plain = {"sgd": OPTIMIZERS["sgd"]["sgd"] | {"nesterov": False}}
    spec = job(tmp_path, plain)
    muster.run(spec, "plain")
    expected = reference.train(spec)
    assert muster.losses("plain") == pytest.approx(expected.losses, rel=0, abs=1e-6)
    nesterov = reference.train(spec | {"optimizer": {"sgd": plain["sgd"] | {"nesterov": True}}})
    assert nesterov.losses != pytest.approx(expected.losses, rel=0, abs=1e-4)


def test_a_pattern_that_matches_nothing_fails_the_job_by_name(muster, tmp_path):
    groups = [{"match": "*.ln_1.wieght", "weight_decay": 0.0}]
    spec = job(tmp_path, {"sgd": {"lr": 0.1}, "groups": groups})
    with pytest.raises(cluster.JobFailed) as failure:
        muster.run(spec, "nothing")
    assert "optimizer.groups[0].match: found '*.ln_1.wieght'" in str(failure.value)
