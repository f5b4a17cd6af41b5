#!/usr/bin/env python3
"""The cost of a fault: the time from the kill to the next finished step, and the number of steps
that are done again.

    bench/recovery/run.py [--programs DIR] [--plugin paced.so] [--kills 20] [--parts kill,vanish]
    [--lease 10s]

`kill`: kill -9 of one of two workers, in Muster and in PyTorch DDP under torchrun --max-restarts.
`vanish`: a host that is gone at once, with its network (namespaces, root), beside an idle one:
Muster alone."""

import argparse
import contextlib
import datetime
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.faults import programs as programs_by_hand  # noqa: E402

EVERY = 20
PACE_MS = 10
BOUND = 300.0


class Recovery:
    def __init__(self, seconds, lost):
        self.seconds, self.lost = seconds, lost


class Muster:
    """Two nodes of one slot each, and maybe an idle third; `network`: each in a namespace."""

    def __init__(self, programs, plugin, folder, lease, nodes, network=None):
        from tests.faults import world
        from tests.process import harness

        work = folder / "work"
        work.mkdir(parents=True)
        self.muster = harness.Muster(programs, work, lease=lease)
        more = {}
        if network is not None:
            more = {"listen": f"{network.host}:0", "more": ("--insecure",)}
        self.world = world.World(self.muster, nodes=nodes, **more)
        for node in nodes if network is not None else ():
            self.world.prefixes[node] = network.prefix(node)
            self.world.agent_options[node] = ("--host", network.addresses[node])
        self.world.start_daemon()
        for node in nodes[:2]:
            self.world.start_agent(node)
        job = world.write_job(
            self.muster,
            plugin,
            options={"pace_ms": PACE_MS},
            stages=[{"fit": {"steps": 10_000_000}}],
            export=None,
            checkpoint={"directory": "checkpoints", "every_steps": EVERY, "keep": 2},
            restart={"max_restarts": 1000},
        )
        self.muster.cli("submit", job, "--id", "job")
        self.world.await_saved(EVERY)
        for node in nodes[2:]:
            self.world.start_agent(node)

    def recover(self, strike):
        """Strikes between two checkpoints, and waits for the first step of a later generation."""
        job = self.world.get()
        self.world.await_step(job.step + EVERY + EVERY // 2)
        before = self.world.get()
        saved = max(checkpoint.step for checkpoint in before.checkpoints)
        began = time.monotonic()
        strike()
        newest = before.step
        while time.monotonic() < began + BOUND:
            # The rows of steps that are computed again are replaced.
            for entry in self.world.client.metrics("job", from_step=saved + 1):
                if entry.generation > before.generation:
                    return Recovery(time.monotonic() - began, max(0, newest - entry.step + 1))
                newest = max(newest, entry.step)
            time.sleep(0.005)
        raise RuntimeError(f"nothing went on in {BOUND} s:\n{self.muster.log()}")

    def kill(self):
        return self.recover(lambda: os.kill(self.world.workers()[-1].pid, signal.SIGKILL))

    def close(self):
        self.world.close()
        self.muster.close()


class Torchrun:
    """`as_shipped`: without the workaround of peer.py."""

    def __init__(self, folder, as_shipped=False):
        self._folder = folder
        folder.mkdir(parents=True)
        torchrun = pathlib.Path(sys.executable).with_name("torchrun")
        environment = os.environ | {
            "OMP_NUM_THREADS": "1",
            "MUSTER_BENCH_AS_SHIPPED": "1" if as_shipped else "0",
        }
        self._process = subprocess.Popen(
            [
                torchrun,
                "--standalone",
                "--nproc-per-node",
                "2",
                "--max-restarts",
                "1000",
                # The shortest that it takes: how often torchrun looks at its workers.
                "--monitor-interval",
                "0.1",
                ROOT / "bench/recovery/peer.py",
                folder,
                str(EVERY),
            ],
            env=environment,
            stdout=open(folder / "log", "wb"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._await(lambda steps: len(steps) > 2 * EVERY)

    def _steps(self):
        file = self._folder / "steps"
        lines = file.read_text().split("\n")[:-1] if file.exists() else []
        return [tuple(map(int, line.split())) for line in lines]

    def _await(self, condition, bound=BOUND):
        end = time.monotonic() + bound
        while not condition(self._steps()):
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(
                    f"torchrun did not go on:\n{(self._folder / 'log').read_text()[-2000:]}"
                )
            time.sleep(0.005)

    def kill(self, bound=BOUND):
        done = len(self._steps())
        self._await(lambda steps: len(steps) > done + EVERY + EVERY // 2)
        began = time.monotonic_ns()
        os.kill(int((self._folder / "pid-1").read_text()), signal.SIGKILL)
        # Rank 0 may finish the step that is under way.
        before = None

        def went_on(steps):
            nonlocal before
            after = [entry for entry in steps if entry[0] > began]
            for (_, one), (_, other) in zip(after, after[1:]):
                if other <= one:
                    return True
            return bool(after) and after[0][1] <= max(step for at, step in steps if at <= began)

        self._await(went_on, bound)
        steps = self._steps()
        newest = 0
        for at, step in steps:
            if at > began and step <= newest:
                return Recovery((at - began) / 1e9, newest - step + 1)
            newest = step if at <= began else max(newest, step)
        raise RuntimeError("nothing after the kill")

    def close(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        for rank in (0, 1):
            with contextlib.suppress(OSError, ValueError):
                os.kill(int((self._folder / f"pid-{rank}").read_text()), signal.SIGKILL)


def told(name, recoveries, note=""):
    seconds = sorted(recovery.seconds for recovery in recoveries)
    lost = [recovery.lost for recovery in recoveries]
    print(
        f"| {name} | {len(seconds)} | {statistics.median(seconds):.2f} | {seconds[0]:.2f} to "
        f"{seconds[-1]:.2f} "
        f"| {statistics.median(lost):.0f} (at most {max(lost)}) | {note} |",
        flush=True,
    )


def kills(arguments, programs, plugin, folder):
    arms = {
        "Muster": Muster(
            programs, plugin, folder / "muster", arguments.lease, ("node-1", "node-2")
        ),
        "torchrun --max-restarts, a prefix per generation": Torchrun(folder / "torchrun"),
    }
    recoveries = {name: [] for name in arms}
    try:
        for number in range(arguments.kills):
            for name in list(arms)[:: -1 if number % 2 else 1]:
                recoveries[name].append(arms[name].kill())
        for name, found in recoveries.items():
            told(
                f"kill -9 of a worker: {name}",
                found,
                f"checkpoint every {EVERY} steps of {PACE_MS} ms",
            )
    finally:
        for arm in arms.values():
            arm.close()
    if arguments.as_shipped:
        shipped = Torchrun(folder / "shipped", as_shipped=True)
        try:
            told("kill -9 of a worker: torchrun as shipped", [shipped.kill(bound=60)])
        except RuntimeError:
            print(
                "| kill -9 of a worker: torchrun as shipped | 1 | never in 60 s | | | stale "
                "addresses in the reused store |",
                flush=True,
            )
        finally:
            shipped.close()


def vanish(arguments, programs, plugin, folder):
    from tests.faults import network

    why = network.allowed()
    if why:
        print(f"| host vanished | 0 | | | | skipped: {why} |")
        return
    lease = float(arguments.lease.removesuffix("s"))
    found = []
    for number in range(arguments.vanish):
        nodes = ("node-1", "node-2", "node-3")
        made = network.Network(nodes)
        arm = Muster(programs, plugin, folder / f"vanish-{number}", arguments.lease, nodes, made)
        try:
            victim = arm.world.node_of(1)

            def strike():
                made.vanish(victim)
                for pid in made.processes(victim):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGSTOP)

            found.append(arm.recover(strike))
        finally:
            arm.close()
            made.close()
    told(
        "host vanished (its network, then its processes stand still), an idle one is there: Muster",
        found,
        f"lease {arguments.lease}: {statistics.median(r.seconds for r in found) / lease:.2f} "
        f"leases",
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--programs")
    parser.add_argument("--plugin")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--vanish", type=int, default=5)
    parser.add_argument("--parts", default="kill,vanish")
    parser.add_argument("--lease", default="10s")
    parser.add_argument(
        "--as-shipped", action="store_true", help="also torchrun without the workaround"
    )
    arguments = parser.parse_args()
    # SIGTERM raises, so that a terminated run ends its processes, too.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    with tempfile.TemporaryDirectory(prefix="muster-bench-recovery-") as name:
        folder = pathlib.Path(name)
        if not arguments.programs:
            targets = [
                "//client/cli:muster",
                "//coordinator:musterd",
                "//worker/agent:muster-agent",
                "//worker:muster-worker",
                "//tests/process:paced.so",
            ]
            subprocess.run(["bazel", "build", *targets], cwd=ROOT, check=True)
        plugin = programs_by_hand.use(arguments.plugin)
        from tests.parity import cluster

        programs = arguments.programs or cluster.install(
            lambda path: ROOT / "bazel-bin" / path, folder / "bin"
        )
        programs = programs_by_hand.check(programs)
        print(
            f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC, "
            f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.2f}, {' '.join(sys.argv)}\n"
        )
        print(
            "| what | times | median s to the next finished step | all | steps done again | "
            "|\n|---|---|---|---|---|---|",
            flush=True,
        )
        if "kill" in arguments.parts:
            kills(arguments, programs, plugin, folder)
        if "vanish" in arguments.parts:
            vanish(arguments, programs, plugin, folder)


if __name__ == "__main__":
    main()
