"""The time for which training waits while the state of GPT-2 small (AdamW) is copied from the GPU.
The state is for a checkpoint and for a gather in the background: `python3 -m bench.gpu.state`, in a
folder that tests/gpu/carry.sh has made.

The job has one rank and runs under musterd and an agent. It trains while the benchmark asks for
checkpoints and gathers. The measured wait is the one that Muster reports for each (stall_seconds,
seconds). The benchmark asks for the next one when the last one is on the disk. The peer is a
process that copies tensors of the same sizes on the same GPU into pinned memory, and waits once.
The job is halted meanwhile. Its first copy allocates the memory, and its second copy uses the same
memory. In the first round Muster allocates the memory, and keeps this memory from then on. Ratios
are taken within the other rounds; the table has their median and a 95% bootstrap interval."""

import argparse
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import torch

from bench.gpu.cases import ADAMW, CASES
from bench.gpu.run import job, prepare
from bench.interval import interval
from tests.gpu import cluster, models, ranks


class Peer:
    """The process that copies: it answers with the seconds into new and into used memory."""

    def __init__(self):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.gpu.state", "--peer"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def copy(self, name, copies):
        """`copies`: how many tensors there are of each parameter."""
        self._process.stdin.write(f"{name} {copies}\n")
        self._process.stdin.flush()
        return map(float, self._process.stdout.readline().split())

    def close(self):
        self._process.kill()
        self._process.wait()


def peer():
    for line in sys.stdin:
        name, copies = line.split()
        shapes = [value.shape for value in models.build(CASES[name].model).parameters()]
        tensors = [torch.ones(s, device=ranks.device()) for s in shapes for _ in range(int(copies))]
        wait = torch.cuda.synchronize if ranks.device() == "cuda" else lambda: None
        wait()
        began = time.perf_counter()
        host = [
            torch.empty(tensor.shape, pin_memory=ranks.device() == "cuda") for tensor in tensors
        ]
        seconds = []
        for _ in range(2):
            for own, tensor in zip(host, tensors):
                own.copy_(tensor, non_blocking=True)
            wait()
            seconds.append(time.perf_counter() - began)
            began = time.perf_counter()
        del host, tensors
        # The memory is freed so that the next round allocates it anew.
        if ranks.device() == "cuda":
            torch.cuda.empty_cache()
            torch._C._host_emptyCache()
        print(*seconds, flush=True)


class Job:
    def __init__(self, muster, spec):
        self.muster = muster
        self.folder = muster.folder
        muster.musterd()
        muster.agent()
        muster.submit(spec)
        muster.await_step(10)

    def checkpoint(self):
        self.muster.await_step(int(self.muster.get()["step"]) + 2)
        name = self.muster.cli("checkpoint", "job", "-o", "json").json()["name"]
        return self.muster.operation(name)

    def gather(self):
        self.muster.await_step(int(self.muster.get()["step"]) + 2)
        words = ("gather-optimizer-state", "job", "--out", self.folder / "state.pt", "--overwrite")
        name = self.muster.cli(*words, "-o", "json").json()["name"]
        return self.muster.operation(name)


def measure(case, rounds, seconds, folder):
    """Lines of Markdown. No round begins that would not end within `seconds`, except the first
    three."""
    began = longest = 0.0
    prepare(CASES[case], folder)
    spec = job(CASES[case], folder, {"ddp": {}})
    spec["stages"] = [{"fit": {"steps": 1_000_000}}]
    spec["checkpoint"] = {"directory": str(folder / "checkpoints"), "keep": 1}
    muster = cluster.Cluster(cluster.programs(folder / "bin"), folder)
    other = Peer()
    rows = {}

    def note(name, value):
        rows.setdefault(name, []).append(float(value))

    try:
        running = Job(muster, spec)
        began = time.monotonic()
        for number in range(rounds + 1):
            begins = time.monotonic()
            if number >= 3 and begins - began + longest > seconds:
                rounds = number - 1
                break
            saved, gathered = running.checkpoint(), running.gather()
            note("checkpoint: stall", saved["stall_seconds"])
            note("checkpoint: until durable", saved["write_seconds"])
            note("gather: stall", gathered["seconds"])
            note("gather: until durable", gathered["write_seconds"])
            muster.cli("pause", "job", "--wait")
            for what, copies in (("checkpoint", 3), ("gather", 2)):
                new, used = other.copy(case, copies)
                note(f"{what}: PyTorch's copy into new memory", new)
                note(f"{what}: PyTorch's copy into used memory", used)
            muster.cli("resume", "job", "--wait")
            longest = max(longest, time.monotonic() - begins)
        sizes = {"checkpoint": int(saved["bytes"]), "gather": int(gathered["bytes"])}
        step = statistics.median(
            float(line["duration"].rstrip("s")) for line in muster.metrics()[-100:]
        )
    finally:
        muster.close()
        other.close()

    lines = [
        f"#### State of {case}, {rounds} rounds; checkpoint {sizes['checkpoint'] / 1e6:.0f} MB, "
        f"gather {sizes['gather'] / 1e6:.0f} MB; a step takes {1000 * step:.1f} ms",
        "",
        "| | ms in the first round | ms, median of the others | fastest to slowest |",
        "|---|---|---|---|",
    ]
    for name, values in rows.items():
        first, *rest = (1000 * value for value in values)
        lines.append(
            f"| {name} | {first:.1f} | {statistics.median(rest):.1f} | "
            f"{min(rest):.1f} to {max(rest):.1f} |"
        )
    lines += ["", "| ratio | median | 95% |", "|---|---|---|"]
    for what in ("checkpoint", "gather"):
        for memory in ("used", "new"):
            base = f"{what}: PyTorch's copy into {memory} memory"
            pairs = list(zip(rows[f"{what}: stall"], rows[base]))[1:]
            median, low, high = interval([stall / copy for stall, copy in pairs])
            lines.append(f"| {what}: stall / copy into {memory} memory | {median:.3f} | "
                         f"{low:.3f} to {high:.3f} |")
    return lines + [""]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--case", default="gpt2-small", choices=CASES)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--peer", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        return peer()
    if ranks.why_not():
        return print(f"bench/gpu: skipped: {ranks.why_not()}")
    with tempfile.TemporaryDirectory() as folder:
        lines = measure(options.case, options.rounds, options.seconds, pathlib.Path(folder))
    print("\n".join(lines), flush=True)
    if options.out:
        options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
