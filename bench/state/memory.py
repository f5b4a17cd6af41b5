#!/usr/bin/env python3
"""The memory that a rank needs for a gather, a consolidation, a save and a load, and the bytes that
it reads on resume.

    bench/state/memory.py --programs DIR [--ranks 4] [--folder DIR]

The job is that of run.py (AdamW, 100 million parameters), and it is paused. Memory by RSS: the peak
of the resident memory during the operation (VmHWM, which is reset before), less what was resident
before it. Memory by the allocator: the peak of memory for other purposes than training
(RankMemory.other.peak_bytes, which is never reset), less the memory in use before the operation. So
a later operation shows at least the need of an earlier one. Of a load: the peaks since the process
began, less what is in use when the load is over. The bytes read are the bytes of a worker's read
calls until its session has started (rchar in /proc). The bytes of a worker of the same job without
a checkpoint are subtracted."""

import argparse
import json
import os
import pathlib
import shutil
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = pathlib.Path.home() / ".cache/muster/venv/bin/python"
if __name__ == "__main__" and pathlib.Path(sys.executable) != PYTHON:
    os.execv(PYTHON, [PYTHON, *sys.argv])
sys.path.insert(0, str(ROOT))

from bench.state import run  # noqa: E402
from tests.faults import programs as programs_by_hand  # noqa: E402

MB = 1e6


def status(pid, name):
    """In bytes."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/{pid}/status has no {name}")


def bytes_read(pid):
    return int(pathlib.Path(f"/proc/{pid}/io").read_text().split()[1])


def pids(muster):
    return [int(rank["pid"]) for rank in muster.job()["ranks"]]


# Workers send their memory every 2 s.
HEARTBEATS = 5


def memory(muster, purpose):
    """(now, peak) of each rank, by the allocator."""
    time.sleep(HEARTBEATS)
    uses = [rank["memory"].get(purpose, {}) for rank in muster.job()["ranks"]]
    return [(int(use.get("bytes", 0)), int(use.get("peak_bytes", 0))) for use in uses]


def peaks(muster, operation):
    """The additional memory of each rank during the operation: by RSS, and by the allocator."""
    given = [now for now, _ in memory(muster, "other")]
    before = {}
    for pid in pids(muster):
        pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")
        before[pid] = status(pid, "VmRSS")
    operation()
    resident = [max(0, status(pid, "VmHWM") - rss) for pid, rss in before.items()]
    most = [peak - now for (_, peak), now in zip(memory(muster, "other"), given)]
    return resident, most


def column(values):
    listed = ", ".join(f"{value / MB:.0f}" for value in values)
    return f"{max(values) / MB:.0f} MB ({listed})"


def tell(what, measured, slice_bytes, limit):
    resident, given = measured
    print(
        f"| {what} | {column(resident)} | {column(given)} | {slice_bytes / MB:.0f} MB | {limit} |",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--programs", type=pathlib.Path, required=True, help="a folder")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--folder", type=pathlib.Path)
    arguments = parser.parse_args()
    programs_by_hand.use()
    programs = programs_by_hand.check(arguments.programs)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="muster-memory-", dir=arguments.folder))
    muster = None
    try:
        run.write_inputs(folder)
        muster = run.Muster(programs, folder / "muster", arguments.ranks)
        fresh = [bytes_read(pid) for pid in pids(muster)]
        muster.cli("pause", "job", "--wait")
        time.sleep(1)
        moments, everything = 806e6 / arguments.ranks, 1205e6 / arguments.ranks
        weights = 402e6 / arguments.ranks

        def consolidate(*more):
            shutil.rmtree(folder / "model", ignore_errors=True)
            muster.cli("consolidate", "job", "--out", folder / "model", "--wait", *more)

        print("| operation | by RSS (each rank) | by the allocator | slice | limit |")
        print("|---|---|---|---|---|")
        held = peaks(muster, lambda: muster.gather("--hold"))
        tell("gather --hold", held, moments, "64 MiB")
        held = peaks(muster, lambda: consolidate("--hold"))
        tell("consolidate --hold", held, weights, "64 MiB")
        held = peaks(muster, lambda: consolidate("--hold", "--dtype", "bfloat16"))
        tell("consolidate --hold --dtype bfloat16", held, weights, "64 MiB")
        tell("consolidate", peaks(muster, consolidate), weights, "slice + 64 MiB")
        tell("gather", peaks(muster, muster.gather), moments, "slice + 64 MiB")
        tell("gather, again", peaks(muster, muster.gather), moments, "slice + 64 MiB")
        saved = peaks(
            muster, lambda: muster.cli("checkpoint", "job", "--wait", "-o", "json")
        )
        tell("checkpoint", saved, everything, "slice + 64 MiB")
        os.kill(pids(muster)[-1], 9)
        generation = int(muster.job()["generation"])
        while True:
            job = muster.job()
            if int(job["generation"]) > generation and job["state"] in ("RUNNING", "PAUSED"):
                break
            time.sleep(0.05)
        read = [bytes_read(pid) - min(fresh) for pid in pids(muster)]
        given = [peak - now for now, peak in memory(muster, "total")]
        resident = [status(pid, "VmHWM") - status(pid, "VmRSS") for pid in pids(muster)]
        tell("load", (resident, given), everything, "slice + 64 MiB")
        print(f"\nbytes read on resume: {column(read)}, limit: slice + 10%")
        print(json.dumps({"read_to_slice": max(read) / everything}))
    finally:
        if muster is not None:
            muster.close()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
