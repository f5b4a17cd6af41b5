"""Copies the metrics of the jobs of a musterd to Weights & Biases, while they run.

    pip install wandb && wandb login
    openssl rand -hex 32 >secret && chmod 600 secret
    export MUSTER_ADDRESS=/var/lib/muster                     # where musterd is
    python examples/webhook/wandb_sync.py --listen 127.0.0.1:8091 --secret secret --project mine &
    musterd --webhook http://127.0.0.1:8091/ --webhook-secret secret ...

It needs the packages `muster` (docs/python.md) and `wandb`. Each attempt of a job is one run, with
the job's id and the number of the attempt as its id. A process of its own follows each run, so that
a run that fails does not disturb the others. Steps that are computed again after a restart are not
replaced: W&B keeps the first values of a step."""

import argparse
import signal
import subprocess
import sys

import receiver

ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")


def values_of(entry):
    """The measured numbers of a muster.v1.StepMetrics; those of passes as "validation/loss"."""
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


def follow(job_id, attempt, project):
    """Logs all metrics of the job until it has ended."""
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
            run.log(values_of(entry), step=entry.step)
        run.finish(exit_code=0 if job.state == "SUCCEEDED" else 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--listen", default="127.0.0.1:8091", metavar="HOST:PORT")
    parser.add_argument("--secret", metavar="FILE", help="as --webhook-secret of musterd")
    parser.add_argument("--project", default="muster")
    parser.add_argument("--follow", nargs=2, metavar=("JOB", "ATTEMPT"), help="only this run")
    arguments = parser.parse_args()
    if arguments.follow:
        return follow(arguments.follow[0], int(arguments.follow[1]), arguments.project)
    if not arguments.secret:
        parser.error("--secret is missing: the file that musterd has as --webhook-secret")
    followers = {}

    def handle(message):
        run = message["job_id"], str(message["attempt"])
        # An ended job was too short to be seen while it ran.
        if run in followers or message["state"] not in ("RUNNING", *ENDED):
            return
        followers[run] = subprocess.Popen(
            [sys.executable, __file__, "--project", arguments.project, "--follow", *run]
        )

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        receiver.serve(arguments.listen, arguments.secret, handle)
    finally:
        for follower in followers.values():
            follower.terminate()
        for follower in followers.values():
            follower.wait()


if __name__ == "__main__":
    main()
