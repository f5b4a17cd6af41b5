"""The common parts of the measurements of sharding strategies: arms on a link, their tables, and
the check that the peer computes the same."""

import argparse
import dataclasses
import json
import pathlib
import subprocess
import sys
import tempfile

from bench import harness
from bench.ddp.cases import WORLD_SIZE
from bench.sharded_ddp import links
from bench.table import BEFORE, Table
from tests.parity import cluster

ROOT = pathlib.Path(__file__).resolve().parents[2]


@dataclasses.dataclass(frozen=True)
class Muster:
    name: str
    strategy: dict
    # (case, folder of its data) -> changes of the job.
    change: callable = lambda case, inputs: {}
    # The folder of its programs; None: those that are measured.
    programs: str | None = None


@dataclasses.dataclass(frozen=True)
class PyTorch:
    name: str
    kind: str  # of peer.py


def check_gradients():
    """Says how FSDP2's gradients lie to DDP's; an error where they are others."""
    low, high = json.loads(
        subprocess.run(
            [sys.executable, "-m", "bench.sharded_ddp.gradients"],
            cwd=ROOT,
            env=cluster.environment(),
            check=True,
            stdout=subprocess.PIPE,
        ).stdout
    )
    print(
        f"\nFSDP2's gradients over DDP's, two ranks on Gloo: {low:.6f} to {high:.6f}.", flush=True
    )
    if not 0.999 < low <= high < 1.001:
        raise SystemExit("FSDP2 computes other gradients than DDP: it is no peer")


def sent(arm):
    """Megabytes that a rank sends in a step, the mean of the ranks."""
    if arm.blocks[0].sent is None:
        return "not counted"
    total = sum(sum(block.sent) for block in arm.blocks)
    return f"{total / WORLD_SIZE / arm.steps_in_blocks / 1e6:.1f}"


def start_muster(arm, case, link, inputs, beside, programs):
    job = case.job(inputs, steps=10_000_000) | {"strategy": arm.strategy} | arm.change(case, inputs)
    # A cluster takes whatever runs from its folder of programs as its own.
    programs = pathlib.Path(arm.programs or programs)
    own = cluster.install(lambda path: programs / pathlib.Path(path).name, beside / "bin")
    return link.muster(arm.name, job, beside, own)


def start_pytorch(arm, case, link, inputs, beside):
    def command(rank):
        command = [
            sys.executable,
            "-m",
            "bench.sharded_ddp.peer",
            case.name,
            arm.kind,
            str(rank),
            str(WORLD_SIZE),
        ]
        return link.command(rank, [*command, inputs, beside / "store"])

    return harness.PyTorch(arm.name, [command(rank) for rank in range(WORLD_SIZE)], beside)


def measure(case, link, arguments, programs, wanted, subject_name, base, other_gradients=()):
    """A table of the arms `wanted`: ratios of the first one, which is there again as the last, and
    to arm number `base`."""
    title = f"{case.name}, {link.name}"
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as name, link:
        folder = pathlib.Path(name)
        inputs = folder / "inputs"
        inputs.mkdir()
        case.write(inputs)
        arms = []

        def start(name, arm):
            beside = folder / name.replace(" ", "-").replace(",", "")
            if isinstance(arm, Muster):
                return start_muster(arm, case, link, inputs, beside, programs)
            return start_pytorch(arm, case, link, inputs, beside)

        try:
            for arm in wanted:
                harness.start(title, arms, start, arm.name, arm)
            rounds = harness.run_rounds(
                title, arms, arguments.rounds, arguments.block, link.settle_seconds, link.bytes_sent
            )
            if rounds is None:
                return
            Table(
                title=f"{case.name}, {case.per_rank} samples per rank, {link.name}",
                subject=arms[0],
                subject_name=subject_name,
                base=arms[base],
                base_name=wanted[base].name,
                twins=(arms[0], arms[-1]),
                other_gradients=other_gradients,
                columns=(("MB sent by a rank per step", sent),),
            ).print(arms, rounds)
        finally:
            for arm in arms:
                arm.close()


def run(description, cases, default_cases, arms, subject_name, base):
    """The command: all cases on all links."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--cases", nargs="+", choices=cases, default=default_cases)
    parser.add_argument(
        "--links",
        nargs="+",
        default=["loopback", "400mbit"],
        help="loopback, or a rate in tc's words",
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--block", type=float, default=3.0, help="seconds")
    parser.add_argument("--programs", help="folder with the four programs; built when not given")
    parser.add_argument(
        "--before", help="folder with the four programs of another commit, to measure them, too"
    )
    parser.add_argument("--without-peers", action="store_true", help="measures Muster only")
    arguments = parser.parse_args()
    if arguments.before:
        former = dataclasses.replace(
            arms[0], name=arms[0].name + BEFORE, programs=arguments.before
        )
        arms, base = [arms[0], former, *arms[1:]], base + 1
    if arguments.without_peers:
        arms, base = [arm for arm in arms if isinstance(arm, Muster)], 1
    with harness.programs_of(arguments.programs) as programs:
        check_gradients()
        for link in arguments.links:
            for case in arguments.cases:
                measure(
                    cases[case],
                    links.Loopback() if link == "loopback" else links.Limited(link),
                    arguments,
                    programs,
                    arms,
                    subject_name,
                    base,
                )
