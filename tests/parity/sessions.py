"""Jobs run by muster-session: a worker's own code in one process, ranks as threads, and every step
saved."""

import json
import shutil
import subprocess

from tests import bazel
from tests.parity import checkpoints, cluster


def run(spec, folder, changes=None, start=None, commands=(), job_id="job"):
    """The folders of the checkpoints, by step. `changes`: {steps done: rules of trainability};
    `start`: folder of the checkpoint to go on from; `commands`: further ones. Needs
    //worker/control:muster-session."""
    steering = [
        {"at_step": done, "set_trainability": {"rules": rules}}
        for done, rules in sorted((changes or {}).items())
        if rules
    ]
    errors = errors_of(spec, folder, [*steering, *commands], start, job_id)
    assert errors == [], errors
    return checkpoints.all_steps(folder / "checkpoints", job_id)


def errors_of(spec, folder, commands, start=None, job_id="job"):
    """Returns muster-session's messages about commands that failed. It saves every step of the
    job."""
    folder.mkdir()
    spec = checkpoints.with_checkpoints(spec, folder)
    (folder / "job.yaml").write_text(json.dumps(spec))
    (folder / "commands").write_text("".join(json.dumps(command) + "\n" for command in commands))
    command = [
        bazel.runfile("worker/control/muster-session"),
        folder / "job.yaml",
        *("--job", job_id),
        *("--commands", folder / "commands"),
    ]
    if start is not None:
        own = folder / "checkpoints" / job_id / start.name
        shutil.copytree(start, own)
        # For the folder it is the same process of the same generation, so the folder does not count
        # as another job's.
        for name in (".muster-job", ".muster-epoch"):
            shutil.copy(start.parent / name, own.parent)
        command += ["--from", own]
    done = subprocess.run(command, capture_output=True, text=True, env=cluster.environment())
    assert done.returncode == 0, done.stderr
    return [line for line in done.stderr.splitlines() if line.startswith("command ")]


def failure_of(spec, folder):
    """Returns muster-session's message about a job that fails."""
    (folder / "job.yaml").write_text(json.dumps(spec))
    command = [bazel.runfile("worker/control/muster-session"), folder / "job.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, env=cluster.environment())
    assert done.returncode == 100, done.stderr
    return done.stderr
