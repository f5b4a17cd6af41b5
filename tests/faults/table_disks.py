"""Rows of the table: checkpoints that are out of reach, an older database, full disks."""

import os
import time

from tests.faults import world as w
from tests.faults.disks import Disk
from tests.faults.table_row import cluster, job_file, row, saves, submit, told
from tests.process import harness


@row("checkpoint folder moved away (a mount that is gone at a restart), then back")
def folder_away(muster):
    with cluster(muster) as world:
        world.start()
        checkpoint = {"directory": "checkpoints", "every_steps": 5, "keep": 50}
        submit(world, job_file(muster, options={"hold_step": 32}, checkpoint=checkpoint))
        world.await_saved(30)
        checkpoints, away = muster.folder / "checkpoints", muster.folder / "away"
        before = saves(checkpoints / "job")
        first = world.get().generation
        os.rename(checkpoints, away)
        harness.kill(world.workers()[-1].pid)
        job = world.await_job(
            lambda job: job.reason == "CHECKPOINTS_UNREADABLE"
            or job.generation > first
            and (job.step and job.step < 30 or job.step > 31)
            or job.state in w.ENDED,
            "the next generation does something",
        )
        while_away = told(job)
        waited = job.reason == "CHECKPOINTS_UNREADABLE"
        w.release(muster)
        if waited:
            os.rename(away, checkpoints) if not checkpoints.exists() else back(away, checkpoints)
            muster.cli("resume", "job", expect=None)
        else:
            world.await_job(
                lambda job: job.step >= 12 or job.state in w.ENDED, "it goes on a little"
            )
            back(away, checkpoints)
            harness.kill(world.workers()[-1].pid) if world.workers() else None
        job = world.await_end()
        left = saves(checkpoints / "job")
        bad = [saved.path for saved in job.checkpoints if saved.bad_reason]
        world.stop()
        gone = [name for name in before if name not in left]
        text = (
            f"while it was away: {while_away}; then: {told(job)}; "
            f"of the {len(before)} checkpoints that were there "
            f"{len(gone)} are gone, {len(bad)} are marked bad"
        )
        return text, waited and not bad and not gone and w.state_name(job) == "SUCCEEDED"


def back(away, place):
    """The mount hides the files that were written below it."""
    os.rename(place, place.with_name("below"))
    os.rename(away, place)


@row("database restored from a backup at step 50, disk held the checkpoints of 185 to 195")
def old_database(muster):
    with cluster(muster) as world:
        world.start()
        steps = 220
        checkpoint = {"directory": "checkpoints", "every_steps": 5, "keep": 3}
        submit(
            world,
            job_file(
                muster,
                options={"hold_step": 198, "pace_ms": 4},
                stages=[{"fit": {"steps": steps}}],
                checkpoint=checkpoint,
            ),
        )
        world.await_saved(50)
        world.copy_database(muster.folder / "backup.db")
        world.await_saved(195)
        before = saves(muster.folder / "checkpoints/job")
        for process in muster.processes():
            harness.kill(process.pid)
        world.reap()
        world.restore_database(muster.folder / "backup.db")
        w.release(muster)
        world.start()
        job = world.await_job(
            lambda job: job.state == w.api.Job.RUNNING
            and job.step > 0
            or job.reason == "CHECKPOINTS_UNREADABLE"
            or job.state in w.ENDED,
            "it goes on",
        )
        job = world.await_end() if job.reason != "CHECKPOINTS_UNREADABLE" else job
        steps_seen = [entry.step for entry in world.client.metrics("job")]
        newest = max(first_steps(world).items())
        world.stop()
        text = (
            f"{told(job)}; before: {', '.join(before)}; "
            f"generation {newest[0]} began with step {newest[1]}; "
            f"metrics of {len(steps_seen)} of {steps} steps"
        )
        return text, w.state_name(job) == "SUCCEEDED" and newest[0] > 1 and newest[1] > 185


def first_steps(world):
    """The first step of each generation, of those whose steps were not computed again later."""
    first = {}
    for entry in world.client.metrics("job"):
        first.setdefault(entry.generation, entry.step)
    return first


@row("checkpoint disk full")
def checkpoint_disk_full(muster):
    disk = Disk(muster.folder / "checkpoints", size="2m")
    try:
        with cluster(muster) as world:
            world.start()
            checkpoint = {"directory": "checkpoints", "every_steps": 10, "keep": 2}
            submit(
                world,
                job_file(
                    muster,
                    options={"hold_step": 28, "pace_ms": 50},
                    stages=[{"fit": {"steps": 30}}],
                    checkpoint=checkpoint,
                ),
            )
            world.await_step(1)
            # A folder and a small file fit, a checkpoint does not.
            disk.fill(leave=16384)
            world.await_step(25)
            time.sleep(0.5)
            shown = muster.cli("get", "job", expect=None).out
            w.release(muster)
            job = world.await_end()
            world.stop()
            hint = [
                line.strip()
                for line in shown.splitlines()
                if "space" in line.lower() or "save" in line.lower()
            ]
            said = hint[0][:160] if hint else "says nothing of it"
            text = (
                f"`muster get` while it ran: {said}; {told(job)}; "
                f"{len(job.checkpoints)} checkpoints"
            )
            failed = job.state == w.api.Job.FAILED and job.reason == "FINAL_SAVE_FAILED"
            return text, bool(hint) and failed
    finally:
        disk.close()


@row("state disk full")
def state_disk_full(muster):
    disk = Disk(muster.folder / "state", size="80m")
    try:
        with cluster(muster) as world:
            world.start()
            submit(
                world,
                job_file(muster, options={"hold_step": 398}, stages=[{"fit": {"steps": 400}}]),
            )
            world.await_step(5)
            disk.fill()
            time.sleep(6)
            alive = world.daemon.poll() is None
            disk.free()
            if not alive:
                world.start_daemon()
            w.release(muster)
            job = world.await_end()
            complete = len(list(world.client.metrics("job"))) == 400
            world.stop()
            fate = "lived on" if alive else f"ended with {world.daemon.returncode}"
            metrics = "complete" if complete else "NOT complete"
            text = f"musterd {fate}; {told(job)}; metrics {metrics}"
            undisturbed = job.restarts == 0 and job.generation == 1
            return text, alive and job.state == w.api.Job.SUCCEEDED and undisturbed and complete
    finally:
        disk.close()
