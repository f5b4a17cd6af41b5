"""The fixtures of the process tests (a Muster of real programs), and clients of it."""

import pytest

from tests.process import harness, jobs
from tests.process.conftest import *  # noqa: F403
from tests.python import package  # noqa: F401

import muster as m  # isort: skip


@pytest.fixture
def client(muster):
    daemon = muster.musterd(local_slots=2)
    with m.Client(muster.address) as client:
        harness.eventually(lambda: _nodes(client), "the local agent is there")
        yield client
    muster.stop(daemon)


def _nodes(client):
    try:
        return client.nodes()
    except m.Unavailable:
        return []


@pytest.fixture
def endless(muster, client):
    """A job that runs until it is stopped."""
    path = jobs.write_job(
        muster.folder,
        stages=[{"fit": {"steps": 1000000}}],
        model={
            "gpt2": {"vocab_size": 256, "context": 16, "layers": 1, "heads": 2, "width": 32},
            "tokenizer": "bytes",
        },
        data={
            "train": {"tokens": {"path": "train.bin", "dtype": "uint16"}},
            "validate": {"tokens": {"path": "train.bin", "dtype": "uint16"}},
        },
    )
    job = client.submit(path, id="endless")
    for state in job.watch(harness.BOUND):
        if state.step > 0:
            break
    yield job
    if job.state not in ("SUCCEEDED", "FAILED", "CANCELLED"):
        job.stop()
        job.wait(harness.BOUND)
