"""Shared by measurements of step time: arms that run at the same time and are measured in turn.

All arms train without end, rank r on core r, with one thread. All arms except the measured arm are
stopped (SIGSTOP). A round measures one block of each arm; the order is reversed from round to
round. The step time of a block is the mean over its complete steps, without those that a stop
interrupted. bench/README.md says why."""

import contextlib
import dataclasses
import datetime
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import torch

from tests.parity import cluster

ROOT = pathlib.Path(__file__).resolve().parents[1]
WARM_UP_STEPS = 10
# A step that took longer had a stop in it; every arm rests at least GAP between two blocks.
STOPPED_SECONDS = 3.0
GAP = 4.0
# A round in which other processes used more, in any block, is void: decided without a look at its
# figures.
FOREIGN_CORES = 0.15
TICKS = os.sysconf("SC_CLK_TCK")


@dataclasses.dataclass
class Block:
    wall: float
    cpu: float  # seconds of all the arm's processes
    foreign: float  # CPU seconds of everything else on the machine
    sent: list = None  # bytes by rank, where somebody counts them


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def machine_cpu_seconds():
    """The CPU seconds that the machine was busy, including stolen ones."""
    user, nice, system, _, _, irq, softirq, steal, *_ = map(
        int, pathlib.Path("/proc/stat").read_text().split("\n")[0].split()[1:]
    )
    return (user + nice + system + irq + softirq + steal) / TICKS


def pin(pid, core):
    """Pins all threads; later threads inherit it."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        os.sched_setaffinity(int(thread), {core})


class Arm:
    """Ranks that train without end. `ranks`: their pids; `others`: pids whose CPU time counts
    too."""

    def __init__(self, name):
        self.name, self.ranks, self.others, self.blocks = name, [], [], []

    def signal(self, number):
        for pid in self.ranks:
            os.kill(pid, number)

    def cpu(self):
        return sum(map(cpu_seconds, self.ranks + self.others))

    def run_block(self, seconds):
        cpu, machine, start = self.cpu(), machine_cpu_seconds(), time.monotonic()
        self.signal(signal.SIGCONT)
        time.sleep(seconds)
        self.signal(signal.SIGSTOP)
        wall, cpu = time.monotonic() - start, self.cpu() - cpu
        self.blocks.append(Block(wall, cpu, max(0.0, machine_cpu_seconds() - machine - cpu)))

    def warm_up(self):
        while self.steps_done() < WARM_UP_STEPS:
            time.sleep(0.05)
        self.signal(signal.SIGSTOP)

    def results(self):
        """(seconds per step, CPU seconds per step) of each block."""
        means, current = [], []
        steps = self.step_seconds()
        # Steps during which an arm was stopped belong to the blocks, too: the next block finishes
        # them.
        self.steps_in_blocks = len(steps) - next(
            i for i, seconds in enumerate(steps) if seconds >= STOPPED_SECONDS
        )
        for seconds in steps + [float("inf")]:
            if seconds < STOPPED_SECONDS:
                current.append(seconds)
                continue
            means.append(statistics.fmean(current))
            current = []
        means = means[1:]  # the warm-up
        if len(means) != len(self.blocks):
            raise RuntimeError(
                f"{self.name}: {len(means)} runs of steps for {len(self.blocks)} blocks"
            )
        return [(mean, block.cpu * mean / block.wall) for mean, block in zip(means, self.blocks)]


class PyTorch(Arm):
    """`commands`: one per rank, each to be followed by the file to which a rank writes its steps: a
    line "<monotonic nanoseconds> <loss>" after each."""

    def __init__(self, name, commands, folder):
        super().__init__(name)
        folder.mkdir(exist_ok=True)
        self._outputs = [folder / f"rank{rank}" for rank in range(len(commands))]
        self._processes = []
        for rank, (command, output) in enumerate(zip(commands, self._outputs)):
            self._processes.append(
                subprocess.Popen(
                    ["taskset", "-c", str(rank % os.cpu_count()), *command, output],
                    cwd=ROOT,
                    env=cluster.environment(),
                    stderr=open(folder / f"rank{rank}.log", "wb"),
                )
            )
        self.ranks = [process.pid for process in self._processes]

    def steps_done(self):
        for process in self._processes:
            if process.poll() is not None:
                raise RuntimeError(f"{self.name}: a rank ended with {process.returncode}")
        return min(len(self._lines(rank)) for rank in range(len(self._processes)))

    def _lines(self, rank):
        output = self._outputs[rank]
        lines = output.read_text().split("\n")[:-1] if output.exists() else []
        return [line.split() for line in lines]

    def step_seconds(self):
        times = [int(line[0]) / 1e9 for line in self._lines(0)]
        return [after - before for before, after in zip(times, times[1:])]

    def losses(self):
        ranks = [
            [float(line[1]) for line in self._lines(rank)] for rank in range(len(self._processes))
        ]
        return [statistics.fmean(losses) for losses in zip(*ranks)]

    def close(self):
        for process in self._processes:
            process.kill()
            process.wait()


class Muster(Arm):
    """`started`: a cluster with a free slot for each of the job's ranks, and a lease that is longer
    than a stop. The arm closes the cluster. `agents`: returns their pids once the job runs; their
    CPU time and that of musterd count, too."""

    def __init__(self, name, job, started, agents):
        super().__init__(name)
        self._cluster = started
        try:
            self._cluster.submit(job, "bench")
            while self._job()["state"] != "RUNNING":
                time.sleep(0.1)
            self.ranks = [int(rank["pid"]) for rank in self._job()["ranks"]]
            for rank, pid in enumerate(self.ranks):
                pin(pid, rank)
            self.others = [self._cluster.pid, *agents()]
        except BaseException:
            self._cluster.close()
            raise

    @classmethod
    def local(cls, name, job, folder, programs):
        """On a musterd with local slots, over loopback."""
        started = cluster.Cluster(programs, folder, slots=job["world_size"], lease="1h")

        def agents():
            threads = pathlib.Path(f"/proc/{started.pid}/task").iterdir()
            children = " ".join((thread / "children").read_text() for thread in threads).split()
            assert len(children) == 1, children
            return map(int, children)

        return cls(name, job, started, agents)

    def _job(self):
        job = self._cluster.job("bench")
        if job["state"] not in ("QUEUED", "STARTING", "RUNNING"):
            raise RuntimeError(f"the job is {job['state']}: {job}\n{self._cluster.log('bench')}")
        return job

    def steps_done(self):
        return int(self._job().get("step", 0))

    def step_seconds(self):
        self._metrics = self._cluster.metrics("bench")
        return [float(re.fullmatch(r"([\d.]+)s", step["duration"])[1]) for step in self._metrics]

    def losses(self):
        return [step["loss"] for step in self._metrics]

    def close(self):
        """Ends the processes, even if musterd has already ended, which gets SIGHUP, too. Otherwise
        stopped workers, and agents that wait for them, would stay until their leases end."""
        self.signal(signal.SIGCONT)
        try:
            self._cluster.stop("bench")
        except cluster.JobFailed:
            for pid in [*self.ranks, *self.others]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._cluster.close()


def start(title, arms, make, name, *details):
    """Adds the arm `make(name, *details)`, warmed up and stopped."""
    print(f"{title}: starting {name}", file=sys.stderr)
    arms.append(make(name, *details))
    arms[-1].warm_up()


def run_rounds(title, arms, rounds, block_seconds, settle_seconds=0.0, bytes_sent=lambda: None):
    """Runs rounds until `rounds` of them were quiet, at most three times as many. Returns how many
    were run, and stores each arm's quiet blocks in `measured` (results) and `blocks_used`. If fewer
    than two were quiet, prints this and returns None. `settle_seconds`: the pause after each block,
    for work that is still in progress when an arm is stopped. `bytes_sent`: counters by rank."""
    clean = []
    for number in range(3 * rounds):
        time.sleep(GAP)
        for arm in arms[:: -1 if number % 2 else 1]:
            before = bytes_sent()
            arm.run_block(block_seconds)
            time.sleep(settle_seconds)
            if before is not None:
                arm.blocks[-1].sent = [now - then for now, then in zip(bytes_sent(), before)]
        foreign = max(arm.blocks[-1].foreign / arm.blocks[-1].wall for arm in arms)
        if foreign <= FOREIGN_CORES:
            clean.append(number)
        print(
            f"{title}: {len(clean)} of {rounds} rounds; others used {foreign:.2f} cores",
            file=sys.stderr,
        )
        if len(clean) == rounds:
            break
    if len(clean) < 2:
        print(f"\n### {title}\n\nnever quiet: nothing was measured", flush=True)
        return None
    for arm in arms:
        # From the last block's end to here the arm was stopped: one step without end.
        results = arm.results()
        arm.measured = [results[block] for block in clean]
        arm.blocks_used = [arm.blocks[block] for block in clean]
    return number + 1


def build(folder):
    targets = ["//" + ":".join(path.rsplit("/", 1)) for path in cluster.PROGRAMS.values()]
    subprocess.run(["bazel", "build", *targets], cwd=ROOT, check=True)
    return cluster.install(lambda path: ROOT / "bazel-bin" / path, folder)


@contextlib.contextmanager
def programs_of(given):
    """The folder with the four programs: the given one, or one with newly built programs. A run
    that is terminated ends its processes, too, because stopped processes would stay for ever."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    with tempfile.TemporaryDirectory(prefix="muster-bench-bin-") as name:
        programs = given or build(pathlib.Path(name))
        print(
            f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC, torch "
            f"{torch.__version__}, "
            f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.2f}, {' '.join(sys.argv)}"
        )
        yield pathlib.Path(programs)
