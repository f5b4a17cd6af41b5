"""musterd and two agents of one slot each; the command line and a Python client see the same."""

import json

from google.protobuf import json_format
from safetensors import safe_open

from tests.process import api, harness, jobs


def parse(text):
    return json_format.Parse(text, api.Job())


def objects(text):
    """All JSON objects of a text, one after the other."""
    decoder, at, found = json.JSONDecoder(), 0, []
    while text[at:].strip():
        value, length = decoder.raw_decode(text[at:].lstrip())
        at += len(text[at:]) - len(text[at:].lstrip()) + length
        found.append(value)
    return found


def test_a_job_from_submit_to_its_end(muster):
    tokens = {"tokens": {"path": "train.bin", "dtype": "uint16"}}
    job_file = jobs.write_job(
        muster.folder,
        data={"train": tokens, "validate": tokens},
        stages=[{"fit": {"steps": 20, "validate_every": 10}}, {"validate": {}}],
    )
    daemon = muster.musterd()
    client = api.Jobs(muster.address)

    submitted = muster.cli("submit", job_file, "--id", "first", "-o", "json").json()
    assert submitted["id"] == "first"
    waiting = harness.eventually(
        lambda: (job := client.get("first")).state_reason and job, "the job says why it waits"
    )
    assert waiting.state == api.Job.QUEUED and "2" in waiting.state_reason, waiting.state_reason

    agents = [muster.agent("node-1"), muster.agent("node-2")]
    watched = objects(muster.cli("watch", "first", "-o", "json").out)
    muster.cli("wait", "first")
    states = [job["state"] for job in watched]
    assert states[-1] == "SUCCEEDED" and "RUNNING" in states, states
    versions = [int(job["version"]) for job in watched]
    assert versions == sorted(set(versions))

    job = client.get("first")
    assert parse(muster.cli("get", "first", "-o", "json").out) == job
    assert job.state == api.Job.SUCCEEDED
    assert (job.step, job.total_steps, job.generation, job.restarts) == (20, 20, 1, 0)
    assert [(rank.rank, rank.step) for rank in job.ranks] == [(0, 20), (1, 20)]
    assert {rank.node for rank in job.ranks} == {"node-1", "node-2"}
    assert [checkpoint.step for checkpoint in job.checkpoints] == [10, 15, 20]
    assert muster.files("checkpoints/first") == sorted(
        c.path.rsplit("/", 1)[1] for c in job.checkpoints
    )
    assert job.exported_path == str(muster.folder / "model.safetensors")
    assert 0 < job.loss < 7 and 0 < job.validation_loss < 7 and job.validation_step == 20
    with safe_open(job.exported_path, "pt") as weights:
        assert weights.get_tensor("transformer.wte.weight").shape == (256, 32)

    metrics = list(client.metrics("first"))
    assert [step.step for step in metrics] == list(range(1, 21))
    assert metrics[-1].loss == job.loss
    assert all(step.samples == 8 and step.grad_norm > 0 for step in metrics)

    listed = muster.cli("list", "-o", "json").json()
    assert [entry["id"] for entry in listed["jobs"]] == ["first"]
    assert "first" in muster.cli("list").out
    assert "SUCCEEDED" in muster.cli("get", "first").out.upper()
    assert muster.cli("logs", "first").out.strip(), "the workers said nothing"

    client.close()
    muster.stop(*agents, daemon)
    muster.assert_no_process(at_once=True)


def assert_memory_is_told(muster, client, job_id):
    """Checks that the memory of the ranks of a running TINY job is reported."""
    ranks = harness.eventually(
        lambda: (job := client.get(job_id))
        and all(r.memory.buckets.bytes for r in job.ranks)
        and job.ranks,
        "every rank's heartbeat says what its memory is used for",
    )
    # Embeddings of 256 tokens and 16 places, two layers, the last norm; float32.
    parameters = 4 * (256 * 32 + 16 * 32 + 2 * (12 * 32 * 32 + 13 * 32) + 2 * 32)
    for rank in ranks:
        memory = rank.memory
        assert memory.parameters.bytes == parameters
        # AdamW's two moments, and the number of steps of each of 28 parameters.
        assert memory.moments.bytes == 2 * parameters + 4 * 28
        # All gradients, and the other rank's contributions to half of them; padding.
        assert parameters <= memory.buckets.bytes < 1.6 * parameters
        assert memory.activations.peak_bytes > memory.other.bytes
        assert (
            memory.resident_bytes > memory.total.peak_bytes >= memory.total.bytes >= 4 * parameters
        )
    listed = muster.cli("ranks", job_id, "-o", "json").json()["ranks"]
    assert [rank["memory"]["parameters"]["bytes"] for rank in listed] == [str(parameters)] * 2
    assert "memory in MiB, now/peak:\nRANK  TOTAL" in muster.cli("ranks", job_id).out


def test_stop_ends_a_running_job_with_a_checkpoint(muster):
    job_file = jobs.write_job(muster.folder, stages=[{"fit": {"steps": 1000000}}])
    daemon = muster.musterd(local_slots=2)
    client = api.Jobs(muster.address)
    muster.cli("submit", job_file, "--id", "long")
    next(step for step in client.metrics("long", follow=True) if step.step >= 7)
    assert_memory_is_told(muster, client, "long")
    muster.cli("stop", "long")
    muster.cli("wait", "long", expect=103)
    job = client.get("long")
    assert job.state == api.Job.CANCELLED
    assert job.checkpoints[-1].step == job.step < 1000000
    assert not any(rank.HasField("memory") for rank in job.ranks)
    # The coordinator's local agent and all workers end with the coordinator.
    client.close()
    muster.stop(daemon)
    muster.assert_no_process(at_once=True)


def test_jobs_run_first_come_first_served(muster):
    daemon = muster.musterd(local_slots=2)
    client = api.Jobs(muster.address)
    for name in ("one", "two", "three"):
        muster.cli(
            "submit", jobs.write_job(muster.folder, checkpoint=None, export=None), "--id", name
        )
    for name in ("one", "two", "three"):
        muster.cli("wait", name)
    ended = [client.get(name) for name in ("one", "two", "three")]
    for before, after in zip(ended, ended[1:]):
        assert before.end_time.ToNanoseconds() <= after.start_time.ToNanoseconds()
    client.close()
    muster.stop(daemon)
    muster.assert_no_process(at_once=True)
