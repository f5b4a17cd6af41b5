"""Copies the metrics of the jobs of a musterd to Weights & Biases, while they run.

    pip install wandb && wandb login
    openssl rand -hex 32 >secret && chmod 600 secret
    export MUSTER_ADDRESS=/var/lib/muster                     # where musterd is
    python examples/webhook/wandb_sync.py --listen 127.0.0.1:8091 --secret secret --project mine &
    musterd --webhook http://127.0.0.1:8091/ --webhook-secret secret ...

It needs the packages `muster` (docs/how-to/python.md) and `wandb`. Each attempt of a job is one
run. The run's id is the job's id and the number of the attempt, and the run has the steps that
this attempt computed. A process of its own follows each run, so that a run that fails does not
disturb the others. If too many runs are active, further runs begin when others have ended: musterd
sends the message again. Steps that are computed again after a restart are not replaced: W&B keeps
the first values of a step."""

import argparse
import collections
import signal
import subprocess
import sys

import receiver

ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")
# The most processes at a time.
MOST_FOLLOWERS = 50
# Runs that have had a process: they do not get a second one.
REMEMBERED = 10_000


def values_of(entry):
    """Returns the measured numbers of a muster.v1.StepMetrics. Numbers of passes have names such as
    "validation/loss"."""
    values = {}
    for field, value in entry.ListFields():
        if field.name in ("step", "generation"):
            continue
        if field.name in ("validation", "test"):
            for inner, number in value.ListFields():
                if isinstance(number, (bool, int, float)):
                    values[f"{field.name}/{inner.name}"] = number
        elif isinstance(value, (bool, int, float)):
            values[field.name] = value
        elif field.name == "duration":
            values["seconds"] = value.seconds + value.nanos / 1e9
    return values


def follow(job_id, attempt, generation, project):
    """Logs the metrics of the job from this generation on, until it has ended."""
    import muster
    import wandb

    with muster.Client() as client:
        job = client.job(job_id)
        run = wandb.init(
            project=project,
            id=f"{job_id}-{attempt}",
            name=job_id,
            config={"job": job_id, "attempt": attempt},
            resume="allow",
        )
        for entry in job.metrics_entries(follow=True):
            if entry.generation >= generation:
                run.log(values_of(entry), step=entry.step)
        run.finish(exit_code=0 if job.state == "SUCCEEDED" else 1)


class Followers:
    """The processes that follow runs."""

    def __init__(self, command):
        self._command = command
        self._known = collections.OrderedDict()
        self._running = []

    def start(self, job_id, attempt, generation):
        """Starts a process, once for each run. Raises an error if there are too many processes."""
        # Collects ended processes, which would stay in the kernel's list otherwise.
        self._running = [process for process in self._running if process.poll() is None]
        if (job_id, attempt) in self._known:
            return
        if len(self._running) >= MOST_FOLLOWERS:
            raise RuntimeError(f"{MOST_FOLLOWERS} runs are followed already")
        run = job_id, str(attempt), str(generation)
        self._running.append(subprocess.Popen([*self._command, "--follow", *run]))
        self._known[job_id, attempt] = True
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)

    def stop(self):
        for process in self._running:
            process.terminate()
        for process in self._running:
            process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--listen", default="127.0.0.1:8091", metavar="HOST:PORT")
    parser.add_argument("--secret", metavar="FILE", help="as --webhook-secret of musterd")
    parser.add_argument("--project", default="muster")
    parser.add_argument(
        "--follow", nargs=3, metavar=("JOB", "ATTEMPT", "GENERATION"), help="only this run"
    )
    arguments = parser.parse_args()
    if arguments.follow:
        job_id, attempt, generation = arguments.follow
        return follow(job_id, int(attempt), int(generation), arguments.project)
    if not arguments.secret:
        parser.error("--secret is missing: the file that musterd has as --webhook-secret")
    followers = Followers([sys.executable, __file__, "--project", arguments.project])

    def handle(message):
        # An ended job was too short to be seen while it ran.
        if message["state"] not in ("RUNNING", *ENDED):
            return
        attempt = message["attempt"]
        # All steps of a later attempt have this generation or a later one.
        followers.start(message["job_id"], attempt, message["generation"] if attempt > 1 else 0)

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        receiver.serve(arguments.listen, arguments.secret, handle)
    finally:
        followers.stop()


if __name__ == "__main__":
    main()
