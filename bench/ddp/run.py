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
from bench.table import Table  # noqa: E402


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
            harness.start(
                case.name,
                arms,
                harness.Muster.local,
                "Muster DDP",
                job,
                folder / "muster",
                programs,
            )
            for name, kind in [
                ("PyTorch DDP tuned", "tuned"),
                ("PyTorch DDP tuned, again", "tuned"),
                ("PyTorch DDP default", "default"),
                ("no communication", "floor"),
            ]:
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
            muster, tuned, again = arms[:3]
            Table(
                title=f"{case.name}, {case.per_rank} samples per rank",
                subject=muster,
                subject_name="Muster's",
                base=tuned,
                base_name="tuned",
                twins=(tuned, again),
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
    arguments = parser.parse_args()
    with harness.programs_of(arguments.programs) as programs:
        for case in arguments.cases:
            measure(CASES[case], arguments, programs)


if __name__ == "__main__":
    main()
