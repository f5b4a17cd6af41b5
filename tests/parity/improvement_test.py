"""Tests of early stopping and the best checkpoint, against the rules of Keras' EarlyStopping and
ModelCheckpoint in plain Python over the same losses. The weights that are exported of the best
checkpoint are those of a job that ends there, to the bit."""

import pytest

from tests import exports
from tests.parity import shared_cluster, workloads

muster = shared_cluster.with_slots(2)

STEPS = 30
STRATEGIES = {
    "ddp": {"ddp": {}},
    "sharded": {"sharded_ddp": {"bucket_mb": 0.005}},
    "fsdp": {"fsdp": {}},
}
# The settings of keep_best.
RULES = [
    {"metric": "loss"},
    {"metric": "accuracy"},
    {"metric": "top_k_accuracy"},
    {"metric": "loss", "mode": "max"},
]


def early_stop(passes, metric, patience, min_delta, mode="min"):
    """The step after which the callback ends training, or None."""
    best, wait = None, 0
    for step, measured in passes:
        value = measured[metric]
        if best is None or (
            value + min_delta < best if mode == "min" else value - min_delta > best
        ):
            best, wait = value, 0
            continue
        wait += 1
        if wait >= patience:
            return step
    return None


def best_steps(passes, metric, mode=None):
    """The steps whose pass is better than all before."""
    sign = -1 if (mode or ("min" if metric == "loss" else "max")) == "min" else 1
    steps, best = [], None
    for step, measured in passes:
        if best is None or sign * measured[metric] > best:
            best = sign * measured[metric]
            steps.append(step)
    return steps


def middle(passes, patience):
    """(the step after which the stage ends, with which min_delta), near the middle."""
    losses = [measured["loss"] for _, measured in passes]
    ends = {
        early_stop(passes, "loss", patience, min_delta): min_delta
        for min_delta in (abs(one - other) for one in losses for other in losses)
    }
    end = min((end for end in ends if end), key=lambda end: abs(end - STEPS // 2))
    return end, ends[end]


def validations(muster, name):
    """(step, measurements) of each pass."""
    return [
        (int(entry["step"]), entry["validation"])
        for entry in muster.entries(name)
        if "validation" in entry
    ]


def job_of(tmp_path, strategy, name):
    workload = workloads.mlp(tmp_path)
    return workload | {
        "world_size": 2,
        "strategy": STRATEGIES[strategy],
        "optimizer": {"adamw": {"lr": 0.01}},
        "batch": {"per_rank": 5},
        "stages": [{"fit": {"steps": STEPS, "validate_every": 1}}],
        "checkpoint": {"directory": str(tmp_path / "checkpoints"), "keep": 1},
        "export": {"path": str(tmp_path / f"{name}.safetensors"), "overwrite": True},
    }


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_stage_ends_and_the_best_checkpoint_is_where_python_says(muster, tmp_path, strategy):
    name = f"plain-{strategy}"
    job = job_of(tmp_path, strategy, name)
    muster.run(job, name)
    passes = validations(muster, name)
    losses = muster.losses(name)
    assert [step for step, _ in passes] == list(range(1, STEPS + 1))

    end, min_delta = middle(passes, patience=3)
    assert 5 < end < STEPS, passes
    until = passes[:end]
    for number, rule in enumerate(RULES):
        stopped = f"stopped-{strategy}-{number}"
        fit = {"steps": STEPS, "validate_every": 1, "keep_best": rule}
        fit["early_stopping"] = {"patience": 3, "min_delta": min_delta}
        export = {"path": str(tmp_path / f"{stopped}.safetensors"), "from": "best"}
        found = muster.run(job | {"stages": [{"fit": fit}], "export": export}, stopped)
        assert int(found["step"]) == end
        assert int(found["total_steps"]) == end, "the job is complete"
        assert muster.losses(stopped) == losses[:end]
        assert validations(muster, stopped) == until
        (told,) = [one for one in found["events"] if one["reason"] == "EARLY_STOPPED"]
        assert f"ends after step {end} instead of {STEPS}" in told["message"]

        best = best_steps(until, **rule)[-1]
        kept = {int(one["step"]): one.get("best", False) for one in found["checkpoints"]}
        assert kept == {end: end == best, best: True}
        # A job that ends at that step.
        short = f"short-{strategy}-{number}"
        export = {"path": str(tmp_path / f"{short}.safetensors")}
        muster.run(job | {"stages": [{"fit": {"steps": best}}], "export": export}, short)
        assert exports.contents(tmp_path / f"{stopped}.safetensors") == exports.contents(
            tmp_path / f"{short}.safetensors"
        )


def test_stages_after_one_that_ended_early_train_on(muster, tmp_path):
    job = job_of(tmp_path, "ddp", "probe")
    muster.run(job, "probe")
    end, min_delta = middle(validations(muster, "probe"), patience=2)
    assert 3 < end < STEPS
    rest = [{"validate": {}}, {"fit": {"steps": 4, "validate_every": 2}}]
    muster.run(job | {"stages": [{"fit": {"steps": end, "validate_every": 1}}, *rest]}, "known")
    fit = {"steps": STEPS, "validate_every": 1, "keep_best": {}}
    fit |= {"early_stopping": {"patience": 2, "min_delta": min_delta}}
    found = muster.run(job | {"stages": [{"fit": fit}, *rest]}, "unknown")
    assert int(found["step"]) == int(found["total_steps"]) == end + 4
    assert muster.losses("unknown") == muster.losses("known")
    assert validations(muster, "unknown") == validations(muster, "known")


def test_a_limited_stage_is_the_beginning_of_the_whole_one(muster, tmp_path):
    job = job_of(tmp_path, "ddp", "whole") | {"schedule": {"warmup_cosine": {"warmup_steps": 3}}}
    muster.run(job, "whole")
    fit = {"steps": STEPS, "validate_every": 1, "limit_steps": 6}
    found = muster.run(job | {"stages": [{"fit": fit}]}, "limited")
    assert int(found["step"]) == int(found["total_steps"]) == 6
    assert muster.losses("limited") == muster.losses("whole")[:6]
    assert validations(muster, "limited") == validations(muster, "whole")[:6]
