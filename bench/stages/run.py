#!/usr/bin/env python3
"""A validation pass of Muster beside one of PyTorch: `bench/stages/run.py`. Nothing else may run
meanwhile.

The GPT of bench/ddp (4 layers, width 256) evaluates 512 samples of 128 tokens in batches of 8: loss
and accuracy. There are two ranks with one thread each, rank r on core r. Muster runs a job of
validation stages only, as users do. The time of a pass comes from a job of MANY passes and a job of
ONE: their difference, divided by the difference of the numbers of passes. So the start does not
count. PyTorch (peer.py) evaluates under no_grad in eager mode. The time of a pass is the time of
its loop and of adding up the totals, without the first pass. The arms of a strategy run in turn, in
an order that is reversed from round to round; PyTorch is measured twice, A against A. The ratios
are the medians of those within rounds, with 95% bootstrap intervals. Losses must be equal within
1e-6, and accuracies equal."""

import argparse
import datetime
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = pathlib.Path.home() / ".cache/muster/venv/bin/python"
if __name__ == "__main__" and pathlib.Path(sys.executable) != PYTHON:
    os.execv(PYTHON, [PYTHON, *sys.argv])
sys.path.insert(0, str(ROOT))

from bench import harness  # noqa: E402
from bench.interval import interval  # noqa: E402
from bench.stages.case import CASE, WORLD_SIZE  # noqa: E402
from tests.parity import cluster  # noqa: E402

ONE, MANY = 1, 5
STRATEGIES = {
    "ddp": ["ddp"],
    "sharded_ddp": ["ddp"],
    "fsdp": ["fsdp", "fsdp-keep"],
}


def seconds_of(job):
    begin, end = (datetime.datetime.fromisoformat(job[at]) for at in ("start_time", "end_time"))
    return (end - begin).total_seconds()


def muster(programs, strategy, inputs, folder):
    """(seconds of a pass, loss, accuracy)."""
    own = cluster.install(
        lambda path: pathlib.Path(programs) / pathlib.Path(path).name, folder / "bin"
    )
    job = CASE.job(inputs, steps=1) | {"strategy": {strategy: {}}}
    job["data"] = {"validate": job["data"]["train"]}
    del job["optimizer"]
    seconds = {}
    with cluster.Cluster(own, folder, slots=WORLD_SIZE) as started:
        for passes in (ONE, MANY):
            name = f"passes-{passes}"
            ended = started.run(job | {"stages": [{"validate": {}}] * passes}, name)
            seconds[passes] = seconds_of(ended)
        found = ended["validation"]
    return (
        (seconds[MANY] - seconds[ONE]) / (MANY - ONE),
        float(found["loss"]),
        float(found["accuracy"]),
    )


def pytorch(kind, inputs, folder):
    folder.mkdir()
    ranks = [
        subprocess.Popen(
            [
                *("taskset", "-c", str(rank % os.cpu_count())),
                *(PYTHON, "-m", "bench.stages.peer", kind, str(rank)),
                *(inputs, folder / "store", str(MANY)),
            ],
            cwd=ROOT,
            env=cluster.environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(WORLD_SIZE)
    ]
    lines = [rank.communicate()[0].splitlines() for rank in ranks]
    assert all(rank.returncode == 0 for rank in ranks), kind
    passes = [[float(number) for number in line.split()] for line in lines[0]]
    return statistics.mean(seconds for seconds, _, _ in passes[ONE:]), *passes[-1][1:]


def measure(strategy, arguments, programs, inputs, folder):
    kinds = STRATEGIES[strategy]
    arms = ["Muster", *kinds, f"{kinds[0]}, again"]
    found = {arm: [] for arm in arms}
    for number in range(arguments.rounds):
        for arm in arms if number % 2 == 0 else reversed(arms):
            beside = folder / f"{strategy}-{number}-{arms.index(arm)}"
            if arm == "Muster":
                found[arm].append(muster(programs, strategy, inputs, beside))
            else:
                found[arm].append(pytorch(arm.split(",")[0], inputs, beside))
    print(f"\n### {strategy}\n")
    print("| arm | seconds of a pass | Muster's ratio to it (95%) |")
    print("|---|---|---|")
    for arm, passes in found.items():
        ratio = interval([own[0] / other[0] for own, other in zip(found["Muster"], passes)])
        median = statistics.median(seconds for seconds, _, _ in passes)
        name = arm if arm == "Muster" else f"PyTorch {arm}"
        print(f"| {name} | {median:.3f} | %.3f (%.3f to %.3f) |" % ratio)
    twins = zip(found[arms[-1]], found[kinds[0]])
    print("\nA against A: %.3f (%.3f to %.3f)" % interval([a[0] / b[0] for a, b in twins]))
    _, loss, accuracy = found["Muster"][0]
    for arm, passes in found.items():
        for _, other_loss, other_accuracy in passes:
            assert abs(other_loss - loss) <= 1e-6, (arm, other_loss, loss)
            assert abs(other_accuracy - accuracy) <= 1e-9, (arm, other_accuracy, accuracy)
    print(f"loss {loss:.7f}, accuracy {accuracy:.6f} in all arms")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--programs", help="folder with the four programs; built when not given")
    parser.add_argument("--strategies", nargs="+", choices=STRATEGIES, default=list(STRATEGIES))
    arguments = parser.parse_args()
    with harness.programs_of(arguments.programs) as programs, tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        inputs = folder / "inputs"
        inputs.mkdir()
        CASE.write(inputs)
        for strategy in arguments.strategies:
            measure(strategy, arguments, programs, inputs, folder)
    print(f"\nload at the end: {os.getloadavg()[0]:.2f}")


if __name__ == "__main__":
    main()
