"""Step time of Muster on one GPU beside eager PyTorch on the same GPU: `python3 -m bench.gpu.run`,
in a folder that tests/gpu/carry.sh has made (its run.sh sets what is needed).

Each arm is a process that makes the same steps from the same weights on the same samples; the first
ten are left out. A round runs each arm once, in turn; the order is reversed from round to round
(ABBA). Ratios are taken within rounds; the table has their median and a 95% bootstrap interval.
PyTorch's DDP runs twice in each round, A against A. If the interval of this ratio does not contain
1 or goes beyond 2%, there is no resolution.

The share of a step in which the GPU idles comes from a separate run. It is the time without kernel
and copy, between the first and the last kernel of ten steps."""

import argparse
import collections
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import torch

from bench.gpu.cases import ADAMW, CASES
from bench.gpu.peer import TRACED, WARM_UP
from bench.interval import interval
from tests.gpu import models, ranks, weights_file

STEPS = 60
ARMS = {
    "Muster ddp": ("muster", {"ddp": {}}),
    "PyTorch DDP": ("peer", "ddp"),
    "Muster fsdp": ("muster", {"fsdp": {}}),
    "PyTorch FSDP2": ("peer", "fsdp"),
    "PyTorch DDP, again": ("peer", "ddp"),
}
PEERS = {"Muster ddp": "PyTorch DDP", "Muster fsdp": "PyTorch FSDP2"}
TWINS = ("PyTorch DDP", "PyTorch DDP, again")


def prepare(case, folder):
    weights_file.save(
        dict(models.build(case.model).named_parameters()), folder / "weights.safetensors"
    )
    context, vocabulary = case.options["context"], case.options["vocab_size"]
    count = 16 * case.per_rank * context + 1
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, min(vocabulary, 1000), (count,), generator=generator)
    (folder / "train.bin").write_bytes(
        b"".join(token.to_bytes(2, "little") for token in tokens.tolist())
    )


def job(case, folder, strategy):
    return {
        "name": "bench",
        "world_size": 1,
        "device": ranks.device(),
        "model": case.model | {"weights": str(folder / "weights.safetensors")},
        "data": {"train": {"tokens": {"path": str(folder / "train.bin"), "dtype": "uint16"}}},
        "strategy": strategy,
        "optimizer": {"adamw": ADAMW},
        "precision": case.precision,
        "batch": {"per_rank": case.per_rank, "order": "sequential"},
        "stages": [{"fit": {"steps": STEPS}}],
    }


def muster(case, folder, strategy, trace=None):
    options = []
    if trace:
        options = ["--trace-from", WARM_UP, "--trace-to", WARM_UP + TRACED, "--trace", trace]
    events = ranks.run(job(case, folder, strategy), folder / "run", options)
    steps = [event for event in events if "step" in event]
    return {
        "seconds": sum(step["seconds"] for step in steps[WARM_UP:]) / (len(steps) - WARM_UP),
        "losses": [step["loss"] for step in steps],
        "mfu": statistics.median(step.get("mfu", 0.0) for step in steps[WARM_UP:]),
    }


def peer(name, folder, kind, trace=None):
    (folder / "peer").unlink(missing_ok=True)
    command = [sys.executable, "-m", "bench.gpu.peer", folder, name, kind, ranks.device(), STEPS]
    done = subprocess.run(
        [str(part) for part in command + ([trace] if trace else [])], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return None if trace else json.loads(done.stdout.splitlines()[-1])


def run_arm(arm, name, folder, trace=None):
    kind, what = ARMS[arm]
    if kind == "muster":
        return muster(CASES[name], folder, what, trace)
    return peer(name, folder, what, trace)


def on_gpu(path):
    """The kernels and copies of a trace."""
    events = json.loads(pathlib.Path(path).read_text())["traceEvents"]
    return [
        event for event in events if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")
    ]


def kernels(events, most=40):
    """Lines: milliseconds and number per step, and the name, of those that take longest."""
    total, count = collections.Counter(), collections.Counter()
    for event in events:
        total[event["name"]] += event["dur"] / 1000 / TRACED
        count[event["name"]] += 1 / TRACED
    lines = [f"{sum(total.values()):8.3f} {sum(count.values()):7.1f} all"]
    for name, duration in total.most_common(most):
        lines.append(f"{duration:8.3f} {count[name]:7.1f} {name[:160]}")
    return lines


def idle_share(events):
    """Of the time from the first kernel to the last."""
    busy = sorted((event["ts"], event["ts"] + event["dur"]) for event in events)
    if not busy:
        return None
    covered, end = 0.0, busy[0][0]
    for begin, finish in busy:
        covered += max(0.0, finish - max(begin, end))
        end = max(end, finish)
    return 1 - covered / (end - busy[0][0])


def measure(name, rounds, seconds, folder, with_traces, kernels_file=None):
    """Lines of Markdown. No round begins that would not end within `seconds`, except the first
    two. If these take longer already, there are no traces. Adds the kernels of each arm to
    `kernels_file`."""
    case = CASES[name]
    began = time.monotonic()
    prepare(case, folder)
    measured = {arm: [] for arm in ARMS}
    longest = 0.0
    for number in range(rounds):
        begins = time.monotonic()
        # The traces take nearly as long as a round.
        if number >= 2 and begins - began + (1 + with_traces) * longest > seconds:
            rounds = number
            break
        for arm in ARMS if number % 2 == 0 else reversed(ARMS):
            measured[arm].append(run_arm(arm, name, folder))
        longest = max(longest, time.monotonic() - begins)
    idle, without = {}, []
    with_traces = with_traces and time.monotonic() - began + longest / 2 <= seconds
    for arm in list(ARMS)[:4] if with_traces else ():
        try:
            run_arm(arm, name, folder, folder / "trace.json")
            events = on_gpu(folder / "trace.json")
            idle[arm] = idle_share(events)
            if kernels_file:
                with open(kernels_file, "a") as file:
                    file.write("\n".join([f"{name}, {arm}:", *kernels(events), "", ""]))
        except AssertionError as error:  # what was measured is worth having without
            without += ["", f"No trace of {arm}: {' '.join(str(error).split())[-400:]}"]

    def ratio(arm, base):
        pairs = zip(measured[arm], measured[base])
        return interval([a["seconds"] / b["seconds"] for a, b in pairs])

    def text(numbers):
        return "{:.3f} ({:.3f} to {:.3f})".format(*numbers)

    lines = [
        f"#### {name}, {case.per_rank} samples of {case.options['context']} tokens, "
        f"{case.precision}, {rounds} rounds",
        "",
        "| | ms per step | tokens per s | MFU | GPU idle | ratio to PyTorch (95%) |",
        "|---|---|---|---|---|---|",
    ]
    for arm in ARMS:
        seconds = statistics.median(run["seconds"] for run in measured[arm])
        mfu = statistics.median(run.get("mfu", 0.0) for run in measured[arm])
        share = idle.get(arm)
        lines.append(
            f"| {arm} | {1000 * seconds:.2f} | {case.tokens() / seconds:.0f} | "
            f"{f'{100 * mfu:.1f}%' if mfu else '-'} | "
            f"{'-' if share is None else f'{100 * share:.1f}%'} | "
            f"{text(ratio(arm, PEERS[arm])) if arm in PEERS else '-'} |"
        )
    twins = ratio(*TWINS)
    lines += ["", f"A against A: {text(twins)}."]
    if not (twins[1] <= 1 <= twins[2] and 0.98 <= twins[1] and twins[2] <= 1.02):
        lines += ["**No resolution, no claim.**"]
    lines += without + ["", "Losses after steps 1, 10 and 60:"]
    for arm in ARMS:
        losses = measured[arm][0]["losses"]
        lines.append(f"- {arm}: " + ", ".join(f"{losses[i]:.4f}" for i in (0, 9, STEPS - 1)))
    return lines + [""]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", nargs="+", default=["gpt2-small", "llama-1b"], choices=CASES)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="for each case")
    parser.add_argument("--no-traces", action="store_true")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--kernels", type=pathlib.Path, help="a file for the times of kernels")
    options = parser.parse_args()
    if ranks.why_not():
        print(f"bench/gpu: skipped: {ranks.why_not()}")
        return
    for name in options.cases:
        with tempfile.TemporaryDirectory() as folder:
            lines = measure(
                name,
                options.rounds,
                options.seconds,
                pathlib.Path(folder),
                not options.no_traces,
                options.kernels,
            )
        print("\n".join(lines), flush=True)
        if options.out:
            with open(options.out, "a") as file:
                file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
