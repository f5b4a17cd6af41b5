#!/usr/bin/env python3
"""The cost of a change of trainability while a job runs: `bench/refresh/run.py` builds, measures
and prints the tables. bench/README.md says what is compared."""

import argparse
import json
import os
import pathlib
import statistics
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
from bench.refresh.cases import CASES  # noqa: E402
from tests.parity import cluster  # noqa: E402

# With the default size each layer has a bucket of its own, and freezing another layer moves
# nothing. In a single bucket everything shifts.
STRATEGIES = {
    "ddp": {"ddp": {}},
    "sharded_ddp": {"sharded_ddp": {}},
    "sharded_ddp-one-bucket": {"sharded_ddp": {"bucket_mb": 4096}},
    "fsdp": {"fsdp": {}},
}
FAIRSCALE = "fairscale==0.4.13"
# Model state of all ranks that this machine may hold, with the copies that a refresh makes.
MOST_BYTES = 11e9


def fairscale_folder():
    """The folder of the package without its dependencies; torch is installed."""
    folder = pathlib.Path.home() / ".cache/muster" / FAIRSCALE
    if not folder.exists():
        subprocess.run(
            [PYTHON, "-m", "pip", "install", "-q", "--no-deps", "--target", folder, FAIRSCALE],
            check=True,
        )
    return folder


def ranks_of(module, world_size, arguments, environment=None):
    """Returns the last line of rank 0 if all ranks of a program ended well; else None."""
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as name:
        store = pathlib.Path(name) / "store"
        ranks = [
            subprocess.Popen(
                [PYTHON, "-m", module, *arguments(rank, store)],
                cwd=ROOT,
                env=cluster.environment() | (environment or {}),
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(world_size)
        ]
        out = [rank.communicate(timeout=600)[0] for rank in ranks]
        if any(rank.returncode for rank in ranks):
            return None
        return out[0].splitlines()[-1]


def least_ms(world_size, moved, laid_out):
    """Returns the time to send a refresh's moved bytes over Gloo, and the time to copy the bytes
    with a new layout, all ranks at once."""
    if moved == 0 and laid_out == 0:
        return 0.0
    found = ranks_of(
        "bench.refresh.link",
        world_size,
        lambda rank, store: [str(rank), str(world_size), store, str(moved), str(laid_out)],
    )
    return 1000 * float(found)


class Job:
    """A job that is halted after its second step, and changed."""

    def __init__(self, case, strategy, world_size, folder, programs):
        spec = case.job(folder, world_size) | {"strategy": STRATEGIES[strategy]}
        self._cluster = cluster.Cluster(
            programs, folder / f"{strategy}-{world_size}", slots=world_size
        )
        self._cluster.submit(spec, "bench")
        self._ask("pause", "bench", "--at-step", "2")

    def _ask(self, *words):
        done = subprocess.run(
            [
                self._cluster.programs / "muster",
                *words,
                "--wait",
                "--timeout",
                "600s",
                "-o",
                "json",
                "--address",
                self._cluster.address,
            ],
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{words}: {done.stderr}{done.stdout}\n{self._cluster.log('bench')}")
        return json.loads(done.stdout)

    def change(self, action, patterns):
        """(seconds, bytes that all ranks sent)."""
        result = self._ask(action, "bench", *patterns)["result"]["trainability"]
        return result["seconds"], int(result["bytes_moved"])

    def close(self):
        self._cluster.stop("bench")
        self._cluster.close()


def measure(case, strategy, world_size, repeats, programs):
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as name:
        folder = pathlib.Path(name)
        case.write(folder)
        job = Job(case, strategy, world_size, folder, programs)
        try:
            times = {"freeze": [], "unfreeze": []}
            for _ in range(repeats):
                for action in times:
                    seconds, moved = job.change(action, case.half())
                    times[action].append((seconds, moved))
        finally:
            job.close()
    cells = [f"{case.parameters / 1e6:.0f} M", strategy, str(world_size)]
    for action, found in times.items():
        moved = int(statistics.median(moved for _, moved in found))
        # Two moments of what is trained then, where they are cut anew; all else stays.
        trained = case.parameters / (2 if action == "freeze" else 1)
        laid_out = int(trained * 8 / world_size) if moved > 0 else 0
        cells.append(f"{1000 * statistics.median(seconds for seconds, _ in found):.0f}")
        cells.append(f"{moved / 1e6:.1f}")
        cells.append(f"{least_ms(world_size, moved, laid_out):.0f}")
    print(f"| {' | '.join(cells)} |", flush=True)


def peer(case, world_size):
    """fairscale's ShardedDDP with OSS: seconds of refresh_trainable, by what had changed."""
    found = ranks_of(
        "bench.refresh.peer",
        world_size,
        lambda rank, store: [case.name, str(rank), str(world_size), store],
        {"PYTHONPATH": str(fairscale_folder())},
    )
    if found is None:
        print(f"| {case.parameters / 1e6:.0f} M | {world_size} | does not run | | |", flush=True)
        return
    found = json.loads(found)
    print(
        f"| {case.parameters / 1e6:.0f} M | {world_size} | "
        + " | ".join(f"{1000 * found[k]:.0f}" for k in ("freeze", "unfreeze", "nothing"))
        + " |",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--strategies", nargs="+", choices=STRATEGIES, default=list(STRATEGIES))
    parser.add_argument("--world-sizes", nargs="+", type=int, default=[2, 4])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--programs", help="folder with the four programs; built when not given")
    arguments = parser.parse_args()
    with harness.programs_of(arguments.programs) as programs:
        print(
            "\n| parameters | strategy | ranks | freeze half, ms | MB moved | the least, ms "
            "| unfreeze it, ms | MB moved | the least, ms |"
        )
        print("|---" * 9 + "|")
        for name in arguments.cases:
            for strategy in arguments.strategies:
                for world_size in arguments.world_sizes:
                    case = CASES[name]
                    shares = world_size if strategy == "fsdp" else 1
                    need = (
                        world_size
                        * case.parameters
                        * (8 / shares + 16 / (1 if strategy == "ddp" else world_size))
                    )
                    if need > MOST_BYTES:
                        print(
                            f"| {case.parameters / 1e6:.0f} M | {strategy} | {world_size} | not "
                            f"enough memory here | | | | | |"
                        )
                        continue
                    measure(case, strategy, world_size, arguments.repeats, programs)
    print(
        "\nfairscale 0.4.13, ShardedDDP with OSS: refresh_trainable, ms\n\n| parameters | ranks "
        "| half frozen | half unfrozen | nothing changed |"
    )
    print("|---" * 5 + "|")
    for name in arguments.cases:
        for world_size in arguments.world_sizes:
            if world_size * CASES[name].parameters * 16 <= MOST_BYTES:
                peer(CASES[name], world_size)


if __name__ == "__main__":
    main()
