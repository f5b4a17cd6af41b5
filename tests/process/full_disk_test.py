"""Full disks: what is saved, what is reported, and in which state the job ends."""

import os

import pytest

from tests import exports
from tests.process import api, harness, jobs
from tests.process.disks import make_disk  # noqa: F401


@pytest.fixture
def running(muster):
    daemon = muster.musterd(local_slots=2)
    client = api.Jobs(muster.address)
    yield client
    client.close()
    muster.stop(daemon)


def submit(muster, job_file):
    return muster.cli("submit", job_file).out.strip()


def await_end(client, job):
    def ended():
        found = client.get(job)
        ends = (api.Job.SUCCEEDED, api.Job.FAILED, api.Job.CANCELLED)
        return found if found.state in ends else None

    return harness.eventually(ended, "the job ends")


def await_no_room(disk, client, job):
    """Keeps the disk full until no save finds room any more; returns the job. A failed save frees
    its own space, and an earlier good save frees the space of an older checkpoint. So the disk is
    filled again until three saves in a row have failed and one checkpoint is left."""

    def full():
        disk.fill()
        found = client.get(job)
        left = [path for path in disk.folder.glob(f"{job}/step-*") if path.suffix != ".tmp"]
        return found if found.save_failure.count >= 3 and len(left) == 1 else None

    return harness.eventually(full, "three saves in a row fail")


def test_a_full_disk_in_the_middle_is_seen_and_training_goes_on(muster, make_disk, running):
    disk = make_disk("checkpoints", "4m")
    checkpoint = {"directory": "checkpoints", "every_steps": 5, "keep": 1}
    job_file = jobs.write_job(
        muster.folder, checkpoint=checkpoint, stages=[{"fit": {"steps": 1000000}}], export=None
    )
    job = submit(muster, job_file)
    first = harness.eventually(lambda: running.get(job).checkpoints, "a checkpoint is written")[
        0
    ].step

    full = await_no_room(disk, running, job)
    assert full.state == api.Job.RUNNING
    assert full.reason == "SAVE_FAILED"
    assert "No space left on device" in full.save_failure.message
    assert "No space left on device" in full.state_reason and "saves failed" in full.state_reason
    assert f"the newest checkpoint is of step {full.checkpoints[-1].step}" in full.state_reason
    assert full.checkpoints[-1].step >= first
    told = [event for event in full.events if event.reason == "SAVE_FAILED"]
    assert (
        1 <= len(told) < full.save_failure.count
    ), "each failure of one kind is no event of its own"
    shown = muster.cli("get", job).out
    assert "failed saves" in shown and "SAVE_FAILED" in shown, shown
    assert "SAVE_FAILED" in muster.cli("list").out
    harness.eventually(lambda: running.get(job).step > full.step, "training goes on")

    disk.free()

    def works():
        found = running.get(job)
        newer = found.checkpoints and found.checkpoints[-1].step > full.save_failure.step
        return found if newer and not found.HasField("save_failure") else None

    good = harness.eventually(works, "the next save counts")
    assert good.reason == "" and good.state_reason == ""
    assert "SAVES_WORK_AGAIN" in [event.reason for event in good.events]
    assert good.generation == 1
    muster.cli("stop", job)
    end = await_end(running, job)
    assert end.state == api.Job.CANCELLED
    assert end.state_reason == "stopped as asked"


def test_a_best_checkpoint_that_finds_no_room_leaves_the_one_before(muster, make_disk):
    disk = make_disk("checkpoints", "4m")
    data = {"train": {"tokens": {"path": "train.bin", "dtype": "uint16"}}}
    data["validate"] = data["train"]

    def submit_job(name, fit, export):
        job_file = jobs.write_job(
            muster.folder,
            name=f"{name}.yaml",
            data=data,
            schedule=None,
            stages=[{"fit": fit}],
            checkpoint={"directory": "checkpoints", "keep": 1},
            export={"path": f"{name}.safetensors"} | export,
        )
        muster.cli("submit", job_file, "--id", name)

    daemon = muster.musterd()
    client = api.Jobs(muster.address)
    submit_job("job", {"steps": 10, "validate_every": 4, "keep_best": {}}, {"from": "best"})
    for step in (4, 8):
        muster.cli("pause", "job", "--at-step", step)
    agent = muster.agent("node", slots=2)

    def held_after(step):
        return harness.eventually(
            lambda: (now := client.get("job")).state == api.Job.PAUSED
            and now.step == step
            and (now.checkpoints if step == 4 else now.save_failure.count)
            and now,
            f"it is held after step {step}, and its save has ended",
        )

    def best_of(job):
        return [one.step for one in job.checkpoints if one.best]

    assert best_of(held_after(4)) == [4]
    disk.fill()
    muster.cli("resume", "job")
    full = held_after(8)
    assert "No space left on device" in full.save_failure.message
    assert full.save_failure.step == 8 and best_of(full) == [4]
    assert muster.files("checkpoints/job") == ["step-4-g1"], "nothing of the other one is left"
    losses = {
        entry.step: entry.validation.loss
        for entry in client.entries("job")
        if entry.HasField("validation")
    }
    assert losses[8] < losses[4], "it would be the best one"
    disk.free()
    muster.cli("resume", "job")
    job = await_end(client, "job")
    assert (job.state, job.generation) == (api.Job.SUCCEEDED, 1), job.state_reason
    assert best_of(job) == [4]
    assert muster.files("checkpoints/job") == ["step-10-g1", "step-4-g1"]
    submit_job("short", {"steps": 4}, {})
    assert await_end(client, "short").state == api.Job.SUCCEEDED
    assert exports.contents(muster.folder / "job.safetensors") == exports.contents(
        muster.folder / "short.safetensors"
    )
    client.close()
    muster.stop(agent, daemon)


def test_a_stop_whose_save_fails_says_so(muster, make_disk, running):
    disk = make_disk("checkpoints", "4m")
    checkpoint = {"directory": "checkpoints", "every_steps": 5, "keep": 1}
    job_file = jobs.write_job(
        muster.folder, checkpoint=checkpoint, stages=[{"fit": {"steps": 1000000}}], export=None
    )
    job = submit(muster, job_file)
    harness.eventually(lambda: running.get(job).checkpoints, "a checkpoint is written")
    await_no_room(disk, running, job)
    muster.cli("stop", job)
    end = await_end(running, job)
    assert end.state == api.Job.CANCELLED
    assert end.reason == "SAVE_FAILED"
    kept = end.checkpoints[-1]
    assert "No space left on device" in end.state_reason
    assert f"kept: the checkpoint of step {kept.step} in {kept.path}" in end.state_reason


def test_a_job_without_its_last_checkpoint_is_no_success(muster, make_disk, running):
    # There is space for the folder and its first files, but not for a checkpoint.
    make_disk("checkpoints", "128k")
    checkpoint = {"directory": "checkpoints", "keep": 1}
    job = submit(muster, jobs.write_job(muster.folder, checkpoint=checkpoint))
    end = await_end(running, job)
    assert end.state == api.Job.FAILED, end.state_reason
    assert end.reason == "FINAL_SAVE_FAILED"
    assert "the checkpoint at the end of training failed" in end.state_reason
    assert "No space left on device" in end.state_reason
    assert "no checkpoint is kept" in end.state_reason
    # The result of the training is still available.
    weights = str(muster.folder / "model.safetensors")
    assert os.path.exists(weights) and f"the weights are in {weights}" in end.state_reason
    assert end.generation == 1 and end.restarts == 0, "nothing is started anew"
    assert "FINAL_SAVE_FAILED" in muster.cli("get", job).out


def test_what_is_kept_is_named(muster, make_disk, running):
    disk = make_disk("checkpoints", "4m")
    checkpoint = {"directory": "checkpoints", "every_steps": 5, "keep": 1}
    job_file = jobs.write_job(
        muster.folder, checkpoint=checkpoint, stages=[{"fit": {"steps": 500}}], export=None
    )
    job = submit(muster, job_file)
    harness.eventually(lambda: running.get(job).checkpoints, "a checkpoint is written")
    await_no_room(disk, running, job)
    end = await_end(running, job)
    assert end.state == api.Job.FAILED, end.state_reason
    assert end.reason == "FINAL_SAVE_FAILED"
    kept = end.checkpoints[-1]
    assert f"kept: the checkpoint of step {kept.step} in {kept.path}" in end.state_reason
    muster.cli("checkpoints", "verify", kept.path)


def test_an_export_that_finds_no_room_fails_the_job(muster, make_disk, running):
    disk = make_disk("out", "64k")
    job = submit(muster, jobs.write_job(muster.folder, export={"path": "out/model.safetensors"}))
    end = await_end(running, job)
    assert end.state == api.Job.FAILED, end.state_reason
    assert end.reason == "FINAL_SAVE_FAILED"
    assert "export.path" in end.state_reason and "No space left on device" in end.state_reason
    assert "kept: the checkpoint of step 20" in end.state_reason
    assert os.listdir(disk.folder) == []


def test_predictions_that_find_no_room_fail_the_job(muster, make_disk, running):
    disk = make_disk("out", "64k")
    data = {"train": {"tokens": {"path": "train.bin", "dtype": "uint16"}}}
    data["predict"] = data["train"]
    stages = [{"fit": {"steps": 20}}, {"predict": {"output": "out/predictions.npy"}}]
    job = submit(muster, jobs.write_job(muster.folder, data=data, stages=stages, export=None))
    end = await_end(running, job)
    assert end.state == api.Job.FAILED, end.state_reason
    assert end.reason == "FINAL_SAVE_FAILED"
    assert "stages[1].predict.output" in end.state_reason
    assert "No space left on device" in end.state_reason
    assert "kept: the checkpoint of step 20" in end.state_reason
    assert end.generation == 1 and end.restarts == 0, "nothing is trained again"
    assert os.listdir(disk.folder) == []


def test_a_file_of_somebody_else_is_never_replaced(muster, running):
    theirs = muster.folder / "model.safetensors"
    theirs.write_text("the work of another year")
    job_file = jobs.write_job(muster.folder)
    for command in ("validate", "submit", "run"):
        refused = muster.cli(command, job_file, expect=2)
        assert "export.path" in refused.err and "overwrite: true" in refused.err, refused.err
    assert theirs.read_text() == "the work of another year"
    overwriting = {"path": "model.safetensors", "overwrite": True}
    job = submit(muster, jobs.write_job(muster.folder, export=overwriting))
    assert await_end(running, job).state == api.Job.SUCCEEDED
    # A file that a job of the same name wrote is replaced without an error.
    again = submit(muster, jobs.write_job(muster.folder))
    assert await_end(running, again).state == api.Job.SUCCEEDED
    other = jobs.write_job(muster.folder, name="other.yaml")
    other.write_text(other.read_text().replace("name: tiny", "name: other"))
    refused = muster.cli("submit", other, expect=2)
    assert "was written by the job 'tiny'" in refused.err, refused.err
