#!/usr/bin/env python3
"""Step time of Muster's DDP beside PyTorch's: `bench/ddp/run.py` builds, measures and prints the
table.

The method stands in bench/harness.py and bench/table.py; bench/README.md says why.
"""

import argparse
import os
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = pathlib.Path.home() / ".cache/muster/venv/bin/python"
if __name__ == "__main__" and pathlib.Path(sys.executable) != PYTHON:
    os.execv(PYTHON, [PYTHON, *sys.argv])
sys.path.insert(0, str(ROOT))

from bench import harness  # noqa: E402
from bench.ddp.cases import CASES, WORLD_SIZE  # noqa: E402
from bench.table import BEFORE, Table  # noqa: E402
from tests.parity import cluster  # noqa: E402

MUSTER, TUNED = "Muster DDP", "PyTorch DDP tuned"
PEERS = [
    (TUNED, "tuned"),
    (f"{TUNED}, again", "tuned"),
    ("PyTorch DDP default", "default"),
    ("no communication", "floor"),
]


def pytorch(name, kind, case, inputs, folder):
    def command(rank):
        return [
            PYTHON,
            "-m",
            "bench.ddp.peer",
            case.name,
            kind,
            str(rank),
            inputs,
            folder / "store",
        ]

    return harness.PyTorch(name, [command(rank) for rank in range(WORLD_SIZE)], folder)


def measure(case, arguments, programs):
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as name:
        folder = pathlib.Path(name)
        inputs = folder / "inputs"
        inputs.mkdir()
        case.write(inputs)
        arms = []
        try:
            job = case.job(inputs, steps=10_000_000)

            def muster(name, of):
                beside = folder / name.replace(" ", "-").replace(",", "")
                # A cluster takes whatever runs from its folder of programs as its own.
                own = cluster.install(
                    lambda path: pathlib.Path(of) / pathlib.Path(path).name, beside / "bin"
                )
                harness.start(case.name, arms, harness.Muster.local, name, job, beside, own)

            muster(MUSTER, programs)
            if arguments.before:
                muster(MUSTER + BEFORE, arguments.before)
            if arguments.without_peers:
                muster(f"{MUSTER}, again", programs)
            for name, kind in [] if arguments.without_peers else PEERS:
                harness.start(
                    case.name,
                    arms,
                    pytorch,
                    name,
                    kind,
                    case,
                    inputs,
                    folder / name.replace(" ", "-"),
                )
            rounds = harness.run_rounds(case.name, arms, arguments.rounds, arguments.block)
            if rounds is None:
                return
            named = {arm.name: arm for arm in arms}
            base, twins = MUSTER, (MUSTER, f"{MUSTER}, again")
            if not arguments.without_peers:
                base, twins = TUNED, (TUNED, f"{TUNED}, again")
            Table(
                title=f"{case.name}, {case.per_rank} samples per rank",
                subject=named[MUSTER],
                subject_name="Muster's",
                base=named[base],
                base_name="tuned" if base == TUNED else "Muster DDP",
                twins=(named[twins[0]], named[twins[1]]),
                other_gradients=("no communication",),
            ).print(arms, rounds)
        finally:
            for arm in arms:
                arm.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--block", type=float, default=3.0, help="seconds")
    parser.add_argument("--programs", help="folder with the four programs; built when not given")
    parser.add_argument(
        "--before", help="folder with the four programs of another commit, to measure them, too"
    )
    parser.add_argument("--without-peers", action="store_true", help="measures Muster only")
    arguments = parser.parse_args()
    with harness.programs_of(arguments.programs) as programs:
        for case in arguments.cases:
            measure(CASES[case], arguments, programs)


if __name__ == "__main__":
    main()
