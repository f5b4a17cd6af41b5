"""Jobs with `metrics: {tensorboard: logs}`."""

import pytest

from tests.process import api, event_files, harness, jobs

DATA = {"train": {"tokens": {"path": "train.bin", "dtype": "uint16"}}}
DATA |= {"validate": DATA["train"], "test": DATA["train"]}


@pytest.fixture
def cluster(muster):
    muster.daemon = muster.musterd()
    yield muster
    muster.stop(*(child for child in muster._children if child.poll() is None))
    muster.assert_no_process()


def submit(muster, job, **changes):
    changes = {"metrics": {"tensorboard": "logs"}, "export": None, "data": DATA} | changes
    muster.cli("submit", jobs.write_job(muster.folder, name=f"{job}.yaml", **changes), "--id", job)


def entries(muster, job):
    client = api.Jobs(muster.address)
    found = list(client.entries(job))
    client.close()
    return found


def folder(muster, job):
    return muster.folder / "logs" / job


def check(muster, job):
    """The job's files agree with the store; returns what is in them."""
    return event_files.assert_as_stored(folder(muster, job), entries(muster, job))


def get(muster, job):
    return muster.cli("get", job, "-o", "json").json()


def await_held(muster, job, step, generation=None):
    """The job is halted after this many steps, by its present processes."""
    return harness.eventually(
        lambda: (found := get(muster, job))["state"] == "PAUSED"
        and int(found["step"]) == step
        and (generation is None or int(found["generation"]) == generation)
        and found,
        f"{job} is halted after step {step}\n{muster.log()}",
    )


def reasons(muster, job):
    return [event["reason"] for event in get(muster, job).get("events", [])]
