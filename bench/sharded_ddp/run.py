#!/usr/bin/env python3
"""Step time of Muster's sharded_ddp beside Muster's ddp and PyTorch's ZeRO: `bench/sharded_ddp/run.py` builds, measures and prints
the tables. The method stands in bench/harness.py and bench/table.py; bench/README.md says why. Links other than loopback need root.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = pathlib.Path.home() / ".cache/muster/venv/bin/python"
if __name__ == "__main__" and pathlib.Path(sys.executable) != PYTHON:
    os.execv(PYTHON, [PYTHON, *sys.argv])
sys.path.insert(0, str(ROOT))

from bench import harness  # noqa: E402
from bench.ddp.cases import CASES, WORLD_SIZE  # noqa: E402
from bench.sharded_ddp import links  # noqa: E402
from bench.table import Table  # noqa: E402
from tests.parity import cluster  # noqa: E402

SHARDED, AGAIN = "Muster sharded_ddp", "Muster sharded_ddp, again"
# With the peer's KIND.
PEERS = {"PyTorch DDP + ZeroRedundancyOptimizer": "zero", "PyTorch FSDP2, no reshard": "fsdp"}


def check_gradients():
    """Says how FSDP2's gradients lie to DDP's; an error where they are others."""
    low, high = json.loads(
        subprocess.run(
            [PYTHON, "-m", "bench.sharded_ddp.gradients"], cwd=ROOT, env=cluster.environment(), check=True, stdout=subprocess.PIPE
        ).stdout
    )
    print(f"\nFSDP2's gradients over DDP's, two ranks on Gloo: {low:.6f} to {high:.6f}.", flush=True)
    if not 0.999 < low <= high < 1.001:
        raise SystemExit("FSDP2 computes other gradients than DDP: it is no peer")


def sent(arm):
    """Megabytes that a rank sends in a step, the mean of the ranks."""
    if arm.blocks[0].sent is None:
        return "not counted"
    total = sum(sum(block.sent) for block in arm.blocks)
    return f"{total / WORLD_SIZE / arm.steps_in_blocks / 1e6:.1f}"


def measure(case, link, arguments, programs):
    title = f"{case.name}, {link.name}"
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as name, link:
        folder = pathlib.Path(name)
        inputs = folder / "inputs"
        inputs.mkdir()
        case.write(inputs)
        arms = []

        def muster(name, strategy):
            job = case.job(inputs, steps=10_000_000) | {"strategy": {strategy: {}}}
            beside = folder / name.replace(" ", "-")
            # A cluster takes whatever runs from its folder of programs as its own.
            own = cluster.install(lambda path: programs / pathlib.Path(path).name, beside / "bin")
            return link.muster(name, job, beside, own)

        def pytorch(name, kind):
            beside = folder / name.replace(" ", "-")

            def command(rank):
                command = [PYTHON, "-m", "bench.sharded_ddp.peer", case.name, kind, str(rank), str(WORLD_SIZE)]
                return link.command(rank, [*command, inputs, beside / "store"])

            return harness.PyTorch(name, [command(rank) for rank in range(WORLD_SIZE)], beside)

        try:
            harness.start(title, arms, muster, SHARDED, "sharded_ddp")
            harness.start(title, arms, muster, "Muster ddp", "ddp")
            for name in PEERS:
                harness.start(title, arms, pytorch, name, PEERS[name])
            harness.start(title, arms, muster, AGAIN, "sharded_ddp")
            rounds = harness.run_rounds(
                title, arms, arguments.rounds, arguments.block, link.settle_seconds, link.bytes_sent
            )
            if rounds is None:
                return
            Table(
                title=f"{case.name}, {case.per_rank} samples per rank, {link.name}",
                subject=arms[0],
                subject_name="sharded_ddp's",
                base=arms[1],
                base_name="Muster ddp",
                twins=(arms[0], arms[-1]),
                columns=(("MB sent by a rank per step", sent),),
            ).print(arms, rounds)
        finally:
            for arm in arms:
                arm.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", nargs="+", choices=CASES, default=["gpt-4x256", "mlp-8x1024"])
    parser.add_argument("--links", nargs="+", default=["loopback", "400mbit"], help="loopback, or a rate in tc's words")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--block", type=float, default=3.0, help="seconds")
    parser.add_argument("--programs", help="folder with the four programs; built when not given")
    arguments = parser.parse_args()
    with harness.programs_of(arguments.programs) as programs:
        check_gradients()
        for link in arguments.links:
            for case in arguments.cases:
                measure(CASES[case], links.Loopback() if link == "loopback" else links.Limited(link), arguments, programs)


if __name__ == "__main__":
    main()
