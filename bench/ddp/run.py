#!/usr/bin/env python3
"""Step time of Muster's DDP beside PyTorch's: `bench/ddp/run.py` builds, measures and prints the table.

Method (bench/README.md says why): all arms live at once, two ranks each, rank r on core r, one thread; all are
stopped (SIGSTOP) but the one that is measured. A round gives each arm one block; the order is turned around from
round to round. A block's step time is the mean over its whole steps, without those in which a stop fell. Ratios
are taken within rounds; their median comes with a bootstrap interval. One arm is there twice: A against A.
"""

import argparse
import dataclasses
import datetime
import os
import pathlib
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = pathlib.Path.home() / ".cache/muster/venv/bin/python"
if __name__ == "__main__" and pathlib.Path(sys.executable) != PYTHON:
    os.execv(PYTHON, [PYTHON, *sys.argv])
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from bench.ddp.cases import CASES, WORLD_SIZE  # noqa: E402
from tests.parity import cluster  # noqa: E402

WARM_UP_STEPS = 10
# A step that took longer had a stop in it; every arm rests at least GAP between two blocks.
STOPPED_SECONDS = 3.0
GAP = 4.0
# A round in which other processes used more, in any block, is void: decided without a look at its figures.
FOREIGN_CORES = 0.15
TICKS = os.sysconf("SC_CLK_TCK")
# Steps whose losses are compared, and how far apart they may be: float32 rounding at the losses' size.
LOSS_STEPS = 100
LOSS_TOLERANCE = 1e-5
AGAINST_ITSELF = "PyTorch DDP tuned, again"


@dataclasses.dataclass
class Block:
    wall: float
    cpu: float  # seconds of all the arm's processes
    foreign: float  # CPU seconds of everything else on the machine


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def machine_cpu_seconds():
    """CPU seconds that the machine has spent busy, stolen ones too."""
    user, nice, system, _, _, irq, softirq, steal, *_ = map(
        int, pathlib.Path("/proc/stat").read_text().split("\n")[0].split()[1:]
    )
    return (user + nice + system + irq + softirq + steal) / TICKS


def pin(pid, core):
    """All threads; later ones inherit it."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        os.sched_setaffinity(int(thread), {core})


class Arm:
    """Ranks that train without end. `ranks`: their pids; `others`: pids whose CPU time counts too."""

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
        for seconds in self.step_seconds() + [float("inf")]:
            if seconds < STOPPED_SECONDS:
                current.append(seconds)
                continue
            means.append(statistics.fmean(current))
            current = []
        means = means[1:]  # the warm-up
        if len(means) != len(self.blocks):
            raise RuntimeError(f"{self.name}: {len(means)} runs of steps for {len(self.blocks)} blocks")
        return [(mean, block.cpu * mean / block.wall) for mean, block in zip(means, self.blocks)]


class PyTorch(Arm):
    def __init__(self, name, kind, case, inputs, folder):
        super().__init__(name)
        folder.mkdir()
        self._outputs = [folder / f"rank{rank}" for rank in range(WORLD_SIZE)]
        self._processes = []
        for rank, output in enumerate(self._outputs):
            command = ["taskset", "-c", str(rank), PYTHON, "-m", "bench.ddp.peer", case.name, kind]
            self._processes.append(
                subprocess.Popen(
                    [*command, str(rank), inputs, folder / "store", output],
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
        return min(len(self._lines(rank)) for rank in range(WORLD_SIZE))

    def _lines(self, rank):
        output = self._outputs[rank]
        lines = output.read_text().split("\n")[:-1] if output.exists() else []
        return [line.split() for line in lines]

    def step_seconds(self):
        times = [int(line[0]) / 1e9 for line in self._lines(0)]
        return [after - before for before, after in zip(times, times[1:])]

    def losses(self):
        ranks = [[float(line[1]) for line in self._lines(rank)] for rank in range(WORLD_SIZE)]
        return [statistics.fmean(losses) for losses in zip(*ranks)]

    def close(self):
        for process in self._processes:
            process.kill()
            process.wait()


class Muster(Arm):
    def __init__(self, name, case, inputs, folder, programs):
        super().__init__(name)
        # A stopped worker must not lose its lease.
        self._cluster = cluster.Cluster(programs, folder, slots=WORLD_SIZE, lease="1h")
        try:
            self._start(case, inputs)
        except BaseException:
            self._cluster.close()
            raise

    def _start(self, case, inputs):
        self._cluster.submit(case.job(inputs, steps=10_000_000), "bench")
        while self._job()["state"] != "RUNNING":
            time.sleep(0.1)
        self.ranks = [int(rank["pid"]) for rank in self._job()["ranks"]]
        for rank, pid in enumerate(self.ranks):
            pin(pid, rank)
        threads = pathlib.Path(f"/proc/{self._cluster.pid}/task").iterdir()
        children = " ".join((thread / "children").read_text() for thread in threads).split()
        self.others = [self._cluster.pid, *map(int, children)]  # musterd and its agent
        assert len(self.others) == 2, children

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
        self.signal(signal.SIGCONT)
        self._cluster.stop("bench")
        self._cluster.close()


def interval(ratios, seed=0):
    """Median and its 95% bootstrap interval."""
    chance = random.Random(seed)
    medians = sorted(
        statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(10_000)
    )
    return statistics.median(ratios), medians[250], medians[9749]


def measure(case, arguments, programs):
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as name:
        folder = pathlib.Path(name)
        inputs = folder / "inputs"
        inputs.mkdir()
        case.write(inputs)
        arms = []
        try:
            def add(make, *details):
                print(f"{case.name}: starting {details[0]}", file=sys.stderr)
                arms.append(make(*details))
                arms[-1].warm_up()

            add(Muster, "Muster DDP", case, inputs, folder / "muster", programs)
            for name, kind in [
                ("PyTorch DDP tuned", "tuned"),
                (AGAINST_ITSELF, "tuned"),
                ("PyTorch DDP default", "default"),
                ("no communication", "floor"),
            ]:
                add(PyTorch, name, kind, case, inputs, folder / name.replace(" ", "-"))
            clean = []
            for number in range(3 * arguments.rounds):
                time.sleep(GAP)
                for arm in arms[:: -1 if number % 2 else 1]:
                    arm.run_block(arguments.block)
                foreign = max(arm.blocks[-1].foreign / arm.blocks[-1].wall for arm in arms)
                if foreign <= FOREIGN_CORES:
                    clean.append(number)
                print(f"{case.name}: {len(clean)} of {arguments.rounds} rounds; others used {foreign:.2f} cores",
                      file=sys.stderr)
                if len(clean) == arguments.rounds:
                    break
            if len(clean) < 2:
                print(f"\n### {case.name}\n\nnever quiet: nothing was measured", flush=True)
                return
            for arm in arms:
                # From the last block's end to here the arm was stopped: one step without end.
                results = arm.results()
                arm.measured = [results[number] for number in clean]
                arm.blocks_used = [arm.blocks[number] for number in clean]
            report(case, arms, number + 1)
        finally:
            for arm in arms:
                arm.close()


def report(case, arms, rounds):
    muster, tuned = arms[0], arms[1]
    times = {arm.name: [mean for mean, _ in arm.measured] for arm in arms}

    def ratio(arm, base):
        return interval([a / b for a, b in zip(times[arm.name], times[base.name])])

    itself = next(arm for arm in arms if arm.name == AGAINST_ITSELF)
    _, low, high = ratio(itself, tuned)
    resolved = low <= 1 <= high and 0.98 <= low and high <= 1.02 and len(muster.blocks_used) >= 15
    print(f"\n### {case.name}, {case.per_rank} samples per rank\n")
    print("| | ms per step | CPU s per step | ratio to tuned (95%) | Muster's ratio to it (95%) |")
    print("|---|---|---|---|---|")
    for arm in arms:
        step = 1e3 * statistics.median(times[arm.name])
        cpu = statistics.median(cpu for _, cpu in arm.measured)
        cells = [
            "1" if arm is other is tuned or arm is other is muster else "%.3f (%.3f to %.3f)" % ratio(a, b)
            for other, a, b in [(tuned, arm, tuned), (muster, muster, arm)]
        ]
        print(f"| {arm.name} | {step:.1f} | {cpu:.3f} | {cells[0]} | {cells[1]} |")
    foreign = [block.foreign / block.wall for arm in arms for block in arm.blocks_used]
    print(f"\n{len(muster.blocks_used)} quiet rounds of {rounds}; other processes used "
          f"{statistics.median(foreign):.2f} cores in their median block, {max(foreign):.2f} in the worst.")
    if not resolved:
        print("\n**No resolution, no claim**: A against A is not within 2% of 1, its interval leaves 1 out, or there are fewer than 15 rounds.")

    print("\nLosses after steps 1, 10, 50, 100:")
    muster_losses = muster.losses()
    for arm in arms:
        losses = arm.losses()
        shown = ", ".join(f"{losses[step - 1]:.6f}" for step in (1, 10, 50, 100) if step <= len(losses))
        compared = min(len(losses), len(muster_losses), LOSS_STEPS)
        apart = max(abs(a - b) for a, b in zip(losses[:compared], muster_losses))
        verdict = f"at most {apart:.1e} from Muster's in {compared} steps"
        if arm.name == "no communication":
            verdict = "other gradients, so other losses"
        elif apart > LOSS_TOLERANCE:
            verdict += ": **void**"
        print(f"- {arm.name}: {shown}; {verdict}", flush=True)


def build(folder):
    targets = ["//" + ":".join(path.rsplit("/", 1)) for path in cluster.PROGRAMS.values()]
    subprocess.run(["bazel", "build", *targets], cwd=ROOT, check=True)
    return cluster.install(lambda path: ROOT / "bazel-bin" / path, folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--block", type=float, default=3.0, help="seconds")
    parser.add_argument("--programs", help="folder with the four programs; built when not given")
    arguments = parser.parse_args()
    # A terminated run ends its processes too: stopped ones would stay for ever.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    with tempfile.TemporaryDirectory(prefix="muster-bench-bin-") as name:
        programs = arguments.programs or build(pathlib.Path(name))
        print(f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC, torch {torch.__version__}, "
              f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.2f}, {' '.join(sys.argv)}")
        for case in arguments.cases:
            measure(CASES[case], arguments, programs)


if __name__ == "__main__":
    main()
