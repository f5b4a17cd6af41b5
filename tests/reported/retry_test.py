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
    cluster.cli("retry", "job", "--set", f"{RATE}=1e-4", "--wait")
    # Neither the rate that a checkpoint has nor the change after it counts any more.
    assert {step: rate for step, rate in rates(cluster).items() if step > 10} == {
        step: 1e-4 for step in range(11, STEPS + 1)
    }


def test_the_change_is_recorded_and_shown_and_survives_a_restart(cluster):
    """Muster issue 49: who, what, and from which attempt on."""
    fail_by_nan(cluster)
    cluster.cli("retry", "job", "--set", f"{RATE}=1e-4", "--set", "clip_grad_norm=2", "--wait")
    cluster.stop(cluster.daemon)
    cluster.daemon = cluster.musterd(local_slots=2)
    job = get(cluster, "job")
    changes = [
        (change["path"], change["old_value"], change["new_value"], change["attempt"])
        for change in job["setting_changes"]
    ]
    assert changes == [("clip_grad_norm", "1", "2", 2), (RATE, "0.001", "0.0001", 2)], changes
    assert job["setting_changes"][0]["requester"]
    assert job["spec"]["optimizer"]["adamw"]["lr"] == 1e-4
    assert f"{RATE}: 0.001 -> 0.0001, since attempt 2" in cluster.cli("get", "job").out


def test_a_retry_may_begin_with_an_earlier_checkpoint(cluster):
    """Muster issue 49: retry JOB --set ... --from STEP."""
    fail_by_nan(cluster)
    said = cluster.cli("retry", "job", "--from", 7, expect=None).err
    assert "5, 10" in said, said
    cluster.cli("retry", "job", "--set", f"{RATE}=1e-4", "--from", 5, "--wait")
    assert {step: rate for step, rate in rates(cluster).items() if step > 5} == {
        step: 1e-4 for step in range(6, STEPS + 1)
    }


def test_a_later_change_of_the_rate_counts_and_stays(cluster):
    """Muster issue 49: the newest decision wins."""
    fail_by_nan(cluster)
    cluster.cli(
        *("retry", "job", "--set", f"{RATE}=1e-4"),
        *("--set", "stages[0].fit.steps=2000"),
    )
    cluster.cli("set-lr", "job", "2e-4", "--wait")
    cluster.cli("checkpoint", "job", "--wait")
    cluster.cli("stop", "job", "--wait", expect=None)
    cluster.cli("retry", "job")
    done = int(get(cluster, "job")["step"])
    harness.eventually(lambda: int(get(cluster, "job")["step"]) > done + 2, "it trains")
    assert rates(cluster)[int(get(cluster, "job")["step"])] == 2e-4
    cluster.cli("stop", "job", "--wait", expect=None)


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
    refused = cluster.cli("retry", "job", *sets, expect=2)
    for path in ("name", "world_size", "checkpoint.directory", "model", "data.train", "optimizer"):
        assert path in refused.err, refused.err
    assert "start.checkpoint" in refused.err, refused.err
    job = get(cluster, "job")
    assert (job["state"], int(job["attempt"])) == ("FAILED", 1), job


def test_wrong_settings_are_refused_with_what_is_allowed(cluster):
    """Muster issue 49: as in a job file."""
    fail_by_nan(cluster)
    sets = ("--set", f"{RATE}=fast", "--set", "optimizer.adamw.momentum=1")
    refused = cluster.cli("retry", "job", *sets, expect=2)
    assert f"{RATE}: found 'fast'" in refused.err and "momentum" in refused.err, refused.err
    refused = cluster.cli("retry", "job", "--set", "stages[0].fit.steps=9", expect=2)
    assert "nothing would be trained" in refused.err, refused.err
