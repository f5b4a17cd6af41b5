"""Ranks of a job as processes of muster-rank."""

import json
import os
import pathlib
import subprocess

import torch

from tests import bazel


def device():
    """The model's device: cuda, or cpu for a test of these files."""
    return os.environ.get("MUSTER_GPU_DEVICE", "cuda")


def why_not():
    """Why nothing can run here; empty: it can."""
    if device() == "cpu" or torch.cuda.is_available():
        return ""
    return "this machine has no GPU"


def program(name):
    """A program of this repository: of Bazel's, or of the folder that carry.sh has made."""
    folder = os.environ.get("MUSTER_GPU_PROGRAMS")
    return str(pathlib.Path(folder, name) if folder else bazel.runfile(f"tests/gpu/{name}"))


def environment():
    """The environment of a program; run.sh says where its libraries are."""
    libraries = os.environ.get("MUSTER_GPU_LIBRARIES")
    return os.environ | ({"LD_LIBRARY_PATH": libraries} if libraries else {})


_started = []


def end_all():
    """Kills what a failed test has left."""
    while _started:
        process = _started.pop()
        process.kill()
        process.wait()


class Rank:
    def __init__(self, process):
        self.process = process
        self.events = []
        _started.append(process)

    def read_to_end(self):
        """Reads all events that are left, and returns all."""
        self.events += [json.loads(line) for line in self.process.stdout]
        self.process.wait()
        return self.events

    def read_until(self, fits):
        """Reads events up to one that fits, and returns it; None if the rank ends before."""
        for line in self.process.stdout:
            self.events.append(json.loads(line))
            if fits(self.events[-1]):
                return self.events[-1]
        return None


def start(spec, folder, options=()):
    """Starts all ranks of a job. `options`: of each muster-rank."""
    folder.mkdir(exist_ok=True)
    (folder / "job.yaml").write_text(json.dumps(spec))
    (folder / "meet").unlink(missing_ok=True)
    ranks = []
    for rank in range(spec["world_size"]):
        command = [program("muster-rank"), folder / "job.yaml", "--rank", rank]
        command += ["--meet", folder / "meet", *options]
        command = [str(part) for part in command]
        with open(folder / f"stderr-{rank}", "w") as errors:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment()
            )
        ranks.append(Rank(process))
    return ranks


def run(spec, folder, options=()):
    """The events of rank 0; all ranks must end well."""
    ranks = start(spec, folder, options)
    events = [rank.read_to_end() for rank in ranks]
    for rank, own in enumerate(events):
        ended = own[-1] if own else {}
        assert ended.get("end") == "done", (
            f"rank {rank}: {ended}\n" + (folder / f"stderr-{rank}").read_text()[-2000:]
        )
    return events[0]


def losses(events):
    return [event["loss"] for event in events if "step" in event]
