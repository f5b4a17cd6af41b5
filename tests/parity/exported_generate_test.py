"""Texts that an exported model continues are the greedy tokens of the Python model itself, and the
job chooses the length of samples where the export leaves it free.

Both sides compute in float32: a token differs only where two logits are as near as rounding."""

import json

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from tests.parity import exported_models, shared_cluster, twin
from tests.parity import exported_zoo as zoo
from tests.parity.exported_job import job

import muster.export  # isort: skip

cluster = shared_cluster.with_slots(2)

LONGEST = 40
PROMPTS = [[3, 10, 0], [60], [1, 2, 3, 4, 5, 6, 7, 8], [9, 9], [5, 0, 0, 0, 0]]


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def of_any_length():
    return exported_models.decoder("Qwen3", head_dim=16, max_position_embeddings=LONGEST)()


# name: the model, the options of its export, and the longest text.
CASES = {
    "gpt2": (zoo.gpt2, {}, zoo.CONTEXT),
    "lstm": (exported_models.seeded(exported_models.Lstm), {}, zoo.CONTEXT),
    "qwen3": (of_any_length, {"dynamic": {"sequence": True}}, LONGEST),
}


def export(name, folder, **more):
    build, options, _ = CASES[name]
    model = build()
    input_name = "tokens" if name == "lstm" else "input_ids"
    muster.export(model, {input_name: zoo.tokens()}, folder / "exported", **options, **more)
    return model.eval()


@torch.no_grad()
def greedy(model, prompt, count):
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(zoo.logits_of(model(torch.tensor([tokens])))[0, -1].argmax()))
    return tokens[len(prompt) :]


@pytest.mark.parametrize("name", CASES)
def test_a_stage_continues_prompts_as_the_model_does(cluster, tmp_path, name):
    model = export(name, tmp_path)
    longest = CASES[name][2]
    count = longest - max(map(len, PROMPTS))
    expected = {
        "completions": [
            {"prompt": prompt, "tokens": greedy(model, prompt, count)} for prompt in PROMPTS
        ]
    }
    # A model that repeats one token would hide faults.
    assert len({token for one in expected["completions"] for token in one["tokens"]}) > 1
    for strategy, ranks in (("ddp", 1), ("sharded_ddp", 2), ("fsdp", 2)):
        output = tmp_path / f"{strategy}.json"
        model_of_job = {"exported": str(tmp_path / "exported")}
        if name == "qwen3":
            model_of_job["context"] = longest
        spec = {
            "name": "texts",
            "world_size": ranks,
            "model": model_of_job,
            "strategy": {strategy: {}},
            "stages": [
                {
                    "predict": {
                        "output": str(output),
                        "generate": {"prompts": PROMPTS, "max_tokens": count},
                    }
                }
            ],
        }
        cluster.run(spec, f"texts-{name}-{strategy}".replace("_", "-"))
        assert json.loads(output.read_text()) == expected


def test_a_paused_job_shows_what_its_model_says(cluster, tmp_path):
    words = Tokenizer(WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    export("qwen3", tmp_path, tokenizer=PreTrainedTokenizerFast(tokenizer_object=words))
    spec = job(tmp_path, "qwen3", strategy={"fsdp": {}}, stages=[{"fit": {"steps": 4000}}])
    cluster.submit(spec | {"checkpoint": {"directory": str(tmp_path / "checkpoints")}}, "talks")
    cluster.ask("pause", "talks")
    cluster.await_state("talks", "PAUSED")
    found = cluster.ask("sample", "talks", "--prompt", "3 1 4", "--max-tokens", "5")
    usual = cluster.ask("sample", "talks", "--prompt", "3 1 4")
    cluster.ask("consolidate", "talks", "--out", tmp_path / "model", "--wait")
    cluster.stop("talks")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model").eval()
    # As many as the context of the job has room for: that of the example.
    expected = greedy(model, [3, 1, 4], zoo.CONTEXT - 3)
    assert [int(one) for one in found.split()] == expected[:5]
    assert [int(one) for one in usual.split()] == expected
    assert AutoTokenizer.from_pretrained(tmp_path / "model").convert_tokens_to_ids("b") == 1


def test_the_job_chooses_a_free_length(cluster, tmp_path):
    model = export("qwen3", tmp_path)
    spec = job(tmp_path, "qwen3", strategy={"fsdp": {}}, stages=[{"fit": {"steps": 10}}])
    spec["model"]["context"] = 20
    expected = twin.train(spec, model.train(), exported_models.of_logits, context=20)
    cluster.run(spec, "longer")
    twin.assert_close(cluster.losses("longer"), expected.losses, 1e-6)
