#!/usr/bin/env python3
"""How long an exported model takes to load, beside the built-in model of the same kind:
`bench/exported/start.py` builds, exports, measures and prints the table.

Jobs of one rank and one step, in turn. Seconds: from `muster submit` until the job has ended; in
the worker from its first line in the log until the first stage (opening data, reading the model and
its values); in the first step alone. The medians of all rounds, and the lowest and highest values.
"""

import argparse
import datetime
import os
import pathlib
import re
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
from bench.exported.run import exporter  # noqa: E402
from bench.start.run import shown  # noqa: E402
from tests.parity import cluster  # noqa: E402


def logged(log, text):
    """When the worker wrote a line."""
    found = re.search(rf"(\d{{4}}-\S+)Z I muster-worker: .*{text}", log)
    return datetime.datetime.fromisoformat(found[1])


def measure(started, spec, name):
    begun = time.monotonic()
    started.run(spec, name)
    whole = time.monotonic() - begun
    log = started.log(name)
    loading = logged(log, "before the first stage") - logged(log, f"job {name} generation 1")
    (step,) = started.metrics(name)
    return whole, loading.total_seconds(), float(step["duration"].removesuffix("s"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--programs", help="folder with the four programs; built when not given")
    arguments = parser.parse_args()
    export = exporter()
    results = {}
    with harness.programs_of(arguments.programs) as programs, tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        own = cluster.install(lambda path: programs / pathlib.Path(path).name, folder / "bin")
        jobs = {}
        for case in (CASES["gpt-4x256"], CASES["linear-200x64"]):
            inputs = folder / case.name
            inputs.mkdir()
            case.write(inputs)
            example, _ = case.open(inputs).read([0, 1, 2])
            export(case.load(inputs), example.contiguous(), inputs / "exported")
            built_in = case.job(inputs, steps=1, world_size=1)
            jobs[case.name, "built-in"] = built_in
            jobs[case.name, "exported"] = built_in | {
                "model": {"exported": str(inputs / "exported")}
            }
        with cluster.Cluster(own, folder / "cluster", slots=1) as started:
            for number in range(arguments.rounds):
                for key in jobs if number % 2 == 0 else reversed(jobs):
                    found = measure(started, jobs[key], f"{'-'.join(key)}-{number}")
                    results.setdefault(key, []).append(found)
    print("\n| case | model | s until the job has ended | s until the first stage | s of a step |")
    print("|---|---|---|---|---|")
    for (case, model), found in results.items():
        whole, loading, step = zip(*found)
        print(f"| {case} | {model} | {shown(whole, 2)} | {shown(loading, 3)} | {shown(step, 3)} |")
    print(f"\nload at the end: {os.getloadavg()[0]:.2f}")


if __name__ == "__main__":
    main()
