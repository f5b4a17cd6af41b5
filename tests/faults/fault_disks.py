"""Faults of storage: unreachable or damaged checkpoints, an older database, full disks."""

import os
import subprocess
import time

from tests.faults.fault import fault, happened, running_job
from tests.faults.fault_processes import await_gone
from tests.faults.world import BOUND, ENDED
from tests.process import api, harness

EVERY_SAVED = 5


@fault
def mount_away(run, strike):
    run.world.await_saved(EVERY_SAVED)
    running_job(run)
    checkpoints, away = run.muster.folder / "checkpoints", run.muster.folder / "away"
    unmounted = strike.how["how"] == "unmount"
    if unmounted:
        # The same files through a second mount: the fault removes the mount, not the disk.
        away.mkdir()
        subprocess.run(["mount", "--bind", checkpoints, away], check=True)
        run.disk.unmount()
    else:
        os.rename(checkpoints, away)
    harness.kill(run.world.pid_of(run.dice.randrange(2)))
    job = run.world.await_job(
        lambda job: job.reason == "CHECKPOINTS_UNREADABLE" or job.state in ENDED,
        "it says that its checkpoints cannot be read",
    )
    happened(job.state not in ENDED, f"the job ended: {job.state_reason}")
    assert (
        job.state == api.Job.PAUSED
    ), f"CHECKPOINTS_UNREADABLE, but {api.Job.State.Name(job.state)}"
    harness.eventually(lambda: not run.world.workers(), "a job that halts has no process", BOUND)
    if unmounted:
        subprocess.run(["mount", "--bind", away, checkpoints], check=True)
        subprocess.run(["umount", "-l", away], check=True)
        away.rmdir()
    else:
        if checkpoints.exists():
            os.rename(checkpoints, run.muster.folder / "below")
        os.rename(away, checkpoints)
    run.muster.cli("resume", "job")


@fault
def old_database(run, strike):
    run.world.await_saved(EVERY_SAVED)
    running_job(run)
    copy = run.muster.folder.parent / "backup.db"
    # The copy knows this step, and perhaps later ones.
    known = run.world.get().step
    run.world.copy_database(copy)
    then = run.world.get().step
    run.world.await_saved(then + strike.how["later"])
    now = max(saved.step for saved in run.world.get().checkpoints)
    happened(now > then, "the store is no older than the folder")
    alive = strike.how["alive"]
    names = ("musterd",) if alive else ("musterd", "muster-agent", "muster-worker")
    targets = run.world.processes_named(*names)
    for target in targets:
        harness.kill(target.pid)
    await_gone(run, targets)
    run.watcher.forget()
    run.world.restore_database(copy)
    run.note(
        f"the store is that of step {known} to {then}, the newest checkpoint that of step {now}"
    )
    # The metrics between are lost with the newer store, and so are the steps at which commands
    # took effect.
    run.lost_steps = range(known, now + 1)
    run.lost_commands = True
    generation = max(life.generation for life in run.world.lives())
    run.world.start()
    run.world.await_job(
        lambda job: job.state == api.Job.RUNNING
        and job.step > 0
        and job.generation > generation
        or job.state in ENDED,
        f"a generation above {generation} trains",
    )
    first = first_step_above(run, generation)
    held = f"the folder held a checkpoint of step {now}"
    if alive and first is not None:
        # They went on, and saved, until musterd was back.
        run.lost_steps = range(known, max(first, now + 1))
        assert first > now, f"I1: it went on with step {first}, although {held}"
        return
    assert first is None or first == now + 1, f"I1: it went on with step {first}, although {held}"


def first_step_above(run, generation):
    """The smallest step that a later generation computed; None: there is none."""
    entries = run.world.client.metrics("job")
    return min((entry.step for entry in entries if entry.generation > generation), default=None)


@fault
def damage(run, strike):
    """Damages the newest checkpoint while no program runs."""
    run.world.await_saved(2 * EVERY_SAVED)
    running_job(run)
    agents = run.muster.processes("muster-agent")
    for agent in agents:
        harness.kill(agent.pid)
    await_gone(run, agents)
    harness.eventually(lambda: not run.world.workers(), "workers end with their agents", BOUND)
    saves = run.muster.folder / "checkpoints" / "job"
    # The newest checkpoint that the coordinator knows; a newer checkpoint may be unknown.
    newest = max(run.world.get().checkpoints, key=lambda saved: saved.step)
    folder = saves / newest.path.rsplit("/", 1)[1]
    shard = folder / "rank-0.safetensors"
    if strike.how["how"] == "manifest":
        text = (folder / "MANIFEST.json").read_text()
        edited = text.replace(f'"step": {newest.step}', f'"step": {newest.step + 1000}', 1)
        if edited == text:
            edited = text.replace(f'"step":{newest.step}', f'"step":{newest.step + 1000}', 1)
        happened(edited != text, f"no step in the manifest: {text[:200]}")
        (folder / "MANIFEST.json").write_text(edited)
    else:
        content = bytearray(shard.read_bytes())
        if strike.how["how"] == "byte":
            content[-1 - run.dice.randrange(64)] ^= 1 << run.dice.randrange(8)
        else:
            del content[-100:]
        shard.write_bytes(content)
    run.damaged = newest.path
    generation = max(life.generation for life in run.world.lives())
    run.world.start()
    job = run.world.await_job(
        lambda job: job.generation > generation
        and job.state == api.Job.RUNNING
        and job.step > 0
        or job.state in ENDED,
        "it goes on from the one before",
    )
    first = first_step_above(run, generation)
    first = newest.step if first is None else first
    assert (
        first <= newest.step
    ), f"I7: it went on with step {first}, from the damaged checkpoint of step {newest.step}"
    run.note(f"damaged {folder.name}, went on with step {first}; {job.state_reason}")


@fault
def full_checkpoint_disk(run, strike):
    running_job(run)
    assert run.disk.fill() > 0, "the disk was full before"

    def fails(job):
        # A save that was under way may remove an older checkpoint, and so make room.
        run.disk.fill()
        return job.save_failure.count > 0 or job.state in ENDED

    job = run.world.await_job(fails, "GetJob shows that a save failed")
    happened(job.state not in ENDED, f"the job ended: {job.state_reason}")
    assert "space" in job.save_failure.message.lower(), job.save_failure.message
    run.disk.free()
    run.planned()


@fault
def full_state_disk(run, strike):
    running_job(run)
    assert run.disk.fill() > 0, "the disk was full before"
    try:
        trouble = harness.eventually(
            lambda: run.world.daemon.poll() is not None or run.nodes().store_trouble.message,
            "ListNodes says that the store cannot be written",
            BOUND,
        )
        assert run.world.daemon.poll() is None, f"musterd ended:\n{run.muster.log(10)}"
        run.note(f"store trouble: {trouble}")
        time.sleep(2.5 * run.lease)
        assert run.world.daemon.poll() is None, "musterd ended later"
    finally:
        run.disk.free()
    run.planned()
