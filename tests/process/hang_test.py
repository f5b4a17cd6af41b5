"""Ranks that hang, and ranks that are only slow, with real programs: heartbeats continue in both
cases.

What is tested takes for granted that no lease ends: a program that stands still for a lease is
replaced by a new generation, without a restart. So the lease is longer than a busy machine with a
slow disk stands still, which was 3.9 s. The other times are multiples of it.
"""

import pytest
import torch
from safetensors.torch import save_file

from tests.bazel import runfile
from tests.process import jobs

LEASE, NO_PROGRESS = "10s", "30s"
ROWS = {"safetensors": {"path": "rows.safetensors"}}


@pytest.fixture
def cluster(muster):
    muster.lease = LEASE
    muster.musterd(local_slots=2)
    yield muster
    muster.stop(*(child for child in muster._children if child.poll() is None))
    muster.assert_no_process()


def write_job(muster, options, samples=24, **changes):
    rows = {"inputs": torch.randn(samples, 3), "labels": torch.arange(samples) % 2}
    save_file(rows, muster.folder / "rows.safetensors")
    return jobs.write_job(
        muster.folder,
        **{
            "model": {
                "plugin": {
                    "path": str(runfile("worker/models/plugin/plugin_faults.so")),
                    "name": "faulty",
                    "options": options,
                }
            },
            "data": {"train": ROWS},
            "batch": {"per_rank": 1},
            "stages": [{"fit": {"steps": 12}}],
            "checkpoint": {"directory": "checkpoints", "every_steps": 3},
            "schedule": None,
            "export": None,
            "watchdog": {"no_progress": NO_PROGRESS},
        }
        | changes,
    )


def job(muster):
    return muster.cli("get", "job", "-o", "json").json()


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
@pytest.mark.parametrize("rank", ["0", "1"])
def test_the_rank_that_hangs_is_blamed_and_the_job_goes_on(cluster, rank, strategy):
    muster = cluster
    options = {"fault": "hangs", "rank": rank, "path": str(muster.folder / "hung")}
    job_file = write_job(muster, options, strategy={strategy: {}})
    muster.cli("submit", job_file, "--id", "job")
    muster.cli("wait", "job")
    ended = job(muster)
    assert (ended["state"], ended["step"], ended["restarts"]) == ("SUCCEEDED", "12", 1), ended
    failure = ended["failure"]
    assert (failure["rank"], failure["generation"]) == (int(rank), "1"), failure
    assert (
        "made no progress for" in failure["reason"] and "it is behind" in failure["reason"]
    ), failure
    shown = failure["collectives"]
    other = 1 - int(rank)
    assert shown[0].startswith(f"rank {rank}: number ") and shown[-1].startswith(
        f"rank {other}: number "
    ), shown
    assert shown[-1].endswith("not ended"), shown


def test_a_slow_validation_is_no_hang_however_long_it_takes(cluster):
    """Rank 1 needs 96 times 0.4 s for its samples; rank 0 waits for it during all of this time."""
    muster = cluster
    job_file = write_job(
        muster,
        {"fault": "slow-evaluation", "rank": "1"},
        samples=192,
        data={"train": ROWS, "validate": ROWS},
        stages=[{"fit": {"steps": 4, "validate_every": 4}}],
    )
    muster.cli("submit", job_file, "--id", "job")
    muster.cli("wait", "job")
    ended = job(muster)
    assert (ended["state"], ended["generation"], ended["restarts"]) == ("SUCCEEDED", "1", 0), ended
    assert not ended.get("failure"), ended


@pytest.mark.parametrize("fault", ["other-order", "one-unit-more"])
def test_ranks_that_call_different_units_end_with_an_error_that_names_them(cluster, fault):
    """The units are of one size, so sizes do not show it."""
    muster = cluster
    job_file = write_job(
        muster,
        {"fault": fault, "rank": "1"},
        strategy={"fsdp": {"unit": ["a", "b"]}},
        watchdog={"no_progress": "10m"},
        restart={"max_restarts": 0},
    )
    muster.cli("submit", job_file, "--id", "job")
    muster.cli("wait", "job", expect=100)
    reason = job(muster)["failure"]["reason"]
    assert "the ranks call different collectives" in reason, reason
    assert any(unit in reason for unit in ("unit 'a'", "unit 'b'", "the root")), reason
