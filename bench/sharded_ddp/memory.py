#!/usr/bin/env python3
"""The use of a rank's memory, for each strategy and for PyTorch: `bench/sharded_ddp/memory.py`
builds, measures and prints the table. Counted by the allocator (docs/reference/memory.md), so it
does not matter what else the machine does meanwhile."""

import argparse
import dataclasses
import os
import pathlib
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = pathlib.Path.home() / ".cache/muster/venv/bin/python"
if __name__ == "__main__" and pathlib.Path(sys.executable) != PYTHON:
    os.execv(PYTHON, [PYTHON, *sys.argv])
sys.path.insert(0, str(ROOT))

from bench import harness  # noqa: E402
from bench.ddp import cases  # noqa: E402
from bench.fsdp import cases as frozen_cases  # noqa: E402
from tests.parity import cluster  # noqa: E402

STATE = ["parameters", "gradients", "moments"]
PEAKS = ["gathered", "buckets", "activations", "total"]
PEERS = {
    "zero": "DDP + ZeroRedundancyOptimizer",
    "fsdp-keep": "FSDP2, no reshard",
    "fsdp": "FSDP2",
}
CASES = cases.CASES | frozen_cases.CASES
# Peaks are of the whole life of a process; so many steps have them all.
STEPS = 12
TOLERANCE = 0.02
MB = 1e6


def muster(case, strategy, world_size, folder, programs):
    """The memory of each rank, as `muster ranks` has it, in bytes."""
    inputs = folder / "inputs"
    job = case.job(inputs, 10_000_000, world_size) | {"strategy": {strategy: {}}}
    beside = folder / f"{strategy}-{world_size}"
    # Heartbeats, which bring the memory, come five times in a lease.
    with cluster.Cluster(programs, beside, slots=world_size, lease="3s") as started:
        started.submit(job, "bench")
        try:
            while True:
                time.sleep(0.5)
                ranks = started.job("bench").get("ranks", [])
                if ranks and all(
                    int(rank.get("step", 0)) >= STEPS and "memory" in rank for rank in ranks
                ):
                    return [rank["memory"] for rank in ranks]
                if started.job("bench")["state"] not in ("QUEUED", "STARTING", "RUNNING"):
                    raise RuntimeError(started.log("bench"))
        finally:
            started.stop("bench")


def resident(case, kind, world_size, folder):
    """The most that was ever resident of each rank of a PyTorch peer, in bytes."""
    beside = folder / f"{kind}-{world_size}"

    def command(rank):
        command = [
            PYTHON,
            "-m",
            "bench.sharded_ddp.peer",
            case.name,
            kind,
            str(rank),
            str(world_size),
        ]
        return [*command, folder / "inputs", beside / "store"]

    arm = harness.PyTorch(kind, [command(rank) for rank in range(world_size)], beside)
    try:
        while arm.steps_done() < STEPS:
            time.sleep(0.1)
        statuses = [pathlib.Path(f"/proc/{pid}/status").read_text() for pid in arm.ranks]
        return [1024 * int(status.split("VmHWM:")[1].split()[0]) for status in statuses]
    finally:
        arm.close()


def use(memory, purpose, which="bytes"):
    return int(memory.get(purpose, {}).get(which, 0))


@dataclasses.dataclass(frozen=True)
class Size:
    parameters: int
    trained: int

    def state(self, strategy, world_size):
        """Bytes of a rank's parameters, reduced gradients and moments, by the formula
        (docs/concepts/strategies.md)."""
        if strategy == "ddp":
            return 4 * self.parameters + 12 * self.trained
        share = 12 * self.trained / world_size
        return share + 4 * self.parameters / (world_size if strategy == "fsdp" else 1)


def row(strategy, ranks, world_size, size):
    """The values of the rank that holds the most. True where every rank's model state lies within
    the tolerance of the formula."""
    # In ddp the reduced gradients stay in the buckets, where contributions come on top: no counter
    # of their own.
    in_buckets = 4 * size.trained if strategy == "ddp" else 0
    formula = size.state(strategy, world_size)

    def state(memory):
        return sum(use(memory, purpose) for purpose in STATE) + in_buckets

    memory = max(ranks, key=state)
    off = max((state(memory) / formula - 1 for memory in ranks), key=abs)
    cells = [strategy, str(world_size)]
    cells += [f"{use(memory, purpose) / MB:.2f}" for purpose in STATE]
    cells += [f"{state(memory) / MB:.2f}", f"{formula / MB:.2f}", f"{100 * off:+.2f}%"]
    cells += [f"{use(memory, purpose, 'peak_bytes') / MB:.2f}" for purpose in PEAKS]
    cells += [f"{int(memory['resident_bytes']) / MB:.0f}"]
    print(f"| {' | '.join(cells)} |", flush=True)
    return abs(off) <= TOLERANCE


def measure(case, arguments, programs):
    model = case.build()
    case.freeze(model)
    size = Size(
        *(
            sum(
                parameter.numel()
                for parameter in model.parameters()
                if parameter.requires_grad or not trained_only
            )
            for trained_only in (False, True)
        )
    )
    print(
        f"\n### {case.name}: {size.parameters:,} parameters, {size.trained:,} trained, float32, "
        "AdamW; in MB\n"
    )
    headings = [
        "strategy",
        "ranks",
        *STATE,
        "model state",
        "formula",
        "off by",
        *(f"{purpose}, peak" for purpose in PEAKS),
    ]
    headings += ["resident"]
    print(f"| {' | '.join(headings)} |")
    print("|---" * len(headings) + "|")
    within = True
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as name:
        folder = pathlib.Path(name)
        (folder / "inputs").mkdir()
        case.write(folder / "inputs")
        for world_size in arguments.world_sizes:
            for strategy in arguments.strategies:
                ranks = muster(case, strategy, world_size, folder, programs)
                within &= row(strategy, ranks, world_size, size)
        print(
            f"\nModel state is {'' if within else '**not** '}within {100 * TOLERANCE:.0f}% of "
            f"the formula on every rank."
        )
        print(
            "\nThe most that was resident of a PyTorch rank, which has Python and the whole of "
            "PyTorch in it:"
        )
        for kind in arguments.peers:
            most = [
                max(resident(case, kind, world_size, folder)) / MB
                for world_size in arguments.world_sizes
            ]
            told = ", ".join(
                f"{size:.0f} MB on {ranks} ranks"
                for ranks, size in zip(arguments.world_sizes, most)
            )
            print(f"- {PEERS[kind]}: {told}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", nargs="+", choices=CASES, default=["gpt-4x256", "mlp-8x1024"])
    parser.add_argument(
        "--strategies",
        nargs="+",
        choices=["ddp", "sharded_ddp", "fsdp"],
        default=["sharded_ddp", "ddp"],
    )
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=["zero", "fsdp-keep"])
    parser.add_argument("--world-sizes", nargs="+", type=int, default=[2, 3, 4])
    parser.add_argument("--programs", help="folder with the four programs; built when not given")
    arguments = parser.parse_args()
    with harness.programs_of(arguments.programs) as programs:
        for case in arguments.cases:
            measure(CASES[case], arguments, programs)


if __name__ == "__main__":
    main()
