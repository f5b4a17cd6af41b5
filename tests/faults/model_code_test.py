"""Tests of model code that throws on one rank, while the others train or have joined. In each
strategy the job fails with an error that names the rank, and uses no restart."""

import pytest

from tests.bazel import runfile
from tests.faults import world
from tests.process import api, harness

STRATEGIES = ["ddp", "sharded_ddp", "fsdp"]
# Rank 0 has input for three steps, rank 1 for ten; the row that the plug-in knows is in rank 1's
# ninth, when rank 0 has joined.
UNEVEN, MARKED_LATE = (12, 40), (1, 35)
# Both have input for ten steps; it is in rank 1's fifth.
EVEN, MARKED_EARLY = (40, 40), (1, 17)


@pytest.fixture
def cluster(muster):
    made = world.World(muster, local=True)
    made.start()
    yield made
    made.stop()
    made.close()


def submit(cluster, strategy, place, joined):
    job = world.write_job(
        cluster.muster,
        runfile("tests/process/paced.so"),
        sizes=UNEVEN if joined else EVEN,
        marked=MARKED_LATE if joined else MARKED_EARLY,
        options={
            "fault": place,
            "fault_step": 9 if joined else 5,
            "fault_on": "marked",
            "pace_ms": 0,
        },
        strategy={strategy: {}},
        batch={"per_rank": 4, "order": "sequential", "last": "uneven"},
        uneven_inputs={"join": {"divide_by": "active"}},
        stages=[{"fit": {"steps": 10}}],
        restart={"max_restarts": 1},
        checkpoint=None,
        export=None,
    )
    cluster.muster.cli("submit", job, "--id", "job")


@pytest.mark.parametrize("joined", [False, True], ids=["active", "joined"])
@pytest.mark.parametrize("place", ["forward", "loss", "backward"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_throws_on_one_rank_ends_the_job_by_name(cluster, strategy, place, joined):
    submit(cluster, strategy, place, joined)
    job = cluster.await_end()
    assert job.state == api.Job.FAILED, "the fault did not happen"
    assert job.failure.rank == 1, job.failure
    # An error from autograd may be LibTorch's own, so the job is started again.
    assert job.restarts == (1 if place == "backward" else 0), job.failure
    assert f"the {place} fails, as the test wants" in job.failure.reason
    # The rank whose step it was: the others only lost it.
    assert job.failure.step in (8, 9) if joined else job.failure.step in (4, 5)
    harness.eventually(lambda: not cluster.workers(), "no worker is left")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_step_hook_that_throws_on_one_rank_ends_the_job_by_name(cluster, strategy):
    job = world.write_job(
        cluster.muster,
        runfile("tests/process/paced.so"),
        options={"fault": "hook", "fault_step": 5, "pace_ms": 0},
        strategy={strategy: {}},
        checkpoint=None,
        export=None,
    )
    cluster.muster.cli("submit", job, "--id", "job")
    job = cluster.await_end()
    pid = int((cluster.muster.folder / "fault").read_text())
    assert job.state == api.Job.FAILED and job.restarts == 0, job.state_reason
    assert "the hook fails, as the test wants" in job.failure.reason
    threw = [rank.rank for rank in job.ranks if rank.pid == pid]
    assert threw == [job.failure.rank]
