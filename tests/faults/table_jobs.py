"""Rows of the table: jobs that are slow, hang, do not fit, or have very many commands."""

import pathlib
import statistics
import time

from tests.faults import world as w
from tests.faults.table_row import cluster, job_file, row, submit, told


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
