"""A job that FAILED, and its user knows why: it continues with other settings."""

import csv
import io

import pytest

from tests.process import harness, paced_job
from tests.process.small_job import get

RATE = "optimizer.adamw.lr"
STEPS = 16


@pytest.fixture
def cluster(muster):
    """musterd with two slots."""
    muster.daemon = muster.musterd(local_slots=2)
    yield muster
    muster.stop(muster.daemon)
    muster.assert_no_process()


def submit(muster, **changes):
    changes = {
        "world_size": 2,
        "stages": [{"fit": {"steps": STEPS}}],
        "optimizer": {"adamw": {"lr": 1.0e-3}},
        "schedule": None,
        "checkpoint": {"directory": "checkpoints", "every_steps": 5, "keep": 5},
        "restart": {"max_restarts": 0},
        "export": None,
    } | changes
    muster.cli("submit", paced_job.write_job(muster.folder, 5, **changes), "--id", "job")


def fail_by_nan(muster):
    """FAILED after step 12 by a live change of the rate; an earlier change is in the checkpoints
    of steps 5 and 10."""
    submit(muster, stages=[{"fit": {"steps": STEPS}}])
    muster.cli("pause", "job", "--at-step", 2, "--wait")
    muster.cli("set-lr", "job", "0.5", "--at-step", 3)
    muster.cli("set-lr", "job", "1e30", "--at-step", 12)
    muster.cli("resume", "job")
    assert muster.cli("wait", "job", expect=None).code == 100
    assert "finite" in get(muster, "job")["state_reason"]


def rates(muster):
    """The rate of each step."""
    table = csv.DictReader(io.StringIO(muster.cli("metrics", "job", "-o", "csv").out))
    return {int(row["step"]): float(row["learning_rate"]) for row in table}


def test_a_job_that_failed_by_nan_continues_with_another_rate(cluster):
    """Muster issue 49: set-lr says "is FAILED already", and retry repeats the failure."""
    fail_by_nan(cluster)
    said = cluster.cli("set-lr", "job", "1e-4", expect=None).err
    assert "muster retry job" in said and "--set" in said, said
    assert cluster.cli("retry", "job", "--wait", expect=None).code == 100
    cluster.cli("retry", "job", "--set", f"{RATE}=1e-4", "--set", "clip_grad_norm=2", "--wait")
    # Neither the rate that a checkpoint has nor the change after it counts any more.
    assert {step: rate for step, rate in rates(cluster).items() if step > 10} == {
        step: 1e-4 for step in range(11, STEPS + 1)
    }
    # Who, what, and from which attempt on, also after a restart of musterd.
    cluster.stop(cluster.daemon)
    cluster.daemon = cluster.musterd(local_slots=2)
    job = get(cluster, "job")
    changes = [
        (change["path"], change["old_value"], change["new_value"], change["attempt"])
        for change in job["setting_changes"]
    ]
    assert changes == [("clip_grad_norm", "1", "2", 3), (RATE, "0.001", "0.0001", 3)], changes
    assert job["setting_changes"][0]["requester"]
    assert job["spec"]["optimizer"]["adamw"]["lr"] == 1e-4
    shown = cluster.cli("get", "job").out
    assert f"{RATE}: 0.001 -> 0.0001, since attempt 3, by " in shown, shown


def test_a_retry_may_begin_with_an_earlier_checkpoint_and_set_lr_counts_after_it(cluster):
    """Muster issue 49: retry JOB --set ... --from STEP; the newest decision wins."""
    fail_by_nan(cluster)
    said = cluster.cli("retry", "job", "--from", 7, expect=None).err
    assert "5, 10" in said, said
    more = ("--set", "stages[0].fit.steps=2000")
    cluster.cli("retry", "job", "--set", f"{RATE}=1e-4", "--from", 5, *more)
    at = int(cluster.cli("set-lr", "job", "2e-4", "--wait", "-o", "json").json()["applied_at_step"])
    assert {step: rate for step, rate in rates(cluster).items() if 5 < step <= at} == {
        step: 1e-4 for step in range(6, at + 1)
    }
    cluster.cli("stop", "job", "--wait", expect=None)
    done = int(get(cluster, "job")["step"])
    cluster.cli("retry", "job")
    harness.eventually(lambda: int(get(cluster, "job")["step"]) > done, "it trains again")
    cluster.cli("stop", "job", "--wait", expect=None)
    assert rates(cluster)[done + 1] == 2e-4


def test_what_may_not_change_is_refused_by_name_and_all_at_once(cluster):
    """Muster issue 49: what may not change is refused by name."""
    fail_by_nan(cluster)
    given = [
        "name=other",
        "world_size=1",
        "checkpoint.directory=elsewhere",
        "model.plugin.options.width=64",
        "data.train.npy.inputs=[other.npy]",
        "optimizer={sgd: {lr: 0.1}}",
    ]
    sets = [word for setting in given for word in ("--set", setting)]
    refused = cluster.cli("retry", "job", *sets, expect=2).err
    for path in ("name", "world_size", "checkpoint.directory", "model", "data.train", "optimizer"):
        assert path in refused, refused
    assert "start.checkpoint" in refused, refused
    sets = ("--set", f"{RATE}=fast", "--set", "optimizer.adamw.momentum=1")
    refused = cluster.cli("retry", "job", *sets, expect=2).err
    assert f"{RATE}: found 'fast'" in refused and "momentum" in refused, refused
    refused = cluster.cli("retry", "job", "--set", "stages[0].fit.steps=9", expect=2).err
    assert "nothing would be trained" in refused, refused
    job = get(cluster, "job")
    assert (job["state"], int(job["attempt"])) == ("FAILED", 1), job
