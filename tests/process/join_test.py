"""Tests of ranks with different amounts of input, with real programs. Clients see the ranks that
have joined, also after kills. Training ends when the first rank runs out of input. All ranks report
the error of one rank."""

import pytest
import torch
import yaml
from safetensors.torch import save_file

from tests import exports
from tests.process import harness

STRATEGIES = ["ddp", "sharded_ddp", "fsdp"]


@pytest.fixture
def cluster(muster):
    muster.musterd()
    yield muster
    muster.stop(*(child for child in muster._children if child.poll() is None))
    muster.assert_no_process()


def write_job(muster, sizes, steps, bad=None, **changes):
    """`sizes`: rows of each rank; `bad`: (rank, row) with a number that is not finite."""
    random = torch.Generator().manual_seed(3)
    paths = []
    for rank, size in enumerate(sizes):
        inputs = torch.randn(size, 8, generator=random)
        if bad and bad[0] == rank:
            inputs[bad[1], 5] = float("inf")
        paths.append(f"{rank}.safetensors")
        save_file({"inputs": inputs, "labels": torch.arange(size) % 4}, muster.folder / paths[-1])
    job = {
        "name": "join",
        "world_size": len(sizes),
        "model": {"mlp": {"inputs": 8, "hidden": [16, 16], "classes": 4}},
        "data": {"train": {"safetensors": {}, "per_rank": paths}},
        "optimizer": {"adamw": {"lr": 1.0e-3}},
        "batch": {"per_rank": 4, "order": "sequential"},
        "uneven_inputs": {"join": {"divide_by": "active"}},
        "stages": [{"fit": {"steps": steps}}],
        "checkpoint": {"directory": "checkpoints", "every_steps": 4},
        "export": {"path": "model.safetensors"},
    } | changes
    path = muster.folder / "job.yaml"
    path.write_text(yaml.safe_dump(job, sort_keys=False))
    return path


def get(muster, job_id="job"):
    return muster.cli("get", job_id, "-o", "json").json()


def joined(job):
    since = {
        rank["rank"]: int(rank["joined_since_step"])
        for rank in job["ranks"]
        if "joined_since_step" in rank
    }
    assert job["joined_ranks"] == len(since) and job["active_ranks"] == len(job["ranks"]) - len(
        since
    )
    return since


def await_paused(muster, generation=1):
    return harness.eventually(
        lambda: (job := get(muster))["state"] == "PAUSED"
        and int(job["generation"]) == generation
        and job,
        "it is halted",
    )


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_who_has_joined_is_seen_and_survives_kills(cluster, strategy):
    muster = cluster
    sizes = [37, 7, 0]  # 10 steps an epoch; two steps of rank 1
    path = write_job(muster, sizes, 14, strategy={strategy: {}})
    weights = []
    for job_id in ("calm", "job"):
        muster.cli("submit", path, "--id", job_id)
        if job_id == "job":
            muster.cli("pause", "job", "--at-step", "6")
            muster.cli("pause", "job", "--at-step", "11")
        else:
            muster.agent("node", slots=3)
            muster.cli("wait", "calm")
            weights.append(exports.contents(muster.folder / "model.safetensors"))
    assert joined(await_paused(muster)) == {1: 3, 2: 1}
    table = muster.cli("ranks", "job").out
    assert "joined since step 3" in table and "joined since step 1" in table
    assert "3, 2 joined" in muster.cli("get", "job").out

    harness.kill(muster.processes("muster-worker")[-1].pid)
    assert joined(await_paused(muster, generation=2)) == {1: 3, 2: 1}
    harness.kill(muster.processes("musterd")[0].pid)
    muster._children[0].wait(timeout=harness.BOUND)
    muster.musterd()
    assert joined(await_paused(muster, generation=2)) == {1: 3, 2: 1}

    muster.cli("resume", "job", "--wait")
    assert joined(
        harness.eventually(
            lambda: (job := get(muster))["state"] == "PAUSED" and job["step"] == "11" and job,
            "the next epoch",
        )
    ) == {2: 1}
    muster.cli("resume", "job")
    muster.cli("wait", "job")
    weights.append(exports.contents(muster.folder / "model.safetensors"))
    assert weights[0] == weights[1]
    assert get(muster)["active_ranks"] == 0


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_training_ends_where_the_first_rank_runs_out(cluster, strategy):
    muster = cluster
    path = write_job(
        muster, [37, 9], 100, strategy={strategy: {}}, uneven_inputs={"stop_at_first": {}}
    )
    muster.agent("node", slots=2)
    muster.cli("submit", path, "--id", "job", "--wait")
    job = get(muster)
    assert job["state"] == "SUCCEEDED" and job["step"] == "3"
    assert (
        job["state_reason"]
        == "rank 1 has run out of input after step 3 (uneven_inputs: stop_at_first)"
    )
    assert [checkpoint["step"] for checkpoint in job["checkpoints"]] == ["3"]
    assert (muster.folder / "model.safetensors").exists()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_bad_sample_of_one_rank_is_told_by_all(cluster, strategy):
    muster = cluster
    path = write_job(muster, [37, 9, 37], 100, bad=(2, 21), strategy={strategy: {}})
    muster.agent("node", slots=3)
    muster.cli("submit", path, "--id", "job", "--wait", expect=100)
    job = get(muster)
    cause = "rank 2, micro-batch 0, samples 20, 21, 22 and 1 more of data.train"
    assert job["state"] == "FAILED" and job["failure"]["rank"] == 2
    assert cause in job["failure"]["reason"] and "row 21" in job["failure"]["reason"], job[
        "failure"
    ]
    # Most are ended before they have said that they know.
    assert all(cause in text for text in job["failure"].get("consequences", [])), job["failure"]
