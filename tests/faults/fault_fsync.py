"""Faults of single system calls: an fsync that fails, that is slow, or during which the process is
killed."""

import contextlib
import pathlib
import shutil
import signal
import subprocess
import time

import grpc

from tests.faults.fault import Skipped, fault, happened, running_job
from tests.faults.world import BOUND
from tests.process import harness


class Tracer:
    """strace on a running program, or on one that it starts: changes the result of a system
    call."""

    CALLS = "fsync,fdatasync"

    def __init__(self, run, inject, name="trace"):
        if shutil.which("strace") is None:
            raise Skipped("needs strace")
        self.log = run.muster.folder.parent / f"{run.muster.folder.name}.{name}"
        self.log.unlink(missing_ok=True)
        self.command = [
            "strace",
            "-f",
            "-qq",
            "-o",
            self.log,
            "-e",
            f"trace={self.CALLS}",
            "-e",
            f"inject={self.CALLS}:{inject}",
        ]

    def attach(self, pid):
        command = [*map(str, self.command), "-p", str(pid)]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)

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
    if victim == "musterd":
        return run.world.pid_of_daemon()
    return run.world.pid_of(run.dice.randrange(2))


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
            # The coordinator may die before it listens.
            cluster.start_daemon()

        def ended():
            # Something durable, again and again: what is answered has to be there for good. A call
            # fails at once while the connection waits to be made again.
            with contextlib.suppress(grpc.RpcError):
                run.acknowledge_a_job(spec)
            return cluster.daemon.poll() is not None

        harness.eventually(ended, f"musterd comes to fsync number {number}", BOUND)
        # strace ends as what it traced has ended.
        happened(
            cluster.daemon.returncode == -signal.SIGKILL,
            f"musterd ended with {cluster.daemon.returncode}, not at fsync {number}",
        )
        run.note(f"killed at fsync {number}")
        cluster.daemon_prefix = ()
        cluster.start_daemon()
        run.assert_acknowledged_jobs()
        cluster.kill_daemon()
    cluster.start()
