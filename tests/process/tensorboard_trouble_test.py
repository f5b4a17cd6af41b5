"""`metrics: {tensorboard: DIR}` on a file system that is full, that vanishes, or on which nothing
may be written: training goes on, the job says so, and what can be written later is written later.
"""

import subprocess

import pytest

from tests.process import event_files, harness, jobs
from tests.process.disks import make_disk  # noqa: F401
from tests.process.tensorboard_jobs import (
    await_held,
    check,
    cluster,  # noqa: F401
    folder,
    get,
    submit,
)


def events(muster, job):
    """The texts of the job's events about its event files, by reason."""
    found = {}
    for event in get(muster, job).get("events", []):
        if event["reason"].startswith("TENSORBOARD"):
            found.setdefault(event["reason"], []).append(event["message"])
    return found


def await_event(muster, job, reason):
    return harness.eventually(
        lambda: events(muster, job).get(reason), f"{reason}\n{muster.log()}"
    )[-1]


def last_step(muster, job):
    return event_files.read(folder(muster, job))["train/loss"][-1][0]


def is_in_files(muster, job, step):
    if not folder(muster, job).exists():
        return False
    losses = event_files.read(folder(muster, job)).get("train/loss", [])
    return bool(losses) and losses[-1][0] == step


def begin(muster, *holds, **changes):
    submit(muster, "job", **{"stages": [{"fit": {"steps": 60}}]} | changes)
    for hold in holds:
        muster.cli("pause", "job", "--at-step", hold)
    muster.agent("node", slots=2)
    await_held(muster, "job", holds[0])


def go_on_to(muster, hold):
    muster.cli("resume", "job", "--wait")
    await_held(muster, "job", hold)


def test_a_full_disk_is_told_and_made_up_for(cluster, make_disk):  # noqa: F811
    muster, disk = cluster, make_disk("logs", "1m")
    begin(muster, 7, 43)
    disk.fill()
    go_on_to(muster, 43)
    told = await_event(muster, "job", "TENSORBOARD_FAILED")
    assert "No space left on device" in told and "node" in told and "training goes on" in told
    assert last_step(muster, "job") < 43, "the disk was full"
    disk.free()
    assert "missing" not in await_event(muster, "job", "TENSORBOARD_WORKS_AGAIN")
    muster.cli("resume", "job")
    muster.cli("wait", "job")
    found = check(muster, "job")
    assert [step for step, _ in found["train/loss"]] == list(range(1, 61))
    assert len(event_files.files(folder(muster, "job"))) == 2
    assert get(muster, "job")["generation"] == "1"
    assert {reason: len(texts) for reason, texts in events(muster, "job").items()} == {
        "TENSORBOARD_FAILED": 1,
        "TENSORBOARD_WORKS_AGAIN": 1,
    }


def test_a_mount_that_vanishes_is_told_and_made_up_for(cluster, make_disk):  # noqa: F811
    muster, disk = cluster, make_disk("logs", "1m")
    begin(muster, 7, 43)
    disk.take_away()
    go_on_to(muster, 43)
    await_event(muster, "job", "TENSORBOARD_FAILED")
    assert list(disk.folder.iterdir()) == [], "nothing is written below the place of the mount"
    disk.bring_back()
    await_event(muster, "job", "TENSORBOARD_WORKS_AGAIN")
    muster.cli("resume", "job")
    muster.cli("wait", "job")
    found = check(muster, "job")
    assert [step for step, _ in found["train/loss"]] == list(range(1, 61))


def test_what_is_not_written_at_the_end_is_named(cluster, make_disk):  # noqa: F811
    muster, disk = cluster, make_disk("logs", "1m")
    begin(muster, 7, checkpoint=None)
    disk.fill()
    muster.cli("resume", "job")
    muster.cli("wait", "job")
    assert get(muster, "job")["state"] == "SUCCEEDED"
    told = await_event(muster, "job", "TENSORBOARD_INCOMPLETE")
    assert " to 60 may be missing" in told and "muster metrics" in told
    assert last_step(muster, "job") < 60


def test_a_generation_says_what_the_one_before_could_not_write(cluster, make_disk):  # noqa: F811
    muster, disk = cluster, make_disk("logs", "1m")
    begin(muster, 7, 43)
    # Event files are written in the background, and the mark of the pause comes before the numbers
    # of its step.
    harness.eventually(lambda: is_in_files(muster, "job", 7), "the files have step 7")
    disk.fill()
    go_on_to(muster, 43)
    await_event(muster, "job", "TENSORBOARD_FAILED")
    for process in muster.processes("muster-worker"):
        harness.kill(process.pid)
    await_held(muster, "job", 40, generation=2)
    # Only now: until it is killed, a rank may find room for one more step.
    newest = last_step(muster, "job")
    disk.free()
    told = await_event(muster, "job", "TENSORBOARD_INCOMPLETE")
    assert f"end with step {newest}, and this generation continues after step 40" in told, told
    muster.cli("resume", "job")
    muster.cli("wait", "job")
    steps = [step for step, _ in event_files.read(folder(muster, "job"))["train/loss"]]
    assert steps == [*range(1, newest + 1), *range(41, 61)]


def test_a_place_that_cannot_be_one_is_refused(cluster):  # noqa: F811
    muster = cluster
    (muster.folder / "file").write_text("mine")
    for place, problem in [
        ("file", "file is a file; choose another folder"),
        ("file/logs", "file is a file; choose another folder"),
        ("checkpoints", "which is checkpoint.directory"),
        ("checkpoints/logs", "which lies in checkpoint.directory"),
        ("", "metrics.tensorboard"),
    ]:
        job_file = jobs.write_job(muster.folder, metrics={"tensorboard": place})
        for command in ("validate", "submit"):
            refused = muster.cli(command, job_file, expect=2)
            assert "metrics.tensorboard" in refused.err and problem in refused.err, refused.err
    good = jobs.write_job(muster.folder, metrics={"tensorboard": "logs"})
    shown = muster.cli("validate", good, "-o", "json").json()
    assert shown["resolved"]["metrics"]["tensorboard"] == str(muster.folder / "logs")


def test_a_folder_that_may_not_be_written_fails_the_job_at_its_start(
    cluster, make_disk  # noqa: F811
):
    muster, disk = cluster, make_disk("logs", "1m")
    subprocess.run(["mount", "-o", "remount,ro", disk.folder], check=True)
    submit(muster, "job")
    muster.agent("node", slots=2)
    muster.cli("wait", "job", expect=None)
    job = get(muster, "job")
    assert job["state"] == "FAILED" and job["generation"] == "1", job
    reason = job["state_reason"]
    assert "metrics.tensorboard: rank 0 on node node" in reason, reason
    assert "Read-only file system" in reason and "choose another folder" in reason, reason


@pytest.mark.parametrize("replaced", ["the file", "the folder"])
def test_files_that_somebody_removes_are_begun_again(cluster, replaced):  # noqa: F811
    muster = cluster
    begin(muster, 7, 43)
    files = event_files.files(folder(muster, "job"))
    files[0].unlink()
    if replaced == "the folder":
        folder(muster, "job").rmdir()
    go_on_to(muster, 43)
    await_event(muster, "job", "TENSORBOARD_WORKS_AGAIN")
    muster.cli("resume", "job")
    muster.cli("wait", "job")
    steps = [step for step, _ in event_files.read(folder(muster, "job"))["train/loss"]]
    assert steps == list(range(steps[0], 61)) and steps[0] <= 8, "what is newer is there"
