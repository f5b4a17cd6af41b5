"""Tests of `muster stage` and `muster sample` with real programs, while the node leaves or a worker
is killed. The request has the result of an undisturbed job, and training does not change."""

import signal

import pytest

from tests import exports
from tests.process import api, harness, jobs, paced_job, small_job

STEPS, AT, LATER = 12, 5, 9
NODE = "local"  # as musterd names its own
ROWS = {"npy": {"inputs": ["inputs.npy"], "labels": ["labels.npy"]}}
# The requests at these steps.
REQUESTS = {
    "stage": dict.fromkeys((AT, LATER), ("stage", "validate")),
    "sample": {
        AT: ("sample", "--no-wait", "--prompt", "1 2 3", "--max-tokens", "1000"),
        LATER: ("sample", "--no-wait", "--prompt", "4", "--max-tokens", "9", "--temperature", "2"),
    },
}


def write_job(muster, job_id, kind, slow):
    """A job of which a pass of validation takes seconds only if it is `slow`."""
    settings = {
        "name": f"{job_id}.yaml",
        "schedule": {"linear": {}},
        "stages": [{"fit": {"steps": STEPS}}],
        "checkpoint": {"directory": "checkpoints", "every_steps": 2},
        "export": {"path": f"{job_id}.safetensors"},
    }
    if kind == "stage":
        data = {"train": ROWS, "validate": ROWS}
        # A pass takes 12 rounds on two ranks.
        options = {"evaluation_ms": 250 if slow else 0}
        return paced_job.write_job(
            muster.folder, pace_ms=1, more_options=options, data=data, **settings
        )
    model = {"vocab_size": 64, "context": 1004, "layers": 8, "heads": 2, "width": 32}
    if not (muster.folder / "train.bin").exists():
        jobs.write_tokens(muster.folder / "train.bin", 16384, vocabulary=64)
    return jobs.write_job(
        muster.folder,
        model={"gpt2": model | {"dropout": 0.1}},
        batch={"per_rank": 1},
        **settings,
    )


def ask(muster, *arguments):
    return muster.cli(*arguments, "-o", "json").json()


def submit(muster, job_id, kind, slow):
    """Returns the operations of its two requests, of which the first one takes long."""
    # The job starts when it has them.
    small_job.await_node(muster, NODE)
    muster.cli("cordon", NODE)
    muster.cli("submit", write_job(muster, job_id, kind, slow), "--id", job_id)
    names = [
        ask(muster, command, job_id, *arguments, "--at-step", step)["name"]
        for step, (command, *arguments) in REQUESTS[kind].items()
    ]
    muster.cli("uncordon", NODE)
    return names


def await_first(client):
    """The job while its first request is being carried out."""
    job = harness.eventually(
        lambda: (now := client.get("job")).operations[0].applied_at_step and now,
        "the request is being carried out",
    )
    first = job.operations[0]
    assert first.applied_at_step == AT and not first.done, first
    assert f"under way since step {AT}" in first.progress, first
    return job


def outcome(muster, job_id, operations):
    """The results that must not depend on faults of the job."""
    client = api.Jobs(muster.address)
    found = [ask(muster, "operation", name) for name in operations]
    losses = [(entry.step, entry.loss) for entry in client.metrics(job_id)]
    client.close()
    assert all(one["done"] and "error" not in one for one in found), found
    weights = exports.contents(muster.folder / f"{job_id}.safetensors")
    return [one["result"] for one in found], losses, weights


def disturbed(muster, kind, disturb):
    """Runs a job, and one to which `disturb(job)` happens while its first request is being carried
    out. Returns the second one, and the generations of its passes."""
    calm = submit(muster, "calm", kind, slow=False)
    muster.cli("wait", "calm")
    requests = submit(muster, "job", kind, slow=True)
    client = api.Jobs(muster.address)
    disturb(await_first(client))
    muster.cli("wait", "job")
    job = client.get("job")
    passes = [entry for entry in client.entries("job") if entry.HasField("validation")]
    client.close()
    results, losses, weights = outcome(muster, "job", requests)
    assert (job.state, job.generation) == (api.Job.SUCCEEDED, 2), job
    assert len(losses) == STEPS
    assert (results, losses, weights) == outcome(muster, "calm", calm)
    results = [next(iter(one.values())) for one in results]
    assert [one["step"] for one in results] == [str(AT), str(LATER)]
    if kind == "stage":
        assert [entry.step for entry in passes] == [AT, LATER]
    return job, [entry.generation for entry in passes]


@pytest.fixture
def cluster(muster):
    muster.musterd()
    muster.node = muster.agent(NODE, slots=2)
    yield muster
    muster.stop(*(child for child in muster._children if child.poll() is None))
    muster.assert_no_process()


# Rank 0 computes the sample.
@pytest.mark.parametrize("rank", [0, 1])
def test_a_worker_that_is_killed_in_a_sample_makes_the_next_generation_make_it(cluster, rank):
    job, _ = disturbed(cluster, "sample", lambda job: harness.kill(job.ranks[rank].pid))
    assert job.restarts == 1


@pytest.mark.parametrize("kind", ["stage", "sample"])
def test_a_node_that_is_drained_loses_none(cluster, kind):
    def drain(_):
        cluster.cli("drain", NODE, "--wait")
        assert cluster.processes("muster-worker") == []
        cluster.cli("uncordon", NODE)

    job, passes = disturbed(cluster, kind, drain)
    assert job.restarts == 0
    assert passes == ([1, 2] if kind == "stage" else []), "the drain waits for the first one"


@pytest.mark.parametrize("kind", ["stage", "sample"])
def test_an_agent_that_kills_its_workers_makes_the_next_generation_carry_it_out(cluster, kind):
    def stop(_):
        cluster.node.send_signal(signal.SIGTERM)
        small_job.await_node(cluster, NODE, "DRAINING")
        cluster.node.send_signal(signal.SIGQUIT)
        cluster.wait(cluster.node)
        assert cluster.processes("muster-worker") == []
        cluster.agent(NODE, slots=2)

    job, passes = disturbed(cluster, kind, stop)
    assert job.restarts == 0
    assert passes == ([2, 2] if kind == "stage" else []), "SIGQUIT does not wait"


@pytest.mark.parametrize("kind", ["sample", "stage"])
def test_a_coordinator_that_is_stopped_with_its_agent_loses_none(muster, kind):
    daemon = muster.musterd(local_slots=2)

    def restart(_):
        nonlocal daemon
        muster.stop(daemon)
        muster.assert_no_process(at_once=True)
        daemon = muster.musterd(local_slots=2)

    job, passes = disturbed(muster, kind, restart)
    assert job.restarts == 0
    assert passes == ([1, 2] if kind == "stage" else [])
    muster.stop(daemon)


def test_a_halted_job_that_is_drained_meanwhile_halts_again(cluster):
    operation, _ = submit(cluster, "job", "stage", slow=True)
    cluster.cli("pause", "job", "--at-step", AT)  # it arrives during the pass at the latest
    client = api.Jobs(cluster.address)
    await_first(client)
    client.close()
    cluster.cli("drain", NODE, "--wait")
    cluster.cli("uncordon", NODE)
    harness.eventually(
        lambda: (job := ask(cluster, "get", "job"))["state"] == "PAUSED"
        and int(job["generation"]) == 2,
        "it halts again",
    )
    found = ask(cluster, "operation", operation)
    assert found["done"] and found["result"]["stage"]["step"] == str(AT), found
    cluster.cli("resume", "job")
    cluster.cli("wait", "job")
