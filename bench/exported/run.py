#!/usr/bin/env python3
"""Step time of an exported model beside the built-in model of the same kind and beside PyTorch's
eager mode, one rank each: `bench/exported/run.py` builds, exports, measures and prints the table.

The method stands in bench/harness.py and bench/table.py; bench/README.md says why.
"""

import argparse
import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = pathlib.Path.home() / ".cache/muster/venv/bin/python"
if __name__ == "__main__" and pathlib.Path(sys.executable) != PYTHON:
    os.execv(PYTHON, [PYTHON, *sys.argv])
sys.path.insert(0, str(ROOT))

from bench import harness  # noqa: E402
from bench.ddp.cases import CASES  # noqa: E402
from bench.interval import interval  # noqa: E402
from bench.table import Table  # noqa: E402
from tests.parity import cluster  # noqa: E402

EXPORTED, BUILT_IN, EAGER = "exported", "built-in", "PyTorch eager"


def exporter():
    """muster.export, from the wheel of this tree."""
    subprocess.run(["bazel", "build", "//deploy/package:wheel"], cwd=ROOT, check=True)
    (wheel,) = (ROOT / "bazel-bin/deploy/package").glob("*.whl")
    sys.path.insert(0, str(wheel))
    import muster.export

    return muster.export


def cpu_column(subject):
    """The table's column with the ratio of the CPU seconds of a step."""

    def value(arm):
        pairs = zip(subject.measured, arm.measured)
        return "%.3f (%.3f to %.3f)" % interval([own / other for (_, own), (_, other) in pairs])

    return ("exported's CPU s to its (95%)", value)


def measure(case, arguments, programs, export):
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as name:
        folder = pathlib.Path(name)
        inputs = folder / "inputs"
        inputs.mkdir()
        case.write(inputs)
        example, _ = case.open(inputs).read([0, 1, 2])
        begun = time.monotonic()
        export(case.load(inputs), example.contiguous(), inputs / "exported")
        print(f"{case.name}: exported in {time.monotonic() - begun:.1f} s", file=sys.stderr)
        job = case.job(inputs, steps=10_000_000, world_size=1)
        arms = []

        def muster(name, model):
            beside = folder / name.replace(" ", "-").replace(",", "")
            own = cluster.install(
                lambda path: pathlib.Path(programs) / pathlib.Path(path).name, beside / "bin"
            )
            job_of_it = job | {"model": model}
            harness.start(case.name, arms, harness.Muster.local, name, job_of_it, beside, own)

        with contextlib.ExitStack() as stack:
            stack.callback(lambda: [arm.close() for arm in arms])
            muster(EXPORTED, {"exported": str(inputs / "exported")})
            muster(BUILT_IN, job["model"])
            muster(f"{EXPORTED}, again", {"exported": str(inputs / "exported")})
            command = [PYTHON, "-m", "bench.exported.peer", case.name, inputs]
            harness.start(
                case.name, arms, harness.PyTorch, EAGER, [command], folder / "eager"
            )
            rounds = harness.run_rounds(case.name, arms, arguments.rounds, arguments.block)
            if rounds is None:
                return
            named = {arm.name: arm for arm in arms}
            Table(
                title=f"{case.name}, {case.per_rank} samples",
                subject=named[EXPORTED],
                subject_name="exported's",
                base=named[EAGER],
                base_name="eager",
                twins=(named[EXPORTED], named[f"{EXPORTED}, again"]),
                columns=(cpu_column(named[EXPORTED]),),
            ).print(arms, rounds)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    cases = ["gpt-4x256", "linear-200x64"]
    parser.add_argument("--cases", nargs="+", choices=cases, default=cases)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--block", type=float, default=3.0, help="seconds")
    parser.add_argument("--programs", help="folder with the four programs; built when not given")
    arguments = parser.parse_args()
    export = exporter()
    with harness.programs_of(arguments.programs) as programs:
        for case in arguments.cases:
            measure(CASES[case], arguments, programs, export)


if __name__ == "__main__":
    main()
