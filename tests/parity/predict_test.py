"""Tests of the stage `predict`, from checkpoints of each strategy at other world sizes, against
PyTorch on the exported weights and the same samples. With `generate`, the comparison is with the
greedy tokens of transformers.

Both compute in float32: logits of the order of 1 agree within 1e-5, and a class differs only where
two logits are as near as that. Muster's own files are the same bytes for every strategy and world
size."""

import io
import itertools
import json

import numpy
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.parity import generate_test, reference, shared_cluster, workloads

muster = shared_cluster.with_slots(3)

STRATEGIES = {
    "ddp": {"ddp": {}},
    "sharded": {"sharded_ddp": {"bucket_mb": 0.005}},
    "fsdp": {"fsdp": {}},
}
# Each strategy is trained at one world size, and each predicts at another one.
TRAINED = {"ddp": 2, "sharded": 3, "fsdp": 1}
PREDICTS = {"ddp": 3, "sharded": 1, "fsdp": 2}


@torch.no_grad()
def logits_of_pytorch(spec):
    model = reference.build(spec).eval()
    data = reference.open_data(spec, "predict")
    return torch.cat(
        [reference.logits_of(model, data[[sample]][0]) for sample in range(len(data))]
    )


def as_numpy_saves(array):
    file = io.BytesIO()
    numpy.save(file, array)
    return file.getvalue()


def notices(job):
    events = job.get("events", [])
    return [event["message"] for event in events if event["reason"] == "PREDICTIONS_WRITTEN"]


def outputs(folder, name):
    """The stages that write all kinds of files, and what they write."""
    files = {
        "logits": folder / f"{name}.safetensors",
        "classes": folder / f"{name}-classes.npy",
        "same logits": folder / f"{name}-logits.npy",
    }
    stages = [
        {"predict": {"output": str(files["logits"])}},
        {"predict": {"output": str(files["classes"]), "what": "classes"}},
        {"predict": {"output": str(files["same logits"]), "what": "logits"}},
    ]
    return stages, files


@pytest.mark.parametrize("kind", ["mlp", "gpt2"])
def test_predictions_from_any_checkpoint_equal_pytorch(muster, tmp_path, kind):
    workload = {"mlp": workloads.mlp, "gpt2": workloads.gpt2}[kind](tmp_path)
    workload["data"]["predict"] = workload["data"]["validate"]
    if kind == "mlp":  # its files have no labels
        rows = load_file(tmp_path / "validate.safetensors")
        save_file({"inputs": rows["inputs"]}, tmp_path / "inputs.safetensors")
        workload["data"]["predict"] = {
            "safetensors": {"path": str(tmp_path / "inputs.safetensors")}
        }
    for strategy, world_size in TRAINED.items():
        weights = tmp_path / f"{strategy}.safetensors"
        name = f"{kind}-{strategy}"
        stages, own = outputs(tmp_path, f"own-{strategy}")
        trained = workload | {
            "world_size": world_size,
            "strategy": STRATEGIES[strategy],
            "optimizer": {"adamw": {"lr": 1e-2}},
            "batch": {"per_rank": 3},
            "stages": [{"fit": {"steps": 6}}, *stages],
            "checkpoint": {"directory": str(tmp_path / "checkpoints")},
            "export": {"path": str(weights)},
        }
        muster.run(trained, name)
        expected_spec = workload | {"model": workload["model"] | {"weights": str(weights)}}
        expected_spec["data"] = workload["data"] | {"predict": workload["data"]["validate"]}
        expected = logits_of_pytorch(expected_spec)
        logits = load_file(own["logits"])
        assert list(logits) == ["logits"]
        assert logits["logits"].dtype == torch.float32
        assert logits["logits"].shape == expected.shape
        assert (logits["logits"] - expected).abs().max().item() <= 1e-5
        classes = numpy.load(own["classes"])
        assert classes.dtype == numpy.int64
        assert (classes == expected.argmax(-1).numpy()).all()
        assert own["classes"].read_bytes() == as_numpy_saves(expected.argmax(-1).numpy())
        assert own["same logits"].read_bytes() == as_numpy_saves(logits["logits"].numpy())
        for other, ranks in PREDICTS.items():
            stages, files = outputs(tmp_path, f"{strategy}-by-{other}")
            predicts = {key: value for key, value in workload.items() if key != "model"} | {
                "model": {kind: workload["model"][kind]},
                "data": {"predict": workload["data"]["predict"]},
                "world_size": ranks,
                "strategy": STRATEGIES[other],
                "batch": {"per_rank": 3},
                "stages": stages,
                "start": {"checkpoint": name},
            }
            job = muster.run(predicts, f"{name}-by-{other}")
            for what in files:
                assert files[what].read_bytes() == own[what].read_bytes(), (what, other)
            shape = ", ".join(map(str, expected.shape))
            assert notices(job)[0] == (
                f"stages[0].predict: {files['logits']} has logits, float32 [{shape}]"
            )
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.parametrize("kind", ["gpt2", "llama-grouped-query"])
def test_texts_of_a_job_are_those_of_transformers(muster, tmp_path, kind):
    model, options = generate_test.CONFIGURATIONS[kind]
    case = generate_test.Case(model, options, tmp_path)
    (tmp_path / "prompts.json").write_text(json.dumps(case.prompts))
    expected = {
        "completions": [
            {"prompt": prompt, "tokens": tokens}
            for prompt, tokens in zip(case.prompts, case.of_transformers(case.prompts))
        ]
    }
    written = set()
    given = itertools.cycle([case.prompts, str(tmp_path / "prompts.json")])
    for (strategy, ranks), prompts in zip(PREDICTS.items(), given):
        output = tmp_path / f"{strategy}.json"
        generate = {"prompts": prompts, "max_tokens": generate_test.NEW_TOKENS}
        # Neither data nor batch.
        job = {
            "name": "texts",
            "world_size": ranks,
            "model": {model: options, "weights": str(tmp_path / "model" / "model.safetensors")},
            "strategy": STRATEGIES[strategy],
            "stages": [{"predict": {"output": str(output), "generate": generate}}],
        }
        told = notices(muster.run(job, f"texts-{kind}-{strategy}"))
        assert told == [f"stages[0].predict: {output} has 64 new tokens for each of 19 prompts"]
        assert json.loads(output.read_text()) == expected
        written.add(output.read_bytes())
    assert written == {json.dumps(expected).encode() + b"\n"}


def test_drawn_texts_of_a_job_are_those_of_its_seed(muster, tmp_path):
    model, options = generate_test.CONFIGURATIONS["gpt2"]
    case = generate_test.Case(model, options, tmp_path)
    settings = {"temperature": 1.5, "top_k": 40, "seed": 2**64 - 3}
    output = tmp_path / "texts.json"
    generate = {"prompts": case.prompts, "max_tokens": generate_test.NEW_TOKENS, **settings}
    job = {
        "name": "texts",
        "world_size": 2,
        "model": {model: options, "weights": str(tmp_path / "model" / "model.safetensors")},
        "strategy": {"fsdp": {}},
        "stages": [{"predict": {"output": str(output), "generate": generate}}],
    }
    muster.run(job, "drawn")
    completions = json.loads(output.read_text())["completions"]
    # generate_test compares this with the documentation.
    assert [completion["tokens"] for completion in completions] == case.of_muster(**settings)
