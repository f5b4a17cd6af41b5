"""Tests with a lost checkpoint folder, or with a coordinator's database that is lost or replaced by
an older one. No checkpoint is deleted, and no job starts from step 0 by itself. The job ends with
the same bits as without the fault."""

import json
import pathlib
import shutil
import struct

import pytest

from tests.process import api, harness, jobs

STEPS = 100
EVERY = 5


def write_job(muster):
    return jobs.write_job(
        muster.folder,
        stages=[{"fit": {"steps": STEPS}}],
        checkpoint={"directory": "checkpoints", "every_steps": EVERY, "keep": 3},
    )


def names(folder):
    """The complete checkpoints in a folder; empty if there is no folder."""
    return sorted(path.name for path in folder.glob("step-*") if ".tmp" not in path.name)


def result(muster, job_id):
    client = api.Jobs(muster.address)
    losses = [(step.step, struct.pack("<d", step.loss)) for step in client.metrics(job_id)]
    client.close()
    return losses, (muster.folder / "model.safetensors").read_bytes()


def job(muster, job_id="job"):
    return muster.cli("get", job_id, "-o", "json").json()


def await_paused(muster, wanted):
    """Waits until the job is halted after this many steps, with its processes."""
    harness.eventually(
        lambda: (found := job(muster))["state"] == "PAUSED"
        and not found.get("reason")
        and int(found["step"]) == wanted,
        f"the job is held after step {wanted}\n{muster.log()}",
    )


def start(muster, *holds):
    """Starts musterd, an agent, and the job, which is halted after each of these numbers of steps
    until it is resumed."""
    daemon = muster.musterd()
    muster.cli("submit", write_job(muster), "--id", "job")
    for hold in holds:
        muster.cli("pause", "job", "--at-step", hold)
    agent = muster.agent("node", slots=2)
    await_paused(muster, holds[0])
    return daemon, agent


def go_on_to(muster, hold):
    muster.cli("resume", "job")
    await_paused(muster, hold)


def end(muster):
    muster.stop(*(child for child in muster._children if child.poll() is None))
    muster.assert_no_process()


@pytest.fixture(scope="module")
def undisturbed(programs, tmp_path_factory):
    muster = harness.Muster(programs, tmp_path_factory.mktemp("undisturbed"))
    try:
        muster.musterd(local_slots=2)
        muster.cli("submit", write_job(muster), "--id", "job")
        muster.cli("wait", "job")
        calm = result(muster, "job")
        end(muster)
    finally:
        muster.close()
    return calm


def halt(muster):
    """Moves the job's folder away and kills a worker, so the job halts. Returns the folder, its new
    place, and its contents."""
    daemon, _ = start(muster, 17)
    folder, away = muster.folder / "checkpoints" / "job", muster.folder / "away"
    folder.rename(away)
    held = names(away)
    assert held
    harness.kill(muster.processes("muster-worker")[0].pid)
    halted = harness.eventually(
        lambda: (found := job(muster)).get("reason") == "CHECKPOINTS_UNREADABLE" and found,
        f"the job halts\n{muster.log()}",
    )
    assert halted["state"] == "PAUSED"
    assert halted.get("restarts", 0) == 1  # of the worker that was killed
    for part in (str(folder), "`muster resume job`", "--from DIR", "--from-scratch"):
        assert part in halted["state_reason"]
    assert not folder.exists(), "whoever mounts it again must find its place empty"
    assert muster.processes("muster-worker") == []
    assert muster.cli("nodes", "-o", "json").json()["nodes"][0]["slots_free"] == 2
    assert not any(checkpoint.get("bad_reason") for checkpoint in halted["checkpoints"])
    return daemon, folder, away, held


def test_a_folder_that_is_gone_halts_the_job_until_it_is_back(muster, undisturbed):
    daemon, folder, away, held = halt(muster)
    # The job does not start from step 0 after a restart of the coordinator or another request
    # either.
    harness.kill(daemon.pid)
    daemon.wait(timeout=harness.BOUND)
    muster.musterd()
    assert job(muster)["reason"] == "CHECKPOINTS_UNREADABLE"
    muster.cli("resume", "job")
    generation = int(job(muster)["generation"])
    harness.eventually(
        lambda: (found := job(muster)).get("reason") == "CHECKPOINTS_UNREADABLE"
        and int(found["generation"]) >= generation,
        "it halts again",
    )
    away.rename(folder)
    assert names(folder) == held
    muster.cli("resume", "job")
    muster.cli("wait", "job")
    ended = job(muster)
    assert ended.get("restarts", 0) == 1
    assert names(folder) == sorted(pathlib.Path(c["path"]).name for c in ended["checkpoints"])
    assert result(muster, "job") == undisturbed
    end(muster)


def test_a_user_may_start_it_from_step_0_and_all_files_are_kept(muster, undisturbed):
    _, folder, away, held = halt(muster)
    refused = muster.cli("resume", "job", "--from-scratch", "--from", "x", expect=2)
    assert "--from" in refused.err
    muster.cli("resume", "job", "--from-scratch")
    harness.eventually(lambda: folder.exists(), "the job starts from step 0")
    muster.cli("wait", "job")
    assert names(away) == held
    assert {name.split("-g")[1] for name in names(folder)}.isdisjoint(
        {name.split("-g")[1] for name in held}
    )
    listed = muster.cli("checkpoints", "list", "job").out
    assert "kept, does not count: the job was told to start again from step 0" in listed
    assert result(muster, "job") == undisturbed
    end(muster)


def test_somebody_may_name_a_copy_to_go_on_from(muster, undisturbed):
    _, folder, away, held = halt(muster)
    muster.cli("resume", "job", "--from", f"away/{held[-1]}/")
    muster.cli("wait", "job")
    assert names(away) == held
    assert result(muster, "job") == undisturbed
    end(muster)


def test_a_halted_job_stops_and_is_deleted_at_once(muster):
    halt(muster)
    muster.cli("stop", "job", "--wait")
    muster.cli("delete", "job")
    end(muster)


def restore_the_database(muster, meanwhile=lambda: None):
    """Makes a backup early; then the job continues through a restart, all programs are killed, and
    the backup is restored. Returns the contents of the folder at that time, and the job's
    generation."""
    folder = muster.folder / "checkpoints" / "job"
    daemon, agent = start(muster, 10, 60, 80)
    harness.kill(daemon.pid)
    daemon.wait(timeout=harness.BOUND)
    shutil.copytree(muster.state, muster.folder / "backup")
    daemon = muster.musterd()
    await_paused(muster, 10)
    meanwhile()
    go_on_to(muster, 60)
    # A generation that the backup does not know.
    before = int(job(muster)["generation"])
    harness.kill(muster.processes("muster-worker")[0].pid)
    harness.eventually(lambda: int(job(muster)["generation"]) > before, "the job starts again")
    await_paused(muster, 60)
    go_on_to(muster, 80)
    generation = int(job(muster)["generation"])
    for child in (daemon, agent):
        harness.kill(child.pid)
        child.wait(timeout=harness.BOUND)
    muster.assert_no_process()
    shutil.rmtree(muster.state)
    (muster.folder / "backup").rename(muster.state)
    return names(folder), generation


def newest(held):
    return max(int(name.split("-")[1]) for name in held)


def test_a_restored_database_does_not_cost_the_checkpoints_it_does_not_know(muster, undisturbed):
    held, generation = restore_the_database(muster)
    muster.musterd()
    assert int(job(muster)["step"]) < newest(held)
    # According to the backup the job is halted.
    muster.cli("resume", "job")
    muster.agent("node", slots=2)
    events = harness.eventually(
        lambda: [e for e in job(muster).get("events", []) if e["reason"] == "CHECKPOINT_ADOPTED"],
        f"the job goes on from what it finds\n{muster.log()}",
    )
    assert {event["message"].split("/")[-1].split(" ")[0] for event in events} == set(held)
    muster.cli("wait", "job")
    ended = job(muster)
    assert int(ended["generation"]) > generation, "above those that the backup did not know"
    losses, weights = result(muster, "job")
    calm_losses, calm_weights = undisturbed
    assert weights == calm_weights
    # Steps that only the lost rows knew are missing; all others are the same.
    assert set(losses) <= set(calm_losses)
    assert {number for number, _ in losses} >= set(range(newest(held) + 1, STEPS + 1))
    end(muster)


def test_a_command_after_the_restore_is_carried_out_although_its_number_was_used(muster):
    held, _ = restore_the_database(
        muster, meanwhile=lambda: muster.cli("set-lr", "job", "0.002", "--wait")
    )
    muster.musterd()
    given = muster.cli("set-lr", "job", "0.003", "-o", "json").json()
    assert given["name"] == "job/4", "the backup does not know the one that had this number"
    muster.cli("resume", "job")
    muster.agent("node", slots=2)
    muster.cli("wait", "job")
    renumbered = muster.cli("operation", "job/4", "-o", "json", expect=None).json()
    assert renumbered["error"]["reason"] == "OPERATION_RENUMBERED"
    operations = muster.cli("operations", "job", "-o", "json").json()["operations"]
    carried_out = [o for o in operations if o.get("kind") == "SET_LEARNING_RATE" and "result" in o]
    assert [o["result"]["learning_rate"]["new_rate"] for o in carried_out] == [0.003], json.dumps(
        operations, indent=1
    )
    assert int(carried_out[0]["applied_at_step"]) >= newest(held)
    end(muster)
