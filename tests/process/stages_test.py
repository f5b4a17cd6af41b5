"""The stages of a job, with real programs: what a killed worker makes the next generation do again,
and what a client sees of them."""

import pytest

from tests.process import api, harness, paced_job

ROWS = {"npy": {"inputs": ["inputs.npy"], "labels": ["labels.npy"]}}
# A pass takes 12 rounds on two ranks.
SLOW = {"evaluation_ms": 150}


def write_job(muster, name, stages, **changes):
    return paced_job.write_job(
        muster.folder,
        pace_ms=1,
        name=f"{name}.yaml",
        more_options=SLOW,
        data={"train": ROWS, "validate": ROWS, "test": ROWS},
        schedule={"linear": {}},
        stages=stages,
        checkpoint={"directory": "checkpoints"},
        **({"export": None} | changes),
    )


def passes(client, job_id):
    """The stage, step, generation and measurements of each pass."""
    return [
        (kind, entry.step, entry.generation, getattr(entry, kind).SerializeToString())
        for entry in client.entries(job_id)
        for kind in ("validation", "test")
        if entry.HasField(kind)
    ]


@pytest.mark.parametrize(
    "stage, rank, generations",
    # The validation that is over keeps the row of the first generation.
    [("test", 1, [1, 2, 2]), ("validate", 0, [2, 2, 2])],
)
def test_a_worker_that_is_killed_in_a_stage_makes_only_this_stage_run_again(
    muster, stage, rank, generations
):
    stages = [
        {"fit": {"epochs": 1, "validate_every": 1}},
        {"validate": {}},
        {"test": {}},
        {"fit": {"steps": 3}},
        {"test": {}},
    ]
    daemon = muster.musterd(local_slots=2)
    client = api.Jobs(muster.address)
    muster.cli("submit", write_job(muster, "undisturbed", stages), "--id", "undisturbed")
    muster.cli("wait", "undisturbed")
    muster.cli("submit", write_job(muster, "killed", stages), "--id", "killed")
    assert client.get("killed").total_steps == 0, "only the ranks read the data"
    # Without the checkpoint, the next generation would do everything again.
    job = harness.eventually(
        lambda: (now := client.get("killed")).stage == stage and now.checkpoints and now,
        f"the first {stage} runs, and the checkpoint of its step is there",
    )
    assert [one.step for one in job.checkpoints] == [job.step] == [12]
    # 96 samples, 8 in each step.
    assert job.total_steps == 15
    harness.kill(job.ranks[rank].pid)
    muster.cli("wait", "killed")

    found, expected = passes(client, "killed"), passes(client, "undisturbed")
    assert [(kind, step) for kind, step, _, _ in expected] == [
        ("validation", 12),
        ("test", 12),
        ("test", 15),
    ]
    assert [generation for _, _, generation, _ in found] == generations
    assert [values for *_, values in found] == [values for *_, values in expected]
    losses = {
        name: [(entry.step, entry.loss) for entry in client.metrics(name)]
        for name in ("killed", "undisturbed")
    }
    assert losses["killed"] == losses["undisturbed"]
    assert len(losses["killed"]) == 15

    job = client.get("killed")
    assert (job.state, job.generation, job.restarts) == (api.Job.SUCCEEDED, 2, 1)
    assert job.test_step == 15 and job.test.samples == 96 and job.validation.samples == 96
    shown = muster.cli("get", "killed").out
    assert "test loss" in shown and "after step 15" in shown
    assert "test, 96 samples" in muster.cli("metrics", "killed").out
    client.close()
    muster.stop(daemon)


def test_a_job_of_tests_alone_needs_no_optimizer_and_begins_with_any_checkpoint(muster):
    daemon = muster.musterd(local_slots=2)
    client = api.Jobs(muster.address)
    stages = [{"fit": {"steps": 2}}, {"test": {}}]
    muster.cli("submit", write_job(muster, "trained", stages), "--id", "trained")
    muster.cli("wait", "trained")
    tested = write_job(
        muster,
        "tested",
        [{"test": {}}],
        optimizer=None,
        world_size=1,
        strategy={"fsdp": {"unit": ["first", "second"]}},
        start={"checkpoint": "trained"},
    )
    muster.cli("submit", tested, "--id", "tested")
    muster.cli("wait", "tested")
    there, here = client.get("trained").test, client.get("tested").test
    assert (here.samples, here.terms) == (there.samples, there.terms) == (96, 96)
    assert abs(here.loss - there.loss) <= 1e-6
    client.close()
    muster.stop(daemon)
