"""The building blocks of the rows of the table. Each row is a function (muster) that runs it and
returns what happened, and whether this is correct."""

import contextlib

from tests.faults import world as w

# The built paced.so.
PLUGIN = None
# (What was done, the function), in their order.
ROWS = []


def row(done):
    def keep(function):
        ROWS.append((done, function))
        return function

    return keep


class Failed(Exception):
    """The row could not be run, so it has no result."""


def job_file(muster, **changes):
    return w.write_job(muster, PLUGIN, **changes)


@contextlib.contextmanager
def cluster(muster, **options):
    made = w.World(muster, **options)
    try:
        yield made
    finally:
        made.close()


def submit(world, file, job_id="job"):
    world.muster.cli("submit", file, "--id", job_id)


def told(job):
    text = (
        f"{w.state_name(job)} at step {job.step}, generation {job.generation}, {job.restarts} "
        f"restarts used"
    )
    if job.reason:
        text += f", reason {job.reason}"
    if job.state_reason:
        text += f": {job.state_reason[:160]}"
    return text


def saves(folder):
    return sorted(
        (path.name for path in folder.glob("step-*") if ".tmp" not in path.name),
        key=lambda name: int(name.split("-")[1]),
    )
