#!/usr/bin/env python3
"""The cost of a step hook: `bench/hook/run.py` builds, measures and prints a table for each
strategy.

The method stands in bench/harness.py and bench/table.py; bench/README.md says why.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = pathlib.Path.home() / ".cache/muster/venv/bin/python"
if __name__ == "__main__" and pathlib.Path(sys.executable) != PYTHON:
    os.execv(PYTHON, [PYTHON, *sys.argv])
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

from bench import harness, table  # noqa: E402

WORLD_SIZE = 2
WIDTH, LAYERS, CLASSES = 1024, 6, 10
SAMPLES, PER_RANK = 256, 32
STRATEGIES = ["ddp", "sharded_ddp", "fsdp"]
# Name, the model's hook, trainable.refresh.
ARMS = [
    ("no hook", "none", "auto"),
    ("no hook, again", "none", "auto"),
    ("flag hook", "flags", "auto"),
    ("flag hook, refresh: manual", "flags", "manual"),
    ("hook that writes values", "values", "auto"),
]


def job(strategy, hook, refresh, folder):
    options = {"width": WIDTH, "layers": LAYERS, "classes": CLASSES, "hook": hook}
    return {
        "name": "hook",
        "world_size": WORLD_SIZE,
        "model": {
            "plugin": {
                "path": str(folder / "layers.so"),
                "name": "layers",
                "options": {name: str(value) for name, value in options.items()},
            }
        },
        "data": {"train": {"safetensors": {"path": str(folder / "rows.safetensors")}}},
        "strategy": {strategy: {}},
        "trainable": {"refresh": refresh},
        "optimizer": {"adamw": {"lr": 1e-5}},
        "batch": {"per_rank": PER_RANK},
        "stages": [{"fit": {"steps": 10_000_000}}],
    }


def write(folder):
    rows = torch.randn(SAMPLES, WIDTH, generator=torch.Generator().manual_seed(1))
    labels = torch.arange(SAMPLES) % CLASSES
    save_file({"inputs": rows, "labels": labels}, folder / "rows.safetensors")
    subprocess.run(
        [
            ROOT / "examples/plugin/build.sh",
            ROOT / "bench/hook/layers.cc",
            folder / "layers.so",
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )


def cpu_ratio_to(base):
    """A column: CPU seconds per step of an arm through those of `base`, round by round."""

    def cell(arm):
        if arm is base:
            return "1"
        pairs = zip(arm.measured, base.measured)
        return "%.3f (%.3f to %.3f)" % table.interval([a / b for (_, a), (_, b) in pairs])

    return cell


def measure(strategy, arguments, programs, folder):
    arms = []
    try:
        for name, hook, refresh in ARMS:
            spec = job(strategy, hook, refresh, folder)
            place = folder / f"{strategy}-{len(arms)}"
            # All arms run at once, and each finds its processes by the folder of their programs.
            own = shutil.copytree(programs, folder / f"{strategy}-{len(arms)}-bin")
            harness.start(strategy, arms, harness.Muster.local, name, spec, place, own)
        rounds = harness.run_rounds(strategy, arms, arguments.rounds, arguments.block)
        if rounds is None:
            return
        without, again, flags = arms[:3]
        table.Table(
            title=f"{strategy}: a step hook",
            subject=flags,
            subject_name="the flag hook's",
            base=without,
            base_name="no hook",
            twins=(without, again),
            columns=(("CPU s per step, ratio to no hook (95%)", cpu_ratio_to(without)),),
        ).print(arms, rounds)
    finally:
        for arm in arms:
            arm.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--strategies", nargs="+", choices=STRATEGIES, default=STRATEGIES)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--block", type=float, default=3.0, help="seconds")
    parser.add_argument("--programs", help="folder with the four programs; built when not given")
    arguments = parser.parse_args()
    with harness.programs_of(arguments.programs) as programs:
        with tempfile.TemporaryDirectory(prefix="muster-bench-") as name:
            folder = pathlib.Path(name)
            write(folder)
            for strategy in arguments.strategies:
                measure(strategy, arguments, programs, folder)


if __name__ == "__main__":
    main()
