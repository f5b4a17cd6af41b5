#!/usr/bin/env python3
"""Instructions per training step, of two sets of programs: `bench/instructions/run.py --programs
DIR --before DIR`.

Seconds on a virtual machine differ by several percent from process to process, so instructions are
counted instead. The workers run under Valgrind (cachegrind without its caches), in one
job of FEW steps and one of MANY steps for each case. The instructions per step are the difference
of both jobs, divided by the difference of the steps, for all ranks together: what a worker does at
its start and its end does not count. Valgrind hides AVX-512, so LibTorch's kernels are those for
AVX2. Needs the package valgrind."""

import argparse
import os
import pathlib
import re
import signal
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = pathlib.Path.home() / ".cache/muster/venv/bin/python"
if __name__ == "__main__" and pathlib.Path(sys.executable) != PYTHON:
    os.execv(PYTHON, [PYTHON, *sys.argv])
sys.path.insert(0, str(ROOT))

from bench.ddp.cases import CASES, WORLD_SIZE  # noqa: E402
from tests.parity import cluster  # noqa: E402

FEW, MANY = 4, 14
STRATEGIES = ("ddp", "sharded_ddp", "fsdp")
# %p: the pid. Each rank has a file, and a worker that is asked only for its version, too.
WRAPPER = """#!/bin/sh
exec valgrind --tool=cachegrind --cache-sim=no --trace-children=yes \\
  --cachegrind-out-file={counts}/%p --log-file={counts}/log.%p {worker} "$@"
"""


def instructions(programs, job, folder):
    """The instructions of all workers of a job."""
    folder.mkdir()
    counts = folder / "counts"
    counts.mkdir()
    own = cluster.install(lambda path: programs / pathlib.Path(path).name, folder / "bin")
    worker = (own / "muster-worker").rename(folder / "muster-worker")
    (own / "muster-worker").write_text(WRAPPER.format(counts=counts, worker=worker))
    (own / "muster-worker").chmod(0o755)
    # The lease is as long as a slow start under Valgrind.
    with cluster.Cluster(own, folder / "cluster", slots=WORLD_SIZE, lease="1h") as started:
        started.submit(job, "bench")
        started.wait("bench")
    found = [
        re.search(r"^summary: (\d+)$", path.read_text(), re.M)
        for path in counts.iterdir()
        if not path.name.startswith("log.")
    ]
    assert len(found) >= WORLD_SIZE and all(found), list(counts.iterdir())
    return sum(int(match[1]) for match in found)


def per_step(programs, case, strategy, folder):
    inputs = folder / "inputs"
    inputs.mkdir()
    case.write(inputs)
    ended = {}
    for steps in (FEW, MANY):
        job = case.job(inputs, steps) | {"strategy": {strategy: {}}}
        ended[steps] = instructions(programs, job, folder / str(steps))
    return (ended[MANY] - ended[FEW]) / (MANY - FEW)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--programs", type=pathlib.Path, required=True)
    parser.add_argument("--before", type=pathlib.Path, required=True)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--strategies", default=",".join(STRATEGIES))
    arguments = parser.parse_args()
    # SIGTERM raises, so that a terminated run ends its processes, too.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    print("| case | strategy | before, million | now, million | now to before |")
    print("|---|---|---|---|---|")
    for name in arguments.cases.split(","):
        for strategy in arguments.strategies.split(","):
            counts = []
            for programs in (arguments.before, arguments.programs):
                with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder:
                    folder = pathlib.Path(folder)
                    counts.append(per_step(programs, CASES[name], strategy, folder))
            before, now = counts
            millions = f"{before / 1e6:.1f} | {now / 1e6:.1f}"
            print(f"| {name} | {strategy} | {millions} | {now / before:.4f} |", flush=True)


if __name__ == "__main__":
    main()
