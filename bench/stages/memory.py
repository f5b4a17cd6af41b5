#!/usr/bin/env python3
"""Whether evaluation leaves memory behind: `bench/stages/memory.py`.

A job of the GPT of bench/ddp on two ranks goes through 20 cycles of fit, validate, fit and test.
The resident memory of each rank (VmRSS) is read every 10 ms; the figure of a cycle is the largest
value until its test is over. It must not grow by more than 1 MiB from the third cycle on. The
strategies are measured one after the other."""

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
from bench.stages import case  # noqa: E402
from bench.stages.case import WORLD_SIZE  # noqa: E402
from bench.stages.run import STRATEGIES  # noqa: E402
from tests.parity import cluster  # noqa: E402

CYCLES, STEPS, MIB = 20, 4, 1 << 20
CASE = dataclasses.replace(case.CASE, samples=64)


def job_of(strategy, inputs):
    job = CASE.job(inputs, steps=1) | {"strategy": {strategy: {}}}
    job["data"] |= dict.fromkeys(("validate", "test"), job["data"]["train"])
    cycle = [{"fit": {"steps": STEPS}}, {"validate": {}}, {"fit": {"steps": STEPS}}, {"test": {}}]
    return job | {"batch": {"per_rank": 4}, "stages": cycle * CYCLES}


def resident(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def peaks(programs, strategy, inputs, folder):
    """By cycle and rank, in bytes."""
    own = cluster.install(
        lambda path: pathlib.Path(programs) / pathlib.Path(path).name, folder / "bin"
    )
    found = []
    with cluster.Cluster(own, folder, slots=WORLD_SIZE) as started:
        started.submit(job_of(strategy, inputs), "cycles")
        pids, look_at = [], 0.0
        while True:
            if time.monotonic() >= look_at:
                look_at = time.monotonic() + 0.2
                job = started.job("cycles")
                if job["state"] == "SUCCEEDED":
                    return found
                assert job["state"] in ("QUEUED", "STARTING", "RUNNING"), job
                if not pids and job["state"] == "RUNNING":
                    pids = [int(rank["pid"]) for rank in job["ranks"]]
                over = int(job.get("test_step", 0)) // (2 * STEPS)
                found += [[0] * WORLD_SIZE for _ in range(min(over + 1, CYCLES) - len(found))]
            try:
                for rank, pid in enumerate(pids):
                    found[-1][rank] = max(found[-1][rank], resident(pid))
            except OSError:
                pass  # it has ended
            time.sleep(0.01)


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
        for strategy in arguments.strategies:
            found = peaks(programs, strategy, inputs, folder / strategy)
            assert len(found) == CYCLES, len(found)
            for rank, sizes in enumerate(zip(*found)):
                growth = max(sizes[3:]) - sizes[2]
                grown.append(growth)
                print(
                    f"{strategy}, rank {rank}: {sizes[0] / MIB:.2f} MiB in the first cycle, "
                    f"{sizes[2] / MIB:.2f} in the third, at most {max(sizes[3:]) / MIB:.2f} after "
                    f"it: grown by {growth / MIB:.2f} MiB"
                )
    sys.exit(any(growth > MIB for growth in grown))


if __name__ == "__main__":
    main()
