"""Tests of `muster stage` and `muster sample` with real programs. They use the model after a step,
and training does not change. After a kill the next generation carries them out again."""

import numpy
import pytest
import torch
from transformers import AutoModelForCausalLM

from tests import exports
from tests.process import api, harness, jobs, paced_job

STEPS, HALT = 12, 6
PROMPT, NEW = "Dear", 12


@pytest.fixture
def cluster(muster):
    muster.musterd()
    yield muster
    muster.stop(*(child for child in muster._children if child.poll() is None))
    muster.assert_no_process()


def submit(muster, job_id, strategy):
    """A gpt2 of bytes, with dropout, whose validation data the two ranks share unevenly."""
    for name, count in {"validate.bin": 16 * 7 + 1, "test.bin": 16 * 4 + 1}.items():
        if not (muster.folder / name).exists():
            jobs.write_tokens(muster.folder / name, count, seed=count)
    data = {
        name: {"tokens": {"path": f"{name}.bin", "dtype": "uint16"}}
        for name in ("train", "validate", "test")
    }
    job_file = jobs.write_job(
        muster.folder,
        name=f"{job_id}.yaml",
        model=jobs.TINY["model"] | {"tokenizer": "bytes"},
        data=data,
        strategy={strategy: {}},
        stages=[{"fit": {"steps": STEPS}}],
        checkpoint=None,
        export={"path": f"{job_id}.safetensors"},
    )
    muster.cli("submit", job_file, "--id", job_id)


def ask(muster, *arguments):
    return muster.cli(*arguments, "-o", "json").json()


def await_state(muster, job_id, wanted):
    harness.eventually(
        lambda: ask(muster, "get", job_id)["state"] == wanted, f"{job_id} is {wanted}"
    )


def passes(muster, job_id):
    client = api.Jobs(muster.address)
    found = {
        (kind, entry.step): getattr(entry, kind)
        for entry in client.entries(job_id)
        for kind in ("validation", "test")
        if entry.HasField(kind)
    }
    client.close()
    return found


@torch.no_grad()
def greedy(model, prompt, count):
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(model(torch.tensor([tokens])).logits[0, -1].argmax()))
    return tokens[len(prompt) :]


@torch.no_grad()
def loss_over(model, path, context):
    tokens = torch.from_numpy(numpy.fromfile(path, dtype="<u2").astype("int64"))
    rows = range(0, len(tokens) - 1, context)
    inputs = torch.stack([tokens[at : at + context] for at in rows])
    targets = torch.stack([tokens[at + 1 : at + context + 1] for at in rows])
    logits = model(inputs).logits.double()
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten()).item()


@pytest.mark.parametrize("strategy", ["fsdp", "ddp", "sharded_ddp"])
def test_they_show_the_model_of_a_step_and_change_nothing(cluster, strategy):
    muster = cluster
    # There are no slots yet, so all requests arrive before their steps.
    submit(muster, "calm", strategy)
    submit(muster, "job", strategy)
    early = ask(
        muster,
        *("sample", "job", "--prompt", PROMPT, "--temperature", "1.5", "--top-k", "50"),
        *("--seed", "3", "--at-step", "2", "--no-wait"),
    )
    tested = ask(muster, "stage", "job", "test", "--at-step", "4")
    muster.cli("pause", "job", "--at-step", HALT)
    muster.agent("node", slots=2)
    muster.cli("wait", "calm")
    await_state(muster, "job", "PAUSED")

    validated = ask(muster, "stage", "job", "validate", "--wait")
    shown = muster.cli("stage", "job", "validate", "--wait").out
    sampled = ask(muster, "sample", "job", "--prompt", PROMPT, "--max-tokens", NEW)
    printed = muster.cli("sample", "job", "--prompt", PROMPT, "--max-tokens", NEW)
    muster.cli("consolidate", "job", "--out", "model", "--wait")
    assert "the prompt is empty" in muster.cli("sample", "job", "--prompt", "", expect=2).err
    assert "expected validate or test" in muster.cli("stage", "job", "fit", expect=2).err
    muster.cli("resume", "job", "--wait")
    muster.cli("wait", "job")

    # PyTorch and Muster compute in float32; the logits are of the order of 1.
    model = AutoModelForCausalLM.from_pretrained(muster.folder / "model").eval()
    stage = validated["result"]["stage"]
    assert (stage["step"], stage["stage"]) == (str(HALT), "validate")
    expected = loss_over(model, muster.folder / "validate.bin", 16)
    assert stage["evaluation"]["loss"] == pytest.approx(expected, abs=1e-5)
    assert stage["evaluation"]["samples"] == "7"
    loss = stage["evaluation"]["loss"]
    assert f"done after step {HALT}: validate: loss {loss:.4f}, perplexity" in shown
    sample = sampled["result"]["sample"]
    assert (sample["step"], sample["prompt"]) == (str(HALT), list(PROMPT.encode()))
    assert sample["tokens"] == greedy(model, PROMPT.encode(), NEW)
    assert sample["text"] == bytes(sample["tokens"]).decode(errors="replace")
    assert f"{NEW} tokens after step {HALT}" in printed.err
    assert not any(ord(c) < 32 and c not in "\n\t" for c in printed.out)

    drawn = ask(muster, "operation", early["name"])
    assert drawn["applied_at_step"] == drawn["result"]["sample"]["step"] == "2"
    assert len(drawn["result"]["sample"]["tokens"]) == NEW, "as many as fit"
    found = passes(muster, "job")
    assert found.keys() == {("test", 4), ("validation", HALT)}
    assert found["validation", HALT].loss == stage["evaluation"]["loss"]
    test = ask(muster, "operation", tested["name"])["result"]["stage"]
    assert test["evaluation"]["loss"] == found["test", 4].loss
    assert test["evaluation"]["samples"] == "4"

    job = exports.contents(muster.folder / "job.safetensors")
    calm = exports.contents(muster.folder / "calm.safetensors")
    assert job == calm, "training is bitwise what it would have been"
    error = muster.cli("sample", "job", "--prompt", PROMPT, expect=1).err
    assert "SUCCEEDED already" in error


def test_a_worker_that_is_killed_in_a_pass_makes_the_next_generation_run_it_again(cluster):
    muster = cluster
    rows = {"npy": {"inputs": ["inputs.npy"], "labels": ["labels.npy"]}}

    def start(job_id):
        job_file = paced_job.write_job(
            muster.folder,
            pace_ms=1,
            name=f"{job_id}.yaml",
            more_options={"evaluation_ms": 150},  # a pass takes 12 rounds on two ranks
            data={"train": rows, "validate": rows},
            schedule={"linear": {}},
            stages=[{"fit": {"steps": STEPS}}],
            checkpoint={"directory": "checkpoints", "every_steps": 2},
            export={"path": f"{job_id}.safetensors"},
        )
        muster.cli("submit", job_file, "--id", job_id)

    start("calm")
    start("killed")
    running = ask(muster, "stage", "killed", "validate", "--at-step", "5")["name"]
    pending = ask(muster, "stage", "killed", "validate", "--at-step", "9")["name"]
    muster.agent("node", slots=2)
    muster.cli("wait", "calm")
    client = api.Jobs(muster.address)
    begun = harness.eventually(
        lambda: (found := ask(muster, "operation", running)).get("applied_at_step") and found,
        "the pass is under way",
    )
    assert begun["applied_at_step"] == "5" and not begun["done"]
    assert "under way since step 5" in begun["progress"]
    harness.kill(client.get("killed").ranks[1].pid)
    muster.cli("wait", "killed")

    job = client.get("killed")
    assert (job.state, job.generation, job.restarts) == (api.Job.SUCCEEDED, 2, 1)
    results = [ask(muster, "operation", name) for name in (running, pending)]
    assert all(result["done"] and "error" not in result for result in results), results
    # The checkpoint of step 4 comes before the pass, which waits for its step.
    assert [one["result"]["stage"]["step"] for one in results] == ["5", "9"]
    rows = [entry for entry in client.entries("killed") if entry.HasField("validation")]
    assert [(row.step, row.generation) for row in rows] == [(5, 2), (9, 2)]
    losses = [
        [(entry.step, entry.loss) for entry in client.metrics(name)] for name in ("killed", "calm")
    ]
    assert losses[0] == losses[1]
    weights = [
        exports.contents(muster.folder / f"{name}.safetensors") for name in ("killed", "calm")
    ]
    assert weights[0] == weights[1]
    client.close()
