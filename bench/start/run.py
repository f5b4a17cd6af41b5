#!/usr/bin/env python3
"""The cost of the number of samples at the start of a job: `bench/start/run.py` builds, measures
and prints a table.

A job of two ranks and one step, on a file of tokens that has a hole in place of them, so that no
disk is read. In each round every order runs once on every number of samples; the order of the runs
is reversed from round to round. Seconds: from `muster submit` until the job has ended; in the first
step alone, as `muster metrics` has it. MiB: the most memory of a rank that no file backs (RssAnon),
looked at every 10 ms. The medians of all rounds, and the lowest and highest values."""

import argparse
import os
import pathlib
import re
import statistics
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = pathlib.Path.home() / ".cache/muster/venv/bin/python"
if __name__ == "__main__" and pathlib.Path(sys.executable) != PYTHON:
    os.execv(PYTHON, [PYTHON, *sys.argv])
sys.path.insert(0, str(ROOT))

from bench import harness  # noqa: E402
from tests.parity import cluster  # noqa: E402

ORDERS = ["sequential", "shuffled", "shuffled_v2"]
SAMPLES = [10**4, 10**6, 10**7, 10**8]
WORLD_SIZE = 2
MODEL = {"vocab_size": 8, "context": 1, "layers": 1, "heads": 1, "width": 8}


def job(tokens, order):
    return {
        "name": "start",
        "world_size": WORLD_SIZE,
        "model": {"gpt2": MODEL},
        "data": {"train": {"tokens": {"path": str(tokens)}}},
        "batch": {"per_rank": 4, "order": order},
        "optimizer": {"sgd": {"lr": 0.1}},
        "stages": [{"fit": {"steps": 1}}],
    }


def anonymous_bytes(pid):
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"^RssAnon:\s*(\d+) kB", status, re.M)
    return 1024 * int(found[1]) if found else 0


class Watch:
    """Looks at the memory of a cluster's workers until the end of its `with` block."""

    def __init__(self, started):
        self._cluster, self._end, self.peak = started, threading.Event(), 0
        self._thread = threading.Thread(target=self._look)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self._thread.join()

    def _look(self):
        workers = []
        while not self._end.wait(0.01):
            if len(workers) < WORLD_SIZE:
                workers = self._cluster.workers()
            self.peak = max([self.peak, *map(anonymous_bytes, workers)])


def measure(started, spec, name):
    """Seconds until the job has ended, those of the first step, and MiB."""
    with Watch(started) as watch:
        begun = time.monotonic()
        started.run(spec, name)
        seconds = time.monotonic() - begun
    (step,) = started.metrics(name)
    return seconds, float(step["duration"].removesuffix("s")), watch.peak / 2**20


def shown(values, digits):
    middle = statistics.median(values)
    return f"{middle:.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--programs", help="folder with the four programs; built when not given")
    arguments = parser.parse_args()
    cases = [(order, samples) for order in ORDERS for samples in SAMPLES]
    results = {case: [] for case in cases}
    with harness.programs_of(arguments.programs) as programs, tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        own = cluster.install(lambda path: programs / pathlib.Path(path).name, folder / "bin")
        for samples in SAMPLES:
            tokens = folder / f"{samples}.bin"
            tokens.touch()
            os.truncate(tokens, 2 * (samples + 1))
        with cluster.Cluster(own, folder / "cluster", slots=WORLD_SIZE) as started:
            for number in range(arguments.rounds):
                for order, samples in cases if number % 2 == 0 else reversed(cases):
                    spec = job(folder / f"{samples}.bin", order)
                    found = measure(started, spec, f"{order.replace('_', '-')}-{samples}-{number}")
                    results[order, samples].append(found)
                    print(order, samples, *found, file=sys.stderr)
    print("\n| order | samples | s until the job has ended | s in the first step | MiB of a rank |")
    print("|---|---|---|---|---|")
    for (order, samples), found in results.items():
        whole, step, memory = zip(*found)
        print(
            f"| {order} | {samples:.0e} | {shown(whole, 2)} | {shown(step, 3)} |"
            f" {shown(memory, 0)} |"
        )
    print(f"\nload at the end: {os.getloadavg()[0]:.2f}")


if __name__ == "__main__":
    main()
