"""Faults of processes: killed, terminated, stopped, several times in a row, down for a long time,
hanging."""

import contextlib
import os
import pathlib
import signal
import time

from tests.faults import plans, world
from tests.faults.fault import fault, happened, running_job
from tests.faults.world import BOUND, ENDED
from tests.process import api, harness


def targets_of(run, victim):
    """Processes, in a random order that the plan determines."""
    names = {
        "worker": ["muster-worker"],
        "workers": ["muster-worker"],
        "agent": ["muster-agent"],
        "musterd": ["musterd"],
        "all": ["musterd", "muster-agent", "muster-worker"],
    }[victim]
    if victim == "agent":
        # One with a rank: the loss of an idle one disturbs nobody.
        nodes = {rank.node for rank in run.world.get().ranks}
        found = [p for p in run.muster.processes("muster-agent") if p.option("--node") in nodes]
    else:
        # An agent with ranks, so that a process that works is killed.
        if "muster-worker" in names:
            harness.eventually(
                lambda: len(run.world.workers()) >= 2, "both ranks have a process", BOUND
            )
        found = run.world.processes_named(*names)
    run.dice.shuffle(found)
    if victim in ("worker", "agent"):
        found = found[:1]
    happened(found, f"there is no process to strike: {victim}")
    return found


def stat_state(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return None


def gone(pid):
    return stat_state(pid) in (None, "Z")


@fault
def kill(run, strike):
    running_job(run)
    targets = targets_of(run, strike.how["victim"])
    run.note(f"kill -9 of {[target.pid for target in targets]}")
    for target in targets:
        happened(not gone(target.pid) or len(targets) > 1, f"{target.pid} had ended before")
        harness.kill(target.pid)
    await_gone(run, targets)
    run.world.start()


def await_gone(run, targets):
    def ended():
        run.world.reap()
        return all(gone(target.pid) for target in targets)

    harness.eventually(ended, f"they end: {targets}", BOUND)
    for child in [run.world.daemon, *run.world.agents.values()]:
        if child.pid in {target.pid for target in targets}:
            child.wait(timeout=BOUND)


@fault
def terminate(run, strike):
    running_job(run)
    victim = strike.how["victim"]
    targets = targets_of(run, victim)
    if victim == "all":
        # Every process gets the signal, as in a shutdown of the machine.
        run.dice.shuffle(targets)
    run.note(f"SIGTERM to {[target.pid for target in targets]}")
    for target in targets:
        with contextlib.suppress(ProcessLookupError):
            os.kill(target.pid, signal.SIGTERM)
    await_gone(run, targets)
    for child in [run.world.daemon, *run.world.agents.values()]:
        if child.pid in {target.pid for target in targets}:
            happened(
                child.returncode == 0,
                f"{child.args[0]} ended with {child.returncode} on SIGTERM, not with 0",
            )
    if victim in ("agent", "musterd"):
        run.planned()
    run.world.start()


@fault
def stop(run, strike):
    running_job(run)
    leases = strike.how["leases"]
    targets = targets_of(run, strike.how["victim"])
    run.note(f"SIGSTOP of {[target.pid for target in targets]} for {leases} leases")
    generation = run.world.get().generation
    for target in targets:
        os.kill(target.pid, signal.SIGSTOP)
    harness.eventually(
        lambda: all(stat_state(t.pid) in ("T", "t", None) for t in targets),
        "they stand still",
        BOUND,
    )
    if leases is not None:
        time.sleep(leases * run.lease)
        for target in targets:
            harness.kill(target.pid, signal.SIGCONT)
        return
    # Without end: the job continues with other processes, and the stopped process is killed once
    # that has happened.
    run.world.await_job(
        lambda job: job.generation > generation and job.state == api.Job.RUNNING,
        "it goes on without those that stand still",
    )
    for target in targets:
        harness.kill(target.pid)
    run.world.reap()
    run.world.start()


@fault
def storm(run, strike):
    job = running_job(run)
    victim, times = strike.how["victim"], strike.how["times"]
    for _ in range(times):
        if victim == "musterd":
            run.world.kill_daemon()
        else:
            targets = run.muster.processes("muster-agent")
            for target in targets:
                harness.kill(target.pid)
            await_gone(run, targets)
        run.world.start()
        time.sleep(strike.how["milliseconds"] / 1000)
    if victim == "musterd":
        run.planned()
        run.note(f"generation {job.generation} before")


@fault
def outage(run, strike):
    """The coordinator is down until training has ended, and for the rest of the given time."""
    running_job(run)
    began = time.monotonic()
    leases = strike.how["leases"]
    run.world.kill_daemon()
    time.sleep(2 * run.lease)
    happened(run.world.workers(), "there was nobody left who could train on without a coordinator")
    world.release(run.muster)
    saves = run.muster.folder / "checkpoints" / "job"
    last = f"step-{plans.STEPS}-"
    harness.eventually(
        lambda: any(
            path.name.startswith(last) and ".tmp" not in path.name for path in saves.iterdir()
        ),
        "training comes to its end without a coordinator",
        BOUND,
    )
    run.note(f"trained to its end {time.monotonic() - began:.1f} s after the coordinator's death")
    time.sleep(max(0, began + leases * run.lease - time.monotonic()))
    run.world.start_daemon()
    run.planned()


@fault
def hang(run, strike):
    """The thread of the plug-in hangs from its step on; heartbeats continue."""
    place = run.muster.folder / "fault"
    pid = int(
        harness.eventually(
            lambda: place.exists() and place.read_text().strip(), "a thread stands still", BOUND
        )
    )
    rank = next((rank.rank for rank in run.world.get().ranks if rank.pid == pid), None)
    happened(rank is not None, "nobody knows who stands still")
    began = time.monotonic()
    job = run.world.await_job(
        lambda job: job.HasField("failure") or job.state in ENDED, "it is found"
    )
    run.note(f"found after {time.monotonic() - began:.1f} s")
    assert (
        job.failure.rank == rank
    ), f"rank {rank} stood still, rank {job.failure.rank} was blamed: {job.failure.reason}"
