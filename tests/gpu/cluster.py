"""A Muster of real programs whose jobs compute on the GPU: musterd, one agent, and the client, as
users run them. With MUSTER_GPU_DEVICE=cpu the agent offers slots of the CPU instead."""

import json
import os
import pathlib
import subprocess

from tests.gpu import ranks
from tests.process import harness


def programs(folder):
    """Returns a folder with the four programs: the carried folder, or a new folder with Bazel's
    programs."""
    carried = os.environ.get("MUSTER_GPU_PROGRAMS")
    return pathlib.Path(carried) if carried else harness.install(folder)


class Cluster(harness.Muster):
    def environment(self):
        libraries = os.environ.get("MUSTER_GPU_LIBRARIES")
        return super().environment() | ({"LD_LIBRARY_PATH": libraries} if libraries else {})

    def agent(self, node="node", slots=1):
        """On a GPU: it offers what it finds."""
        if ranks.device() == "cpu":
            return super().agent(node, slots)
        return self.spawn("muster-agent", "--coordinator", self.address, "--node", node)

    # ---- Jobs ----

    def submit(self, spec, commands=()):
        """Submits a job as 'job', without settings that are None. `commands`: lists of words
        without the job's name. If no agent runs yet, the commands are known before the first
        step."""
        path = self.folder / "job.yaml"
        given = {key: value for key, value in spec.items() if value is not None}
        path.write_text(json.dumps(given))  # JSON is YAML
        self.cli("submit", path, "--id", "job")
        return [
            self.cli(command, "job", *words, "-o", "json").json()["name"]
            for command, *words in commands
        ]

    def get(self):
        return self.cli("get", "job", "-o", "json").json()

    def await_job(self, fits, what):
        """Waits until the job fits. No test makes the job begin more than twice. A job that begins
        more often cannot start."""

        def found():
            job = self.get()
            fine = job["state"] not in ("FAILED", "CANCELLED") and int(job["generation"]) <= 2
            assert fine, self.describe()
            return fits(job) and job

        return harness.eventually(found, what)

    def await_halted(self, generation=1):
        return self.await_job(
            lambda job: job["state"] == "PAUSED" and int(job["generation"]) == generation,
            f"generation {generation} is halted",
        )

    def await_step(self, step):
        return self.await_job(lambda job: int(job.get("step", 0)) >= step, f"step {step} is done")

    def operation(self, name):
        """Waits for the operation, which must succeed, and returns its result."""
        done = self.cli("operation", name, "--wait", "-o", "json").json()
        assert done["done"] and "error" not in done, done
        ((_, result),) = done["result"].items()
        return result

    def finish(self):
        self.await_job(lambda job: job["state"] == "SUCCEEDED", "the job succeeds")

    def metrics(self):
        """Returns the values of all steps, in order."""
        lines = self.cli("metrics", "job", "-o", "json").out.splitlines()
        steps = [step for step in map(json.loads, lines) if "validation" not in step]
        assert [int(step["step"]) for step in steps] == list(range(1, len(steps) + 1))
        return steps

    def losses(self):
        return [step["loss"] for step in self.metrics()]

    def worker(self):
        (process,) = self.processes("muster-worker")
        return process

    def describe(self):
        """Returns the output of the programs and the job's state, for people, after a failure."""
        said = [self.log(200)]
        for words in (("nodes",), ("get", "job"), ("operations", "job"), ("logs", "job")):
            said.append(f"---- muster {' '.join(words)}")
            try:
                result = self.cli(*words, expect=None, timeout=10)
                said += result.out.splitlines()[-100:] + result.err.splitlines()[-5:]
            except (OSError, subprocess.TimeoutExpired) as error:
                said.append(str(error))
        return "\n".join(said)
