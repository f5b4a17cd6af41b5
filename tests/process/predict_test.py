"""Tests of the stage `predict` with real programs. A worker that is killed or stopped during the
stage leaves no part of a file. The next generation writes the same file as an undisturbed job."""

import numpy
import pytest

from tests.process import api, harness, jobs, paced_job, small_job

ROWS = {"npy": {"inputs": ["inputs.npy"], "labels": ["labels.npy"]}}
UNLABELLED = {"npy": {"inputs": ["inputs.npy"]}}


def write_job(muster, name, output, predict_ms=0, stages=None, **changes):
    stages = stages or [{"fit": {"steps": 3}}, {"predict": {"output": output}}]
    return paced_job.write_job(
        muster.folder,
        pace_ms=1,
        name=f"{name}.yaml",
        more_options={"predict_ms": predict_ms},
        data={"train": ROWS, "predict": UNLABELLED},
        schedule={"linear": {}},
        stages=stages,
        checkpoint={"directory": "checkpoints"},
        **({"export": None} | changes),
    )


@pytest.fixture
def running(muster):
    daemon = muster.musterd(local_slots=2)
    client = api.Jobs(muster.address)
    yield client
    client.close()
    muster.stop(daemon)


def temporaries(folder, output):
    return [path for path in folder.glob(f".{output}.*.tmp")]


def in_the_middle(muster, client, job_id, output):
    """The job, once it writes its predictions."""

    def writing():
        job = client.get(job_id)
        return job if job.stage == "predict" and temporaries(muster.folder, output) else None

    job = harness.eventually(writing, f"{job_id} writes {output}")
    assert not (muster.folder / output).exists()
    return job


@pytest.mark.parametrize("rank", [0, 1])
def test_a_worker_that_is_killed_in_a_prediction_makes_it_run_again(muster, running, rank):
    muster.cli("submit", write_job(muster, "undisturbed", "undisturbed.npy"), "--id", "undisturbed")
    muster.cli("wait", "undisturbed")
    killed = write_job(muster, "killed", "killed.npy", predict_ms=100)
    muster.cli("submit", killed, "--id", "killed")
    job = in_the_middle(muster, running, "killed", "killed.npy")
    harness.kill(job.ranks[rank].pid)
    muster.cli("wait", "killed")

    job = running.get("killed")
    assert (job.state, job.generation, job.restarts) == (api.Job.SUCCEEDED, 2, 1)
    assert job.step == 3
    expected = muster.folder / "undisturbed.npy"
    assert (muster.folder / "killed.npy").read_bytes() == expected.read_bytes()
    assert numpy.load(expected).shape == (paced_job.ROWS, paced_job.CLASSES)
    assert temporaries(muster.folder, "killed.npy") == []
    told = [event for event in job.events if event.reason == "PREDICTIONS_WRITTEN"]
    assert [event.step for event in told] == [3]
    assert "has logits, float32 [96, 4]" in told[0].message
    assert "PREDICTIONS_WRITTEN" in muster.cli("get", "killed").out


def test_a_worker_that_is_killed_while_it_generates_makes_it_run_again(muster, running):
    def write(name):
        texts = {"prompts": [[1, 2, 3], [4], [5, 6]], "max_tokens": 4000, "temperature": 0.5}
        model = {"vocab_size": 64, "context": 4096, "layers": 2, "heads": 2, "width": 32}
        return jobs.write_job(
            muster.folder,
            name=f"{name}.yaml",
            model={"gpt2": model},
            stages=[{"predict": {"output": f"{name}.json", "generate": texts}}],
            **dict.fromkeys(
                ("data", "optimizer", "schedule", "batch", "clip_grad_norm", "checkpoint", "export")
            ),
        )

    muster.cli("submit", write("undisturbed"), "--id", "undisturbed")
    muster.cli("wait", "undisturbed")
    muster.cli("submit", write("killed"), "--id", "killed")
    job = harness.eventually(
        lambda: (now := running.get("killed")).stage == "predict" and now, "it generates"
    )
    harness.kill(job.ranks[1].pid)
    assert not (muster.folder / "killed.json").exists()
    muster.cli("wait", "killed")
    job = running.get("killed")
    assert (job.state, job.generation, job.restarts) == (api.Job.SUCCEEDED, 2, 1)
    expected = (muster.folder / "undisturbed.json").read_bytes()
    assert (muster.folder / "killed.json").read_bytes() == expected


def test_a_stop_ends_a_prediction_between_two_batches(muster, running):
    # All batches together would take longer than this test may.
    slow = write_job(muster, "slow", "slow.npy", predict_ms=2000, batch={"per_rank": 1})
    muster.cli("submit", slow, "--id", "slow")
    in_the_middle(muster, running, "slow", "slow.npy")
    muster.cli("stop", "slow")
    muster.cli("wait", "slow", expect=103)
    assert running.get("slow").state == api.Job.CANCELLED
    assert not (muster.folder / "slow.npy").exists()
    assert temporaries(muster.folder, "slow.npy") == []


def test_a_node_that_leaves_ends_a_prediction_between_two_batches(muster):
    daemon = muster.musterd()
    agents = {name: muster.agent(name) for name in ("one", "two")}
    for name in agents:
        small_job.await_node(muster, name)
    client = api.Jobs(muster.address)
    for name, pace in (("undisturbed", 0), ("left", 200)):
        job_file = write_job(muster, name, f"{name}.npy", predict_ms=pace, world_size=1)
        muster.cli("submit", job_file, "--id", name)
        if name == "undisturbed":
            muster.cli("wait", name)
    job = in_the_middle(muster, client, "left", "left.npy")
    muster.stop(agents.pop(job.ranks[0].node))
    muster.cli("wait", "left")
    job = client.get("left")
    assert (job.state, job.generation, job.restarts) == (api.Job.SUCCEEDED, 2, 0)
    expected = (muster.folder / "undisturbed.npy").read_bytes()
    assert (muster.folder / "left.npy").read_bytes() == expected
    client.close()
    muster.stop(*agents.values(), daemon)


def test_an_existing_file_is_refused_before_the_job_is_queued(muster, running):
    theirs = muster.folder / "p.npy"
    theirs.write_text("the work of another year")
    job_file = write_job(muster, "job", "p.npy")
    for command in ("validate", "submit", "run"):
        refused = muster.cli(command, job_file, expect=2)
        assert "stages[1].predict.output" in refused.err, refused.err
        assert "overwrite: true" in refused.err, refused.err
    assert theirs.read_text() == "the work of another year"
    stage = {"predict": {"output": "p.npy", "overwrite": True, "what": "classes"}}
    overwriting = write_job(muster, "job", "", stages=[{"fit": {"steps": 3}}, stage])
    muster.cli("submit", overwriting, "--id", "overwriting")
    muster.cli("wait", "overwriting")
    assert numpy.load(theirs).shape == (paced_job.ROWS,)


def test_a_file_that_appears_meanwhile_is_not_replaced(muster, running):
    job_file = write_job(
        muster, "late", "late.npy", predict_ms=100, restart={"max_restarts": 0}
    )
    muster.cli("submit", job_file, "--id", "late")
    in_the_middle(muster, running, "late", "late.npy")
    (muster.folder / "late.npy").write_text("somebody else's")
    muster.cli("wait", "late", expect=100)
    job = running.get("late")
    assert job.state == api.Job.FAILED
    assert "stages[1].predict.output" in job.state_reason, job.state_reason
    assert "has other contents" in job.state_reason and "overwrite: true" in job.state_reason
    assert (muster.folder / "late.npy").read_text() == "somebody else's"
    assert temporaries(muster.folder, "late.npy") == []


def test_of_two_jobs_with_the_same_output_the_second_one_does_not_replace_the_file(muster, running):
    release = muster.folder / "release"
    for name, seed in (("one", 1), ("two", 2)):
        path = paced_job.write_job(
            muster.folder,
            pace_ms=1,
            name=f"{name}.yaml",
            # Both begin to predict at the same time.
            more_options={"predict_ms": 50, "hold_step": 3, "release": release},
            seed=seed,
            world_size=1,
            data={"train": ROWS, "predict": UNLABELLED},
            schedule={"linear": {}},
            stages=[{"fit": {"steps": 3}}, {"predict": {"output": "p.npy"}}],
            checkpoint={"directory": "checkpoints"},
            export=None,
        )
        # A job of the same name might replace the file.
        muster.cli("submit", path, "--id", name, "--set", f"name={name}")
    for name in ("one", "two"):
        harness.eventually(lambda n=name: running.get(n).step >= 1, f"{name} trains")
    release.touch()
    harness.eventually(lambda: len(temporaries(muster.folder, "p.npy")) == 2, "both write")
    ended = {}
    for name in ("one", "two"):
        muster.cli("wait", name, expect=None)
        ended[name] = running.get(name)
    failed = [job for job in ended.values() if job.state == api.Job.FAILED]
    (good,) = [job for job in ended.values() if job.state == api.Job.SUCCEEDED]
    assert len(failed) == 1 and failed[0].restarts == 0, failed
    assert failed[0].reason == "FINAL_SAVE_FAILED"
    for part in ("stages[1].predict.output", "p.npy", "has other contents", "overwrite: true"):
        assert part in failed[0].state_reason, failed[0].state_reason
    assert temporaries(muster.folder, "p.npy") == []
    assert [event.reason for event in good.events].count("PREDICTIONS_WRITTEN") == 1
    # Once the file is moved away, the other job can write its own one.
    first = (muster.folder / "p.npy").rename(muster.folder / "first.npy")
    muster.cli("retry", failed[0].id)
    muster.cli("wait", failed[0].id)
    second = muster.folder / "p.npy"
    assert first.stat().st_size == second.stat().st_size
    assert first.read_bytes() != second.read_bytes(), "which is another one"


def test_a_broken_file_of_prompts_is_refused_with_the_prompt(muster, running):
    (muster.folder / "prompts.json").write_text("[[1, 2], [3, 999]]")
    texts = {"prompts": "prompts.json", "max_tokens": 4}
    job_file = jobs.write_job(
        muster.folder,
        stages=[{"fit": {"steps": 8}}, {"predict": {"output": "t.json", "generate": texts}}],
    )
    refused = muster.cli("validate", job_file, "--address", "", expect=2)
    assert "stages[1].predict.generate.prompts" in refused.err, refused.err
    assert "prompts.json: prompts[1]: token 1: found 999" in refused.err, refused.err
    # A coordinator reads no inputs: the ranks find it before they train.
    muster.cli("submit", job_file, "--id", "prompts")
    muster.cli("wait", "prompts", expect=100)
    job = running.get("prompts")
    assert "prompts[1]: token 1: expected an id" in job.state_reason, job.state_reason
    assert job.step == 0
