#!/usr/bin/env python3
"""A check that evaluation leaves no memory behind: `bench/stages/memory.py`.

A job of the GPT of bench/ddp on two ranks goes through 20 cycles of fit, validate, fit and test. At
the end of each stage the worker returns freed memory to the kernel, and says in its log how much is
resident. The figure of a cycle is the resident memory at its end, after the test. From the third
cycle on it must not grow by more than 1 MiB. The same job without evaluation (40 stages `fit`) is
measured beside it. The strategies are measured one after the other."""

import argparse
import dataclasses
import os
import pathlib
import re
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = pathlib.Path.home() / ".cache/muster/venv/bin/python"
if __name__ == "__main__" and pathlib.Path(sys.executable) != PYTHON:
    os.execv(PYTHON, [PYTHON, *sys.argv])
sys.path.insert(0, str(ROOT))

from bench import harness  # noqa: E402
from bench.stages import case  # noqa: E402
from bench.stages.case import WORLD_SIZE  # noqa: E402
from bench.stages.run import STRATEGIES  # noqa: E402
from tests.parity import cluster  # noqa: E402

CYCLES, STEPS, MOST = 20, 4, 1.0
CASE = dataclasses.replace(case.CASE, samples=64)
FIT = {"fit": {"steps": STEPS}}
CYCLE = {
    "with evaluation": [FIT, {"validate": {}}, FIT, {"test": {}}],
    "without": [FIT, FIT],
}


def job_of(strategy, inputs, cycle):
    job = CASE.job(inputs, steps=1) | {"strategy": {strategy: {}}}
    if {"test": {}} in cycle:
        job["data"] |= dict.fromkeys(("validate", "test"), job["data"]["train"])
    return job | {"batch": {"per_rank": 4}, "stages": cycle * CYCLES}


def resident(log, rank, cycle):
    """Returns the memory that the rank reported at the end of each cycle, in MiB."""
    # A line begins with its generation and rank.
    line = rf"(?m)^\[1\.{rank}\] .*: after stages\[(\d+)\]: ([0-9.]+) MiB"
    said = dict(re.findall(line, log))
    return [float(said[str(end)]) for end in range(len(cycle) - 1, len(cycle) * CYCLES, len(cycle))]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--programs", help="folder with the four programs; built when not given")
    parser.add_argument("--strategies", nargs="+", choices=STRATEGIES, default=list(STRATEGIES))
    arguments = parser.parse_args()
    grown = []
    with harness.programs_of(arguments.programs) as programs, tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        inputs = folder / "inputs"
        inputs.mkdir()
        CASE.write(inputs)
        own = cluster.install(
            lambda path: pathlib.Path(programs) / pathlib.Path(path).name, folder / "bin"
        )
        for strategy in arguments.strategies:
            for kind, cycle in CYCLE.items():
                run = folder / f"{strategy} {kind}"
                run.mkdir()
                with cluster.Cluster(own, run, slots=WORLD_SIZE) as started:
                    started.run(job_of(strategy, inputs, cycle), "cycles")
                    log = started.log("cycles")
                for rank in range(WORLD_SIZE):
                    sizes = resident(log, rank, cycle)
                    growth = max(sizes[3:]) - sizes[2]
                    if len(cycle) > 2:
                        grown.append(growth)
                    print(
                        f"{strategy} {kind}, rank {rank}: {sizes[0]:.2f} MiB after the first "
                        f"cycle, {sizes[2]:.2f} after the third, then {min(sizes[3:]):.2f} to "
                        f"{max(sizes[3:]):.2f}: grown by {growth:.2f} MiB"
                    )
    sys.exit(any(growth > MOST for growth in grown))


if __name__ == "__main__":
    main()
