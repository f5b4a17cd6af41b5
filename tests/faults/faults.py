"""The faults themselves. Each is a function (run, strike) that does it, proves that it happened, and takes it back; what it cannot
prove it refuses: NotHappened. Skipped: the machine cannot do it."""

import contextlib
import os
import pathlib
import random
import signal
import socket
import sqlite3
import subprocess
import shutil
import time

import grpc

from tests.faults import plans, world
from tests.faults.world import BOUND, ENDED
from tests.process import api, harness


class NotHappened(AssertionError):
    """The fault was not one: the run proves nothing."""


class Skipped(Exception):
    pass


def happened(condition, what):
    if not condition:
        raise NotHappened(f"the fault did not happen: {what}")


FAULTS = {}


def fault(function):
    FAULTS[function.__name__] = function
    return function


def running_job(run):
    job = run.world.get()
    happened(job.state not in ENDED, f"the job had already ended when it was to be struck ({job.state_reason})")
    return job


def targets_of(run, victim):
    """Processes, in an order that the plan's dice have mixed."""
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
        # With ranks, so that somebody is killed who works.
        if "muster-worker" in names:
            harness.eventually(lambda: len(run.world.workers()) >= 2, "both ranks have a process", BOUND)
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
        # As a machine is shut down: everybody gets it.
        run.dice.shuffle(targets)
    run.note(f"SIGTERM to {[target.pid for target in targets]}")
    for target in targets:
        with contextlib.suppress(ProcessLookupError):
            os.kill(target.pid, signal.SIGTERM)
    await_gone(run, targets)
    for child in [run.world.daemon, *run.world.agents.values()]:
        if child.pid in {target.pid for target in targets}:
            happened(child.returncode == 0, f"{child.args[0]} ended with {child.returncode} on SIGTERM, not with 0")
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
    harness.eventually(lambda: all(stat_state(t.pid) in ("T", "t", None) for t in targets), "they stand still", BOUND)
    if leases is not None:
        time.sleep(leases * run.lease)
        for target in targets:
            harness.kill(target.pid, signal.SIGCONT)
        return
    # For good: the job goes on with other processes, and who stands still is removed once that has happened.
    run.world.await_job(
        lambda job: job.generation > generation and job.state == api.Job.RUNNING, "it goes on without those that stand still"
    )
    for target in targets:
        harness.kill(target.pid)
    run.world.reap()
    run.world.start()


def partitioned(run, strike, cut, heal, evidence):
    job = running_job(run)
    leases = strike.how["leases"]
    run.note(f"{strike.how['way']} ways cut for {leases} leases")
    before = evidence()
    cut(to=strike.how["way"] in ("both", "to"), back=strike.how["way"] in ("both", "back"))
    time.sleep(leases * run.lease)
    lost = evidence() - before
    heal()
    happened(lost > 0, f"nothing was lost in {leases} leases of partition")
    if job.restarts == 0:
        run.planned()


@fault
def partition_by_proxy(run, strike):
    proxy = run.proxies[run.world.node_of(run.dice.randrange(2))]
    partitioned(run, strike, proxy.cut, proxy.heal, lambda: sum(proxy.held.values()))


@fault
def partition_by_network(run, strike):
    node = run.world.node_of(run.dice.randrange(2))
    network = run.network
    partitioned(
        run, strike, lambda **ways: network.cut(node, **ways), network.heal, lambda: network.lost(node)
    )


@fault
def mount_away(run, strike):
    run.world.await_saved(EVERY_SAVED)
    running_job(run)
    checkpoints, away = run.muster.folder / "checkpoints", run.muster.folder / "away"
    unmounted = strike.how["how"] == "unmount"
    if unmounted:
        # The same files through a second mount: what is taken away is the place, not the disk.
        away.mkdir()
        subprocess.run(["mount", "--bind", checkpoints, away], check=True)
        run.disk.unmount()
    else:
        os.rename(checkpoints, away)
    harness.kill(run.world.pid_of(run.dice.randrange(2)))
    job = run.world.await_job(
        lambda job: job.reason == "CHECKPOINTS_UNREADABLE" or job.state in ENDED, "it says that its checkpoints cannot be read"
    )
    happened(job.state not in ENDED, f"the job ended: {job.state_reason}")
    assert job.state == api.Job.PAUSED, f"CHECKPOINTS_UNREADABLE, but {api.Job.State.Name(job.state)}"
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


EVERY_SAVED = 5


@fault
def old_database(run, strike):
    run.world.await_saved(EVERY_SAVED)
    running_job(run)
    copy = run.muster.folder.parent / "backup.db"
    run.world.copy_database(copy)
    then = run.world.get().step
    run.world.await_saved(then + strike.how["later"])
    now = max(saved.step for saved in run.world.get().checkpoints)
    happened(now > then, "the store is no older than the folder")
    alive = strike.how["alive"]
    targets = run.world.processes_named("musterd") if alive else run.world.processes_named("musterd", "muster-agent", "muster-worker")
    for target in targets:
        harness.kill(target.pid)
    await_gone(run, targets)
    run.watcher.forget()
    run.world.restore_database(copy)
    run.note(f"the store is that of step {then}, the newest checkpoint that of step {now}")
    # The metrics between are lost with the newer store, and so are the steps at which commands took effect.
    run.lost_steps = range(then, now + 1)
    run.lost_commands = True
    generation = max(life.generation for life in run.world.lives())
    run.world.start()
    run.world.await_job(
        lambda job: job.state == api.Job.RUNNING and job.step > 0 and job.generation > generation or job.state in ENDED,
        f"a generation above {generation} trains",
    )
    first = min((entry.step for entry in run.world.client.metrics("job") if entry.generation > generation), default=None)
    if alive and first is not None:
        # They went on, and saved, until musterd was back.
        run.lost_steps = range(then, max(first, now + 1))
        assert first > now, f"I1: it went on with step {first}, although the folder held a checkpoint of step {now}"
        return
    assert first is None or first == now + 1, f"I1: it went on with step {first}, although the folder held a checkpoint of step {now}"


@fault
def damage(run, strike):
    """The newest checkpoint is damaged while nobody runs."""
    run.world.await_saved(2 * EVERY_SAVED)
    running_job(run)
    agents = run.muster.processes("muster-agent")
    for agent in agents:
        harness.kill(agent.pid)
    await_gone(run, agents)
    harness.eventually(lambda: not run.world.workers(), "workers end with their agents", BOUND)
    saves = run.muster.folder / "checkpoints" / "job"
    # What the coordinator knows: it may not have heard of a newer one.
    newest = max(run.world.get().checkpoints, key=lambda saved: saved.step)
    folder = saves / newest.path.rsplit("/", 1)[1]
    shard = folder / "rank-0.safetensors"
    if strike.how["how"] == "manifest":
        text = (folder / "MANIFEST.json").read_text()
        edited = text.replace(f'"step": {newest.step}', f'"step": {newest.step + 1000}', 1)
        edited = text.replace(f'"step":{newest.step}', f'"step":{newest.step + 1000}', 1) if edited == text else edited
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
        lambda job: job.generation > generation and job.state == api.Job.RUNNING and job.step > 0 or job.state in ENDED,
        "it goes on from the one before",
    )
    first = min((entry.step for entry in run.world.client.metrics("job") if entry.generation > generation), default=newest.step)
    assert first <= newest.step, f"I7: it went on with step {first}, from the damaged checkpoint of step {newest.step}"
    run.note(f"damaged {newest.path.rsplit('/', 1)[1]}, went on with step {first}; {job.state_reason}")


@fault
def full_checkpoint_disk(run, strike):
    running_job(run)
    run.disk.fill()
    job = run.world.await_job(
        lambda job: job.save_failure.count > 0 or job.state in ENDED, "GetJob shows that a save failed"
    )
    happened(job.state not in ENDED, f"the job ended: {job.state_reason}")
    assert "space" in job.save_failure.message.lower(), job.save_failure.message
    run.disk.free()
    run.planned()


@fault
def full_state_disk(run, strike):
    running_job(run)
    run.disk.fill()
    try:
        trouble = harness.eventually(
            lambda: run.world.daemon.poll() is not None or run.nodes().store_trouble.message, "ListNodes says that the store cannot be written", BOUND
        )
        assert run.world.daemon.poll() is None, f"musterd ended:\n{run.muster.log(10)}"
        run.note(f"store trouble: {trouble}")
        time.sleep(2.5 * run.lease)
        assert run.world.daemon.poll() is None, "musterd ended later"
    finally:
        run.disk.free()
    run.planned()


class Tracer:
    """strace on a program that runs, or over one that is started: it changes what a system call gives."""

    CALLS = "fsync,fdatasync"

    def __init__(self, run, inject, name="trace"):
        if shutil.which("strace") is None:
            raise Skipped("needs strace")
        self.log = run.muster.folder.parent / f"{run.muster.folder.name}.{name}"
        self.log.unlink(missing_ok=True)
        self.command = ["strace", "-f", "-qq", "-o", self.log, "-e", f"trace={self.CALLS}", "-e", f"inject={self.CALLS}:{inject}"]

    def attach(self, pid):
        self._process = subprocess.Popen([*map(str, self.command), "-p", str(pid)], stderr=subprocess.PIPE, text=True)

        def attached():
            status = pathlib.Path(f"/proc/{pid}/status").read_text()
            if self._process.poll() is not None:
                raise Skipped(f"strace cannot attach: {self._process.stderr.read()[:200]}")
            return "TracerPid:\t0\n" not in status

        harness.eventually(attached, "strace attaches", BOUND)

    def injected(self, word="INJECTED"):
        return self.log.read_text(errors="replace").count(word) if self.log.exists() else 0

    def close(self):
        self._process.send_signal(signal.SIGINT)
        self._process.wait(timeout=BOUND)
        self._process.stderr.close()


def traced_pid(run, victim):
    return run.world.pid_of_daemon() if victim == "musterd" else run.world.pid_of(run.dice.randrange(2))


@fault
def failing_fsync(run, strike):
    running_job(run)
    victim, times = strike.how["victim"], strike.how["times"]
    tracer = Tracer(run, f"error=EIO:when=1..{times}")
    tracer.attach(traced_pid(run, victim))
    try:
        # The job's steps make fsyncs of both.
        harness.eventually(lambda: tracer.injected() > 0, "an fsync fails", BOUND)
        if victim == "musterd":
            time.sleep(0.5)
            assert run.world.daemon.poll() is None, f"musterd ended:\n{run.muster.log(10)}"
    finally:
        tracer.close()
    run.note(f"{tracer.injected()} fsyncs of {victim} failed")
    run.planned()


@fault
def slow_fsync(run, strike):
    running_job(run)
    victim = strike.how["victim"]
    tracer = Tracer(run, f"delay_enter={1000 * strike.how['milliseconds']}")
    tracer.attach(traced_pid(run, victim))
    try:
        harness.eventually(lambda: tracer.injected("DELAYED") >= 3, "three fsyncs are slow", BOUND)
    finally:
        tracer.close()
    run.planned()


@fault
def kill_at_fsync(run, strike):
    """musterd is killed while it enters its n-th fsync after a start, for each of the numbers."""
    spec = running_job(run).spec
    cluster = run.world
    cluster.kill_daemon()
    for number in strike.how["numbers"]:
        tracer = Tracer(run, f"signal=SIGKILL:when={number}")
        cluster.daemon_prefix = tracer.command
        with contextlib.suppress(AssertionError):
            # It may die before it listens.
            cluster.start_daemon()
        attempts = 0
        while cluster.daemon.poll() is None:
            # Something durable, again and again: what is answered has to be there for good.
            attempts += 1
            happened(attempts < 2000, f"musterd came to no fsync number {number}")
            with contextlib.suppress(grpc.RpcError):
                run.acknowledge_a_job(spec)
        # strace ends as what it traced has ended.
        happened(cluster.daemon.returncode == -signal.SIGKILL, f"musterd ended with {cluster.daemon.returncode}, not at fsync {number}")
        run.note(f"killed at fsync {number}")
        cluster.daemon_prefix = ()
        cluster.start_daemon()
        run.assert_acknowledged_jobs()
        cluster.kill_daemon()
    cluster.start()


@fault
def garbage(run, strike):
    """Connections that say nothing, nonsense, or half of something."""
    job = running_job(run)
    host, port = run.muster.address.rsplit(":", 1)
    dice = random.Random(run.plan.seed)
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    connections, sent, refused = [], 0, 0
    for number in range(120):
        connection = socket.create_connection((host, int(port)), timeout=10)
        connections.append(connection)
        text = [
            b"",
            dice.randbytes(dice.randrange(1, 4000)),
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            preface,
            preface + dice.randbytes(600),
            # A frame of 16 MiB that never comes.
            preface + b"\xff\xff\xff\x00\x00\x00\x00\x00\x01" + bytes(100),
        ][number % 6]
        with contextlib.suppress(OSError):
            connection.sendall(text)
            sent += len(text)
    for connection in connections:
        connection.settimeout(0.05)
        with contextlib.suppress(OSError):
            if connection.recv(1 << 12):
                refused += 1
    happened(sent > 10000 and refused > 0, f"{sent} bytes sent, {refused} answers")
    time.sleep(1.5 * run.lease)
    for connection in connections:
        connection.close()
    now = run.world.get()
    assert (now.generation, now.restarts) == (job.generation, job.restarts), "strangers' connections ended a generation"
    run.planned()


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
    """The coordinator is down until training has come to its end, and then for the rest of the time."""
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
        lambda: any(path.name.startswith(last) and ".tmp" not in path.name for path in saves.iterdir()),
        "training comes to its end without a coordinator", BOUND,
    )
    run.note(f"trained to its end {time.monotonic() - began:.1f} s after the coordinator's death")
    time.sleep(max(0, began + leases * run.lease - time.monotonic()))
    run.world.start_daemon()
    run.planned()


@fault
def hang(run, strike):
    """The plug-in's thread has stood still since its step; heartbeats go on."""
    place = run.muster.folder / "fault"
    pid = int(harness.eventually(lambda: place.exists() and place.read_text().strip(), "a thread stands still", BOUND))
    rank = next((rank.rank for rank in run.world.get().ranks if rank.pid == pid), None)
    happened(rank is not None, "nobody knows who stands still")
    began = time.monotonic()
    job = run.world.await_job(lambda job: job.HasField("failure") or job.state in ENDED, "it is found")
    run.note(f"found after {time.monotonic() - began:.1f} s")
    assert job.failure.rank == rank, f"rank {rank} stood still, rank {job.failure.rank} was blamed: {job.failure.reason}"
