#!/usr/bin/env python3
"""The optimizer's state of 100 million parameters (AdamW, 806 MB) to one file, and with the
parameters (1205 MB) to a checkpoint in the background; beside torch.save, PyTorch's DCP and dd.

    bench/state/run.py --programs DIR [--rounds 9] [--folder DIR]

Two ranks, fsdp. In each round every arm runs once, one after the other; ratios are computed within
rounds. While an arm runs, the others do nothing: Muster's job is paused (except for the arm "while
training"), and PyTorch's ranks wait for a line of input."""

import argparse
import datetime
import json
import os
import pathlib
import re
import shutil
import socket
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

from bench.interval import interval  # noqa: E402
from tests.faults import programs as programs_by_hand  # noqa: E402

WIDTH, LAYERS = 3168, 10  # 100.4 million parameters
STEPS = 4  # of which the losses are compared
BOUND = 600.0


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Peer:
    def __init__(self, folder):
        folder.mkdir()
        port = free_port()
        self.ranks = [
            subprocess.Popen(
                [
                    PYTHON,
                    ROOT / "bench/state/peer.py",
                    str(rank),
                    str(port),
                    folder,
                    str(WIDTH),
                    str(LAYERS),
                    str(STEPS),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=open(folder / f"log-{rank}", "wb"),
                text=True,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )
            for rank in (0, 1)
        ]
        self.folder = folder
        self.losses = json.loads(self.tell(None)[0])

    def tell(self, command):
        """Returns the answers of the ranks."""
        answers = []
        for process in self.ranks:
            if command is not None:
                process.stdin.write(command + "\n")
                process.stdin.flush()
        for rank, process in enumerate(self.ranks):
            answer = process.stdout.readline().strip()
            if not answer:
                raise RuntimeError((self.folder / f"log-{rank}").read_text()[-3000:])
            answers.append(answer)
        return answers

    def close(self):
        for process in self.ranks:
            process.kill()
            process.wait()


class Muster:
    def __init__(self, programs, folder, ranks=2):
        from tests.process import harness
        import yaml

        folder.mkdir()
        self.folder = folder
        self.compared = 0  # losses of steps after a load
        self.muster = harness.Muster(programs, folder)
        self.muster.musterd()
        self.muster.agent("node", slots=ranks)
        job = folder / "job.yaml"
        job.write_text(
            yaml.safe_dump(
                {
                    "name": "state",
                    "world_size": ranks,
                    "model": {
                        "mlp": {"inputs": WIDTH, "hidden": [WIDTH] * LAYERS, "classes": 2},
                        "weights": "../weights.safetensors",
                    },
                    "data": {"train": {"safetensors": {"path": "../rows.safetensors"}}},
                    "strategy": {"fsdp": {}},
                    "optimizer": {"adamw": {"lr": 1.0e-4}},
                    "batch": {"per_rank": 2, "order": "sequential"},
                    "stages": [{"fit": {"steps": 1000000}}],
                    "checkpoint": {"directory": "ckpt", "keep": 1},
                    "restart": {"max_restarts": 1000},
                }
            )
        )
        self.cli("submit", job, "--id", "job")
        self.await_steps(STEPS)

    def cli(self, *arguments):
        return self.muster.cli(*arguments)

    def job(self):
        return json.loads(self.cli("get", "job", "-o", "json").out)

    def await_steps(self, more):
        job = self.job()
        step = int(job.get("step", 0)) + more
        end = time.monotonic() + BOUND
        while int(job.get("step", 0)) < step:
            if time.monotonic() > end:
                raise RuntimeError(self.muster.log())
            time.sleep(0.05)
            job = self.job()

    def losses(self, last, generation=1):
        """By step, as soon as `generation` has trained the step `last`."""
        end, found, newest = time.monotonic() + BOUND, {}, 0
        while newest < generation and time.monotonic() < end:
            text, at = self.cli("metrics", "job", "-o", "json").out.rstrip(), 0
            while at < len(text):
                step, at = json.JSONDecoder().raw_decode(text, at)
                found[int(step["step"])] = step["loss"]
                newest = int(step["generation"]) if int(step["step"]) == last else newest
                at += len(text[at:]) - len(text[at:].lstrip())
        return found

    def gather(self, *more):
        out = self.folder / "state.pt"
        out.unlink(missing_ok=True)
        os.sync()
        done = json.loads(
            self.cli(
                "gather-optimizer-state", "job", "--out", out, "--wait", "-o", "json", *more
            ).out
        )
        result = done["result"]["gathered_optimizer_state"]
        return result["write_seconds"], result["seconds"]

    def save(self):
        """A step first, because there is one checkpoint of a step."""
        self.cli("resume", "job", "--wait")
        self.await_steps(1)
        self.cli("pause", "job", "--wait")
        done = json.loads(self.cli("checkpoint", "job", "--wait", "-o", "json").out)
        return done["result"]["checkpoint"]

    def load(self):
        """Returns the time for which rank 0 reads and checks its part of the newest checkpoint,
        after the loss of a worker. The steps after the checkpoint are trained twice, and must have
        the same losses."""
        begin = int(self.job()["step"])
        self.cli("resume", "job", "--wait")
        self.await_steps(2)
        self.cli("pause", "job", "--wait")
        job = self.job()
        last = int(job["step"])
        losses = self.losses(last, int(job["generation"]))
        before = {step: loss for step, loss in losses.items() if step > begin}
        os.kill(int(job["ranks"][1]["pid"]), 9)
        generation, end = int(job["generation"]), time.monotonic() + BOUND
        while int(job["generation"]) == generation or job["state"] not in ("RUNNING", "PAUSED"):
            if time.monotonic() > end:
                raise RuntimeError(self.muster.log())
            time.sleep(0.05)
            job = self.job()
        found = re.findall(
            r"checked and loaded in ([0-9.]+) s", self.cli("logs", "job", "--rank", "0").out
        )
        self.cli("resume", "job", "--wait")
        again = self.losses(last, generation + 1)
        self.compared += len(before)
        if any(again[step] != loss for step, loss in before.items()):
            raise RuntimeError(f"losses before the load {before}, and after it {again}")
        return found[-1]

    def close(self):
        self.muster.close()


def write_inputs(folder):
    """The rows and first weights with which both train."""
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(1)
    weights = {}
    for number in range(LAYERS + 1):
        layer = torch.nn.Linear(WIDTH, WIDTH if number < LAYERS else 2)
        weights[f"layers.{number}.weight"] = layer.weight.detach()
        weights[f"layers.{number}.bias"] = layer.bias.detach()
    save_file(weights, folder / "weights.safetensors")
    rows = {"inputs": torch.randn(64, WIDTH), "labels": torch.zeros(64, dtype=torch.int64)}
    save_file(rows, folder / "rows.safetensors")


def dd(folder, megabytes):
    target = folder / "zeros"
    target.unlink(missing_ok=True)
    os.sync()
    began = time.monotonic()
    subprocess.run(
        ["dd", "if=/dev/zero", f"of={target}", "bs=1M", f"count={megabytes}", "conv=fsync"],
        check=True,
        stderr=subprocess.DEVNULL,
    )
    return time.monotonic() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--programs", type=pathlib.Path, required=True, help="a folder")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--folder", type=pathlib.Path, help="on the disk to measure")
    arguments = parser.parse_args()
    programs_by_hand.use()
    programs = programs_by_hand.check(arguments.programs)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="muster-state-", dir=arguments.folder))
    print(f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC, {folder}")
    closing = []
    try:
        write_inputs(folder)
        peer = Peer(folder / "peer")
        closing.append(peer)
        muster = Muster(programs, folder / "muster")
        closing.append(muster)
        rows = {}
        by_step = muster.losses(STEPS)
        losses = [by_step[step + 1] for step in range(STEPS)]
        apart = max(abs(a - b) for a, b in zip(losses, peer.losses))
        print(f"losses of {STEPS} steps: {losses}; FSDP2's are at most {apart:.1e} apart")
        if apart > 1e-5:
            raise RuntimeError(f"FSDP2's losses: {peer.losses}")

        def note(name, seconds):
            rows.setdefault(name, []).append(float(seconds))

        for number in range(arguments.rounds + 1):  # the first one warms everything up
            if number == 1:
                rows.clear()
            muster.cli("pause", "job", "--wait")
            arms = [
                lambda: note("dd conv=fsync", dd(folder, 806)),
                lambda: note("torch.save alone, fsync", peer.tell("save")[0]),
                lambda: note("DCP full gather, torch.save, fsync", peer.tell("gather")[0]),
                lambda: note("Muster gather --hold", muster.gather("--hold")[0]),
                lambda: note("Muster gather", muster.gather()[0]),
            ]
            for arm in arms if number % 2 else arms[::-1]:
                # To free the blocks of an old file takes as long as to write some.
                for old in (folder / "peer").glob("*.pt"):
                    old.unlink()
                os.sync()
                arm()
            os.sync()
            copies = [answer.split() for answer in peer.tell("copy")]
            note("copy into new memory", max(float(one[0]) for one in copies))
            note("copy into the same memory", max(float(one[1]) for one in copies))
            os.sync()
            note("dd conv=fsync, 1205 MB", dd(folder, 1205))
            (folder / "zeros").unlink()
            os.sync()
            saved = muster.save()
            note("Muster save: stall", saved["stall_seconds"])
            note("Muster save: until durable", saved["write_seconds"])
            os.sync()
            note("dcp.async_save: stall", peer.tell("async_save")[0])
            os.sync()
            note("DCP load", max(map(float, peer.tell("load"))))
            note("Muster load", muster.load())
            written, stalled = muster.gather()
            note("Muster gather while training", written)
            note("Muster gather while training: stall", stalled)
            print(f"round {number}", flush=True)
        print(f"{muster.compared} losses after loads are those of the same steps before, bitwise")
        print("\n| arm | seconds, median | fastest to slowest |\n|---|---|---|")
        for name, seconds in rows.items():
            print(
                f"| {name} | {statistics.median(seconds):.3f} "
                f"| {min(seconds):.3f} to {max(seconds):.3f} |"
            )
        print("\n| ratio | median | 95% |\n|---|---|---|")
        for name, base in (
            ("Muster gather", "dd conv=fsync"),
            ("Muster gather --hold", "dd conv=fsync"),
            ("torch.save alone, fsync", "dd conv=fsync"),
            ("DCP full gather, torch.save, fsync", "dd conv=fsync"),
            ("Muster gather", "DCP full gather, torch.save, fsync"),
            ("Muster save: until durable", "dd conv=fsync, 1205 MB"),
            ("Muster save: stall", "copy into new memory"),
            ("Muster save: stall", "copy into the same memory"),
            ("dcp.async_save: stall", "copy into new memory"),
            ("Muster save: stall", "dcp.async_save: stall"),
            ("Muster load", "DCP load"),
        ):
            ratio = interval([a / b for a, b in zip(rows[name], rows[base])])
            print(f"| {name} / {base} | {ratio[0]:.3f} | {ratio[1]:.3f} to {ratio[2]:.3f} |")
    finally:
        for one in reversed(closing):
            one.close()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
