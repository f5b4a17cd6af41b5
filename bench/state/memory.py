#!/usr/bin/env python3
"""The memory that a rank needs for a gather and a save, and the bytes that it reads on resume.

    bench/state/memory.py --programs DIR [--ranks 4] [--folder DIR]

The job is that of run.py (AdamW, 100 million parameters). Memory: the peak of the resident memory
during the operation (VmHWM, which is reset before), less what was resident before it. The bytes
read are those of the read calls of a worker until its session has started (rchar in /proc), less
those of a worker of the same job that starts without a checkpoint."""

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


def peaks(muster, operation):
    """What each rank needed more during the operation."""
    before = {}
    for pid in pids(muster):
        pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")
        before[pid] = status(pid, "VmRSS")
    operation()
    return [max(0, status(pid, "VmHWM") - rss) for pid, rss in before.items()]


def tell(what, values, slice_bytes, limit):
    print(
        f"| {what} | {max(values) / MB:.0f} MB | {slice_bytes / MB:.0f} MB | {limit} "
        f"| {', '.join(f'{value / MB:.0f}' for value in values)} |",
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
        muster = run.Muster(programs, folder / "muster", arguments.ranks)
        fresh = [bytes_read(pid) for pid in pids(muster)]
        muster.cli("pause", "job", "--wait")
        time.sleep(1)
        moments, everything = 806e6 / arguments.ranks, 1205e6 / arguments.ranks
        print("| operation | largest | slice | limit | ranks, MB |\n|---|---|---|---|---|")
        held = peaks(muster, lambda: muster.gather("--hold"))
        tell("gather --hold", held, moments, "64 MiB")
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
        time.sleep(1)
        read = [bytes_read(pid) - min(fresh) for pid in pids(muster)]
        tell("bytes read on resume", read, everything, "slice + 10%")
        print(json.dumps({"read_to_slice": max(read) / everything}))
    finally:
        if muster is not None:
            muster.close()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
