"""The rows of the table."""

import os
import pathlib
import signal
import statistics
import time

from tests.faults import fault_processes, lifespans
from tests.faults import world as w
from tests.faults.disks import Disk
from tests.faults.proxy import Proxy
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


@row("one SIGTERM to an agent (planned restart)")
def agent_terminated(muster):
    with cluster(muster, local=True) as world:
        world.start()
        submit(world, job_file(muster, options={"hold_step": 57}))
        world.await_step(12)
        # musterd's own agent: musterd starts it again.
        (agent,) = muster.processes("muster-agent")
        began = time.monotonic()
        os.kill(agent.pid, signal.SIGTERM)
        w.harness.eventually(lambda: fault_processes.gone(agent.pid), "the agent ends")
        took = time.monotonic() - began
        w.release(muster)
        job = world.await_end()
        world.stop()
        good = job.state == w.api.Job.SUCCEEDED and job.restarts == 0
        return f"the agent ended after {took:.2f} s; {told(job)}", good


@row("node whose worker cannot start beside a good idle one")
def broken_node(muster):
    broken = muster.folder / "broken-worker"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    with cluster(muster, nodes=("a-broken", "b-good")) as world:
        world.agent_options["a-broken"] = ("--worker", broken)
        world.start()
        harness.eventually(
            lambda: len(muster.cli("nodes", "-o", "json").json().get("nodes", [])) == 2,
            "both nodes are there",
        )
        began = time.monotonic()
        submit(world, job_file(muster, world_size=1, stages=[{"fit": {"steps": 20}}]))
        job = world.await_end()
        took = time.monotonic() - began
        world.stop()
        return f"after {took:.2f} s: {told(job)}", job.state == w.api.Job.SUCCEEDED


@row("musterd away longer than the lease, four times")
def musterd_away(muster):
    with cluster(muster) as world:
        world.start()
        submit(
            world, job_file(muster, options={"pace_ms": 20}, stages=[{"fit": {"steps": 100000}}])
        )
        job = world.await_step(3)
        for _ in range(4):
            world.kill_daemon()
            time.sleep(2.5 * 2)
            world.start_daemon()
            before = job.step
            # All processes are attached again, or the job has ended.
            job = world.await_job(
                lambda job: job.state == w.api.Job.RUNNING
                and job.step > before + 2
                or job.state in w.ENDED,
                "it trains on",
            )
            if job.state in w.ENDED:
                break
        good = job.state == w.api.Job.RUNNING and job.restarts == 0 and job.generation == 1
        text = told(job)
        muster.cli("stop", "job", expect=None)
        world.await_end()
        world.stop()
        return text, good


@row("validation longer than 30 leases")
def long_validation(muster):
    with cluster(muster) as world:
        world.start()
        from safetensors.torch import save_file
        import torch

        # 48 rows on each rank, 4 a batch, 3 s a batch: 36 s; 30 leases are 30 s.
        file = job_file(
            muster,
            options={"evaluation_ms": 3000},
            stages=[{"fit": {"steps": 10, "validate_every": 10}}],
            restart={"max_restarts": 1},
        )
        import yaml

        spec = yaml.safe_load(file.read_text())
        spec["data"]["validate"] = {"safetensors": {"path": "rows.safetensors"}}
        file.write_text(yaml.safe_dump(spec, sort_keys=False))
        submit(world, file)
        job = world.await_end(bound=200)
        world.stop()
        return told(job), job.state == w.api.Job.SUCCEEDED and job.restarts == 0


@row("agent cut off (partition), its workers too")
def cut_off(muster):
    with cluster(muster, nodes=("node-1", "node-2", "node-3")) as world:
        world.start_daemon()
        proxy = Proxy(muster.address)
        world.links["node-2"] = proxy.address
        for node in ("node-1", "node-2"):
            world.start_agent(node)
        submit(
            world,
            job_file(
                muster, options={"hold_step": 57, "pace_ms": 20}, stages=[{"fit": {"steps": 60}}]
            ),
        )
        world.await_step(5)
        # A node to which the ranks can move.
        world.start_agent("node-3")
        time.sleep(0.5)
        first = world.get().generation
        proxy.cut()
        job = world.await_job(
            lambda job: job.generation > first
            and job.state == w.api.Job.RUNNING
            or job.state in w.ENDED,
            "the job continues on other nodes",
        )
        time.sleep(5)
        proxy.heal()
        w.release(muster)
        job = world.await_end()
        world.stop()
        found = lifespans.overlaps(world.lives())
        both = [min(a.end_after, b.end_after) - max(a.start, b.start) for a, b in found]
        longest = max(both, default=0)
        stray = len(saves(muster.folder / "checkpoints/job")) - len(job.checkpoints)
        proxy.close()
        text = (
            f"{told(job)}; two generations were alive at once for {longest:.1f} s; "
            f"{stray} checkpoint directories left over"
        )
        good = job.state == w.api.Job.SUCCEEDED and job.restarts == 0
        return text, good and not found and stray == 0


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


@row("world_size 9999 on 2 slots, then a job of 1")
def too_big(muster):
    with cluster(muster) as world:
        world.start()
        big = job_file(muster, name="big.yaml", world_size=9999)
        submitted = muster.cli("submit", big, "--id", "big")
        submit(world, job_file(muster, world_size=1, stages=[{"fit": {"steps": 10}}]))
        try:
            job = world.await_end(bound=15)
            text = told(job)
            good = job.state == w.api.Job.SUCCEEDED
        except AssertionError:
            text, good = f"after 15 s: {told(world.get())}", False
        warned = "slots" in submitted.err + submitted.out
        muster.cli("stop", "big")
        if not good:
            muster.cli("stop", "job")
        world.stop()
        text = (
            f"the small one: {text}; "
            f"at submit the big one was {'warned of' if warned else 'not warned of'}"
        )
        return text, good and warned


@row("one thread hung, heartbeats go on")
def hung(muster):
    with cluster(muster) as world:
        world.start()
        options = {"fault": "hang", "fault_step": 12}
        file = job_file(
            muster, options=options, stages=[{"fit": {"steps": 20}}], watchdog={"no_progress": "6s"}
        )
        if muster.cli("validate", file, expect=None).code:
            file = job_file(muster, options=options, stages=[{"fit": {"steps": 20}}])
        submit(world, file)
        fault = muster.folder / "fault"
        w.harness.eventually(fault.exists, "the thread hangs")
        began = time.monotonic()
        culprit = int(w.harness.eventually(lambda: fault.read_text().strip(), "its pid"))
        ranks = {rank.pid: rank.rank for rank in world.get().ranks}
        job = world.await_job(
            lambda job: job.HasField("failure") or job.state in w.ENDED,
            "it is found",
            bound=w.BOUND,
        )
        took = time.monotonic() - began
        blamed = job.failure.rank
        reason = job.failure.reason
        job = world.await_end()
        world.stop()
        right = ranks.get(culprit) == blamed
        text = (
            f"found after {took:.1f} s ({took / 2:.0f} leases), rank {blamed} blamed, "
            f"rank {ranks.get(culprit)} hung ('{reason[:120]}'); {told(job)}"
        )
        return text, right and job.state == w.api.Job.SUCCEEDED and took < 20


@row("3000 commands on a job")
def many_commands(muster):
    with cluster(muster) as world:
        world.start()
        submit(world, job_file(muster, options={"hold_step": 58}))
        world.await_step(30)
        stub = world.client.control()
        pid = world.pid_of_daemon()

        def written():
            text = pathlib.Path(f"/proc/{pid}/io").read_text()
            return int(text.split("write_bytes: ")[1].split()[0])

        times, bytes_before = [], written()
        count = 3000
        for number in range(count):
            began = time.perf_counter()
            stub("SetLearningRate", job_id="job", learning_rate=1e-3, at_step=59)
            times.append(time.perf_counter() - began)
            if sum(times) > 120:
                break
        megabytes = (written() - bytes_before) / 1e6
        w.release(muster)
        job = world.await_end(bound=200)
        world.stop()
        first, last = (1000 * statistics.median(part) for part in (times[:100], times[-100:]))
        text = (
            f"{len(times)} commands: the first {first:.1f} ms, the last {last:.1f} ms each; "
            f"{megabytes:.0f} MB written; {told(job)}"
        )
        return text, last <= 3 * first


@row("kill -9 of a worker to the next finished step, 5 times")
def recovery(muster):
    with cluster(muster) as world:
        world.start()
        checkpoint = {"directory": "checkpoints", "every_steps": 50, "keep": 2}
        submit(
            world,
            job_file(
                muster,
                options={"pace_ms": 2},
                stages=[{"fit": {"steps": 1000000}}],
                export=None,
                restart={"max_restarts": 50},
                checkpoint=checkpoint,
            ),
        )
        world.await_saved(50)
        times = []
        for _ in range(5):
            job = world.get()
            began = time.monotonic()
            harness.kill(world.workers()[-1].pid)
            world.await_job(
                lambda now: now.generation > job.generation
                and now.step > 0
                and now.state == w.api.Job.RUNNING,
                "the next step",
            )
            times.append(time.monotonic() - began)
            step = world.get().step
            world.await_step(step + 60)
        muster.cli("stop", "job")
        world.await_end()
        world.stop()
        median = statistics.median(times)
        text = (
            f"median {median:.2f} s of {', '.join(f'{t:.2f}' for t in times)} "
            f"(load {os.getloadavg()[0]:.1f})"
        )
        return text, median < 5
