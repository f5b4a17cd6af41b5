"""Rows of the table: programs that are killed, stopped, cut off, or cannot start."""

import os
import signal
import statistics
import time

from tests.faults import fault_processes, lifespans
from tests.faults import world as w
from tests.faults.proxy import Proxy
from tests.faults.table_row import cluster, job_file, row, saves, submit, told
from tests.process import harness


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
