"""Tests of validation's decisions while real workers are killed. The stage ends at the same step as
in an undisturbed job, and the best checkpoint is the same."""

import pytest

from tests import exports
from tests.process import api, harness, paced_job

ROWS = {"npy": {"inputs": ["inputs.npy"], "labels": ["labels.npy"]}}
STEPS, REST = 24, 6


def write_job(muster, name, pace_ms, fit, **changes):
    return paced_job.write_job(
        muster.folder,
        pace_ms=pace_ms,
        name=f"{name}.yaml",
        data={"train": ROWS, "validate": ROWS},
        schedule=None,
        optimizer={"adamw": {"lr": 0.02}},
        stages=[{"fit": fit}, {"fit": {"steps": REST, "validate_every": 1}}],
        restart={"max_restarts": 20},
        **(
            {
                "checkpoint": {"directory": "checkpoints", "every_steps": 2, "keep": 2},
                "export": {"path": f"{name}.safetensors", "from": "best"},
            }
            | changes
        ),
    )


def seen(client, name):
    """The results that must not depend on kills."""
    job = client.get(name)
    assert job.state == api.Job.SUCCEEDED, job
    best = [one.step for one in job.checkpoints if one.best]
    losses = [(entry.step, entry.loss) for entry in client.metrics(name)]
    return job.step, job.total_steps, best[-1], losses


def early_stop(passes, patience, min_delta):
    best, wait = None, 0
    for step, loss in passes:
        if best is None or loss + min_delta < best:
            best, wait = loss, 0
            continue
        wait += 1
        if wait == patience:
            return step
    return None


# The largest loss is one of the first ones, the smallest one of the last.
@pytest.mark.parametrize("mode", ["max", "min"])
@pytest.mark.parametrize("strategy", [{"ddp": {}}, {"fsdp": {"unit": ["first", "second"]}}])
def test_kills_change_neither_the_end_of_a_stage_nor_the_best_checkpoint(muster, strategy, mode):
    daemon = muster.musterd(local_slots=2)
    client = api.Jobs(muster.address)

    def run(name, pace_ms, fit, kills=(), **changes):
        path = write_job(muster, name, pace_ms, fit, strategy=strategy, **changes)
        muster.cli("submit", path, "--id", name)
        for step in kills:
            job = harness.eventually(
                lambda: (now := client.get(name)).step >= step
                and now.state == api.Job.RUNNING
                and now,
                f"step {step}",
            )
            harness.kill(job.ranks[step % 2].pid)
            harness.eventually(
                lambda before=job: client.get(name).generation > before.generation,
                "the next generation",
            )
        muster.cli("wait", name)

    fit = {"steps": STEPS, "validate_every": 1}
    run("plain", 1, fit, export=None)
    passes = [
        (entry.step, entry.validation.loss)
        for entry in client.entries("plain")
        if entry.HasField("validation") and entry.step <= STEPS
    ]
    # Such that it ends near the middle.
    losses = [loss for _, loss in passes]
    ends = {
        early_stop(passes, 3, min_delta): min_delta
        for min_delta in (abs(one - other) for one in losses for other in losses)
    }
    end = min((end for end in ends if end), key=lambda end: abs(end - STEPS // 2))
    min_delta = ends[end]
    assert 5 < end < STEPS, passes
    fit |= {"early_stopping": {"patience": 3, "min_delta": min_delta}}
    fit |= {"keep_best": {"mode": mode}}
    run("undisturbed", 1, fit)
    expected = seen(client, "undisturbed")
    assert expected[:2] == (end + REST, end + REST)
    best = expected[2]
    # Kills before, at and after the best pass, in both stages.
    kills = {1, best - 1, best, best + 1, end - 1, end + 1}
    kills = sorted(step for step in kills if 1 <= step <= end + 1)
    run("killed", 80, fit, kills=kills)
    assert seen(client, "killed") == expected
    assert client.get("killed").restarts == len(kills)
    assert exports.contents(muster.folder / "killed.safetensors") == exports.contents(
        muster.folder / "undisturbed.safetensors"
    )
    shown = muster.cli("checkpoints", "list", "killed").out
    assert [line.split()[1] for line in shown.splitlines() if "the best one" in line] == [str(best)]
    assert "BEST" in muster.cli("get", "killed").out
    client.close()
    muster.stop(daemon)
