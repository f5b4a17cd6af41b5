#!/usr/bin/env python3
"""The cost of join: `bench/join/run.py` builds, measures and prints the tables. There are three
comparisons. First, even inputs with join and without, beside PyTorch's own join; and Muster's two
with new processes for each run. Second, ranks beside a rank without input, against even ranks.
Third, whole runs in which rank 0 ends early. The method stands in bench/harness.py and
bench/table.py, that of whole runs below; bench/README.md says why. Links other than loopback need
root."""

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
from bench.interval import interval  # noqa: E402
from tests.parity import cluster  # noqa: E402

STRATEGIES = {"ddp": {"ddp": {}}, "sharded_ddp": {"sharded_ddp": {}}, "fsdp": {"fsdp": {}}}
PARTS = ["even", "anew", "joined", "runs"]
# Steps of a whole run in which it finds its pace.
FIRST = 5


def ends(steps):
    """Steps after which rank 0 has no more input."""
    return {"at 0": 0, "at half": steps // 2, "10 before the end": steps - 10}


def uneven(case, inputs):
    return {"batch": {"per_rank": case.per_rank, "last": "uneven"}}


def own_files(steps, last="uneven"):
    """Changes of a job: each rank reads a file of its own, of so many steps."""

    def change(case, inputs):
        data = load_file(inputs / "train.safetensors")
        paths = []
        for rank, count in enumerate(steps):
            paths.append(str(inputs / f"{rank}-{count}.safetensors"))
            rows = [i % len(data["labels"]) for i in range(count * case.per_rank)]
            save_file(
                {
                    name: tensor[torch.tensor(rows, dtype=torch.long)]
                    for name, tensor in data.items()
                },
                paths[-1],
            )
        files = {"data": {"train": {"safetensors": {}, "per_rank": paths}}}
        return {"batch": {"per_rank": case.per_rank, "last": last}} | files

    return change


def even_arms(strategy, with_peer):
    name = f"Muster {strategy}"
    arms = [
        Muster(f"{name}, join", STRATEGIES[strategy], uneven),
        Muster(f"{name}, no join", STRATEGIES[strategy]),
    ]
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


def run_to_its_end(case, strategy, steps, change, link, folder, programs):
    """Seconds of each step of new processes."""
    inputs = folder / "inputs"
    job = case.job(inputs, steps) | {"strategy": STRATEGIES[strategy]} | change(case, inputs)
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
        return [
            float(re.fullmatch(r"([\d.]+)s", step["duration"])[1])
            for step in started.metrics("bench")
        ]


def runs_in_turn(case, strategy, link, rounds, steps, changes, programs):
    """Whole runs of `changes` (of the job, by name), a round after the other, in turned order
    (ABBA): [{name: seconds of each step}] by round."""
    found = []
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as name, link:
        folder = pathlib.Path(name)
        (folder / "inputs").mkdir()
        case.write(folder / "inputs")
        for number in range(rounds):
            names = list(changes)[:: -1 if number % 2 else 1]
            found.append(
                {
                    name: run_to_its_end(
                        case, strategy, steps, changes[name], link, folder, programs
                    )
                    for name in names
                }
            )
            print(
                f"{case.name}, {strategy}, {link.name}: {number + 1} of {rounds} rounds",
                file=sys.stderr,
            )
    return found


def over(rounds, name, base, begin, of=statistics.median):
    """Returns the ratios of the steps from `begin` on, by round: those of `name` over those of
    `base`."""
    return [of(found[name][begin:]) / of(found[base][begin:]) for found in rounds]


def ending_early(case, strategy, link, rounds, steps, programs):
    """Runs in which rank 0 ends early beside even ones: the steps after its end over the same steps
    of the even run of the round."""
    changes = {"even": own_files([steps, steps])}
    changes |= {name: own_files([end, steps]) for name, end in ends(steps).items()}
    found = runs_in_turn(case, strategy, link, rounds, steps, changes, programs)
    for name, end in ends(steps).items():
        begin = max(end, FIRST)
        shown = "%.3f (%.3f to %.3f)" % interval(over(found, name, "even", begin))
        slowest = statistics.median(over(found, name, "even", begin, max))
        print(
            f"| {case.name}, {strategy}, {link.name} | {name} | {shown} | {slowest:.3f} |",
            flush=True,
        )


def even_anew(case, strategy, link, rounds, steps, programs):
    """Even runs with join and without, with new processes for each. The place of its memory makes a
    process a few percent faster or slower for its whole life. More rounds of the same processes
    would not remove this difference."""
    names = ["join", "no join", "join, again"]
    changes = {
        name: own_files([steps, steps], "drop" if name == "no join" else "uneven") for name in names
    }
    found = runs_in_turn(case, strategy, link, rounds, steps, changes, programs)
    milliseconds = [
        f"{1e3 * statistics.median(statistics.median(run[name][FIRST:]) for run in found):.1f}"
        for name in names
    ]
    ratios = [
        "%.3f (%.3f to %.3f)" % interval(over(found, *pair, FIRST))
        for pair in (("join", "no join"), ("join, again", "no join"), ("join, again", "join"))
    ]
    print(
        f"| {case.name}, {strategy}, {link.name} | {' | '.join(milliseconds + ratios)} |",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=["mlp-8x1024"])
    parser.add_argument(
        "--strategies", nargs="+", choices=list(STRATEGIES), default=list(STRATEGIES)
    )
    parser.add_argument(
        "--links",
        nargs="+",
        default=["loopback", "400mbit"],
        help="loopback, or a rate in tc's words",
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument(
        "--alone",
        action="store_true",
        help="even inputs without PyTorch beside them: more rounds in the time",
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--runs", type=int, default=5, help="rounds of whole runs")
    parser.add_argument("--steps", type=int, default=60, help="of a whole run")
    parser.add_argument("--block", type=float, default=3.0, help="seconds")
    parser.add_argument("--programs", help="folder with the four programs; built when not given")
    arguments = parser.parse_args()

    def link(name):
        return links.Loopback() if name == "loopback" else links.Limited(name)

    every = [
        (CASES[case], strategy, name)
        for name in arguments.links
        for case in arguments.cases
        for strategy in arguments.strategies
    ]
    with harness.programs_of(arguments.programs) as programs:
        for case, strategy, name in every:
            if "even" in arguments.parts:
                measure(
                    case,
                    link(name),
                    arguments,
                    programs,
                    even_arms(strategy, not arguments.alone),
                    "join's",
                    base=1,
                )
        for case, strategy, name in every:
            if "joined" in arguments.parts:
                arms = joined_arms(strategy)
                measure(
                    case,
                    link(name),
                    arguments,
                    programs,
                    arms,
                    "the joined",
                    base=1,
                    other_gradients=(arms[1].name,),
                )
        if "anew" in arguments.parts:
            print(
                "\n### Even inputs, processes anew\n\n| | join, ms | no join, ms | join again, "
                "ms | join over no join (95%) | again over no join | again over join "
                "|\n|---|---|---|---|---|---|---|"
            )
            for case, strategy, name in every:
                even_anew(case, strategy, link(name), arguments.runs, arguments.steps, programs)
        if "runs" in arguments.parts:
            print(
                "\n### Rank 0 ends early\n\n| | rank 0 ends | steps after it over even ones "
                "(95%) | the slowest over the slowest even one |\n|---|---|---|---|"
            )
            for case, strategy, name in every:
                ending_early(case, strategy, link(name), arguments.runs, arguments.steps, programs)


if __name__ == "__main__":
    main()
