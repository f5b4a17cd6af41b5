#!/usr/bin/env python3
"""What join costs: `bench/join/run.py` builds, measures and prints the tables. Even inputs with join and without, PyTorch's own join
beside it; ranks whose fellow has no input, beside even ones; and whole runs in which rank 0 ends early. The method stands in
bench/harness.py and bench/table.py, that of whole runs below; bench/README.md says why. Links other than loopback need root.
"""

import argparse
import os
import pathlib
import re
import statistics
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = pathlib.Path.home() / ".cache/muster/venv/bin/python"
if __name__ == "__main__" and pathlib.Path(sys.executable) != PYTHON:
    os.execv(PYTHON, [PYTHON, *sys.argv])
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

from bench import harness  # noqa: E402
from bench.ddp.cases import CASES, WORLD_SIZE  # noqa: E402
from bench.sharded_ddp import links  # noqa: E402
from bench.sharded_ddp.comparison import Muster, PyTorch, measure  # noqa: E402
from bench.table import interval  # noqa: E402
from tests.parity import cluster  # noqa: E402

STRATEGIES = {"ddp": {"ddp": {}}, "sharded_ddp": {"sharded_ddp": {}}, "fsdp": {"fsdp": {}}}
# Steps of a whole run in which it finds its pace.
FIRST = 5


def ends(steps):
    """Steps after which rank 0 has no more input."""
    return {"at 0": 0, "at half": steps // 2, "10 before the end": steps - 10}


def uneven(case, inputs):
    return {"batch": {"per_rank": case.per_rank, "last": "uneven"}}


def own_files(steps):
    """Changes of a job: each rank reads a file of its own, of so many steps."""

    def change(case, inputs):
        data = load_file(inputs / "train.safetensors")
        paths = []
        for rank, count in enumerate(steps):
            paths.append(str(inputs / f"{rank}-{count}.safetensors"))
            rows = [i % len(data["labels"]) for i in range(count * case.per_rank)]
            save_file({name: tensor[torch.tensor(rows, dtype=torch.long)] for name, tensor in data.items()}, paths[-1])
        return uneven(case, inputs) | {"data": {"train": {"safetensors": {}, "per_rank": paths}}}

    return change


def even_arms(strategy, with_peer):
    name = f"Muster {strategy}"
    arms = [Muster(f"{name}, join", STRATEGIES[strategy], uneven), Muster(f"{name}, no join", STRATEGIES[strategy])]
    if strategy == "ddp" and with_peer:
        arms += [PyTorch("PyTorch DDP with join()", "ddp-join"), PyTorch("PyTorch DDP", "ddp")]
    return [*arms, Muster(f"{name}, join, again", STRATEGIES[strategy], uneven)]


def joined_arms(strategy):
    """Steps of a rank whose fellow has joined, and of ranks that both have input."""
    name = f"Muster {strategy}"
    return [
        Muster(f"{name}, rank 0 without input", STRATEGIES[strategy], own_files([0, 60])),
        Muster(f"{name}, even", STRATEGIES[strategy], own_files([60, 60])),
        Muster(f"{name}, rank 0 without input, again", STRATEGIES[strategy], own_files([0, 60])),
    ]


def run_to_its_end(case, strategy, steps, link, folder, programs):
    """Seconds of each step. `steps`: for which each rank has input."""
    inputs = folder / "inputs"
    job = case.job(inputs, max(steps)) | {"strategy": STRATEGIES[strategy]} | own_files(steps)(case, inputs)
    beside = pathlib.Path(tempfile.mkdtemp(dir=folder))
    started = (
        cluster.Cluster(programs, beside, slots=WORLD_SIZE)
        if isinstance(link, links.Loopback)
        else links.Nodes(programs, beside, link)
    )
    with started:
        started.submit(job, "bench")
        pinned = False
        while (found := started.job("bench"))["state"] != "SUCCEEDED":
            if not pinned and found["state"] == "RUNNING":
                for rank in found["ranks"]:
                    harness.pin(int(rank["pid"]), rank["rank"])
                pinned = True
        return [float(re.fullmatch(r"([\d.]+)s", step["duration"])[1]) for step in started.metrics("bench")]


def whole_runs(case, strategy, link, rounds, steps, programs):
    """Runs in which rank 0 ends early, in turn with even ones (ABBA): the steps after its end over the same steps of the even run
    of the round, their median and the slowest."""
    ratios = {name: [] for name in ends(steps)}
    slowest = {name: [] for name in ends(steps)}
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as name, link:
        folder = pathlib.Path(name)
        (folder / "inputs").mkdir()
        case.write(folder / "inputs")
        for number in range(rounds):
            found = {}
            for name in ["even", *ratios][:: -1 if number % 2 else 1]:
                end = ends(steps).get(name, steps)
                found[name] = run_to_its_end(case, strategy, [end, steps], link, folder, programs)
            for name, end in ends(steps).items():
                begin = max(end, FIRST)
                even = statistics.median(found["even"][begin:])
                ratios[name].append(statistics.median(found[name][begin:]) / even)
                slowest[name].append(max(found[name][begin:]) / max(found["even"][begin:]))
            print(f"{case.name}, {strategy}, {link.name}: {number + 1} of {rounds} rounds", file=sys.stderr)
    for name in ratios:
        shown = "%.3f (%.3f to %.3f)" % interval(ratios[name])
        print(f"| {case.name}, {strategy}, {link.name} | {name} | {shown} | {statistics.median(slowest[name]):.3f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=["mlp-8x1024"])
    parser.add_argument("--strategies", nargs="+", choices=list(STRATEGIES), default=list(STRATEGIES))
    parser.add_argument("--links", nargs="+", default=["loopback", "400mbit"], help="loopback, or a rate in tc's words")
    parser.add_argument("--parts", nargs="+", choices=["even", "joined", "runs"], default=["even", "joined", "runs"])
    parser.add_argument("--alone", action="store_true", help="even inputs without PyTorch beside them: more rounds in the time")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--runs", type=int, default=5, help="rounds of whole runs")
    parser.add_argument("--steps", type=int, default=60, help="of a whole run")
    parser.add_argument("--block", type=float, default=3.0, help="seconds")
    parser.add_argument("--programs", help="folder with the four programs; built when not given")
    arguments = parser.parse_args()

    def link(name):
        return links.Loopback() if name == "loopback" else links.Limited(name)

    every = [(CASES[case], strategy, name) for name in arguments.links for case in arguments.cases for strategy in arguments.strategies]
    with harness.programs_of(arguments.programs) as programs:
        for case, strategy, name in every:
            if "even" in arguments.parts:
                measure(case, link(name), arguments, programs, even_arms(strategy, not arguments.alone), "join's", base=1)
        for case, strategy, name in every:
            if "joined" in arguments.parts:
                arms = joined_arms(strategy)
                measure(case, link(name), arguments, programs, arms, "the joined", base=1, other_gradients=(arms[1].name,))
        if "runs" in arguments.parts:
            print("\n### Whole runs\n\n| | rank 0 ends | steps after it over even ones (95%) | the slowest over the slowest even one |\n|---|---|---|---|")
            for case, strategy, name in every:
                whole_runs(case, strategy, link(name), arguments.runs, arguments.steps, programs)


if __name__ == "__main__":
    main()
