"""Tests of a job's best checkpoint with real programs, while the coordinator is killed, or the
folder of checkpoints is lost. The checkpoint stays the best, and its weights can be exported."""

import signal

import pytest

from tests import exports
from tests.process import api, harness, paced_job

ROWS = {"npy": {"inputs": ["inputs.npy"], "labels": ["labels.npy"]}}
STEPS, REST = 12, 6


def write_job(muster, name, stages, more_options=None, **changes):
    """Its checkpoints that are not the best one are soon replaced."""
    return paced_job.write_job(
        muster.folder,
        pace_ms=1,
        name=f"{name}.yaml",
        more_options=more_options,
        data={"train": ROWS, "validate": ROWS, "test": ROWS},
        schedule=None,
        optimizer={"adamw": {"lr": 0.02}},
        stages=stages,
        checkpoint={"directory": "checkpoints", "every_steps": 3, "keep": 1},
        **({"export": {"path": f"{name}.safetensors", "from": "best"}} | changes),
    )


def run(muster, name, stages, **changes):
    muster.cli("submit", write_job(muster, name, stages, **changes), "--id", name)
    muster.cli("wait", name)


def best_of(client, name):
    """(step, generation) of those that are marked, of which the last one counts."""
    return [(one.step, one.generation) for one in client.get(name).checkpoints if one.best]


def weights(muster, name):
    return exports.contents(muster.folder / f"{name}.safetensors")


def names(folder):
    return sorted(path.name for path in folder.glob("step-*"))


@pytest.mark.parametrize("also", ["nobody", "workers"])
def test_one_that_is_written_while_the_coordinator_hears_nothing_is_the_best_one(muster, also):
    # Nobody ends because of the silence.
    muster.lease = "30s"
    stages = [{"fit": {"steps": STEPS, "validate_every": 1, "keep_best": {}}}]
    stages.append({"fit": {"steps": REST}})
    daemon = muster.musterd()
    agent = muster.agent("node", slots=2)
    client = api.Jobs(muster.address)
    run(muster, "undisturbed", stages)
    best = best_of(client, "undisturbed")[-1][0]
    assert 1 < best < STEPS + REST

    release = muster.folder / "release"
    hold = {"hold_step": best, "release": release}
    muster.cli("submit", write_job(muster, "job", stages, more_options=hold), "--id", "job")
    held = harness.eventually(
        lambda: (now := client.get("job")).step == best - 1 and now, "it is held before that step"
    )
    folder = muster.folder / "checkpoints" / "job"
    harness.kill(daemon.pid, signal.SIGSTOP)
    release.touch()
    written = f"step-{best}-g1"
    harness.eventually(lambda: written in names(folder), f"{written} is there\n{muster.log()}")
    if also == "workers":
        for rank in held.ranks:
            harness.kill(rank.pid)
    harness.kill(daemon.pid)
    daemon.wait(timeout=harness.BOUND)
    daemon = muster.musterd()
    muster.cli("wait", "job")

    job = client.get("job")
    assert (job.state, job.step) == (api.Job.SUCCEEDED, STEPS + REST)
    assert job.restarts == (1 if also == "workers" else 0)
    assert best_of(client, "job")[-1] == (best, 1)
    assert written in names(folder)
    assert weights(muster, "job") == weights(muster, "undisturbed")
    losses = [
        [(one.step, one.loss) for one in client.metrics(name)] for name in ("job", "undisturbed")
    ]
    assert losses[0] == losses[1]
    client.close()
    muster.stop(agent, daemon)


def test_a_folder_that_is_lost_before_the_export_fails_the_job_until_it_is_back(muster):
    fit = {"steps": 10, "validate_every": 4, "keep_best": {}}
    stages = [{"fit": fit}, {"test": {}}]
    daemon = muster.musterd()
    client = api.Jobs(muster.address)
    muster.cli("submit", write_job(muster, "job", stages), "--id", "job")
    # Between the last step and what follows it.
    muster.cli("pause", "job", "--at-step", 10)
    agent = muster.agent("node", slots=2)
    harness.eventually(lambda: client.get("job").state == api.Job.PAUSED, "it is held")
    ((best, _),) = best_of(client, "job")
    assert best < 10
    checkpoints, away = muster.folder / "checkpoints", muster.folder / "away"
    checkpoints.rename(away)
    muster.cli("resume", "job")
    muster.cli("wait", "job", expect=100)
    job = client.get("job")
    assert (job.state, job.reason) == (api.Job.FAILED, "FINAL_SAVE_FAILED"), job
    path = str(checkpoints / "job" / f"step-{best}-g1")
    for part in ("export.path", path, "is not there", "`muster retry job` writes the export"):
        assert part in job.state_reason, job.state_reason
    assert not (muster.folder / "job.safetensors").exists()
    assert not checkpoints.exists(), "whoever mounts it again must find its place empty"

    away.rename(checkpoints)
    muster.cli("retry", "job")
    muster.cli("wait", "job")
    job = client.get("job")
    assert (job.state, job.generation) == (api.Job.SUCCEEDED, 2), job
    run(muster, "short", [{"fit": {"steps": best}}], export={"path": "short.safetensors"})
    assert weights(muster, "job") == weights(muster, "short")
    client.close()
    muster.stop(agent, daemon)
