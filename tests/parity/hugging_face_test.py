"""Model folders of transformers (`model.hf`): logits, gradients, trained weights and new tokens are
those of transformers.

Both sides compute in float32. Differences come from the order of sums: some 1e-7 of the largest
logit, and 1e-5 of it is the bound."""

import json
import pathlib
import shutil
import subprocess

import pytest
import torch
import xxhash
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from tests import bazel, cases, exports
from tests.parity import cluster, hugging_face_models, logits, shared_cluster, twin
from tests.parity.hugging_face_jobs import (
    as_initialized,
    assert_close,
    job,
    save,
    tokens_of,
    weights_of,
)
from tests.tokenizer import tokenizers_of_families

ALL = list(hugging_face_models.MODELS)
TRAINED = cases.first_ones(hugging_face_models.MODELS, 3, with_all=8)
STRATEGIES = ({"ddp": {}}, {"sharded_ddp": {}}, {"fsdp": {}})
NEW_TOKENS = 20

muster = shared_cluster.with_slots(3)


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def of_muster(folder, model_folder, tokens, *more):
    weights = weights_of(model_folder)
    return logits.of_muster(folder, "hf", str(model_folder), weights, tokens, *more)


@pytest.mark.parametrize("name", ALL)
def test_logits_and_gradients_are_those_of_transformers(name, tmp_path):
    model = save(name, tmp_path / "model")
    tokens = tokens_of(name)
    path = tmp_path / "gradients.safetensors"
    found = of_muster(tmp_path, tmp_path / "model", tokens, "--gradients", path)
    assert_close(found, logits.of_transformers(model, tokens))
    expected = logits.gradients_of_transformers(model, tokens)
    gradients = load_file(path)
    assert gradients.keys() == expected.keys()
    for parameter, gradient in expected.items():
        assert_close(gradients[parameter], gradient)


@pytest.mark.parametrize("name", ALL)
def test_an_export_has_the_same_bits_and_the_same_model(name, tmp_path):
    model = save(name, tmp_path / "model")
    exported = tmp_path / "exported" / "model.safetensors"
    tokens = tokens_of(name)
    of_muster(tmp_path, tmp_path / "model", tokens, "--export", exported)
    opened = AutoModelForCausalLM.from_pretrained(exported.parent).eval()
    assert type(opened) is type(model)
    tensors = load_file(exported)
    expected = dict(model.named_parameters())
    assert tensors.keys() == expected.keys()
    assert all(torch.equal(tensors[one], expected[one]) for one in expected)
    found = json.loads((exported.parent / "config.json").read_text())
    assert found == json.loads((tmp_path / "model" / "config.json").read_text())
    assert_close(logits.of_transformers(opened, tokens), logits.of_transformers(model, tokens))


@pytest.mark.parametrize("name", ALL)
def test_greedy_tokens_are_those_of_transformers(name, tmp_path):
    model = save(name, tmp_path / "model", logits.follow_the_text)
    prompts = [[3, 5, 8, 13, 21, 34, 55, 2, 4], [60], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]]
    request = {"prompts": prompts, "max_tokens": NEW_TOKENS}
    out = tmp_path / "completions.json"
    command = [
        bazel.runfile("tests/parity/muster-generate"),
        *("--model", "hf", "--options", json.dumps(str(tmp_path / "model"))),
        *("--weights", weights_of(tmp_path / "model")),
        *("--request", json.dumps(request), "--out", out),
    ]
    subprocess.run(command, check=True, env=cluster.environment())
    for completion in json.loads(out.read_text())["completions"]:
        prompt = completion["prompt"]
        expected = model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
            max_new_tokens=NEW_TOKENS,
            do_sample=False,
            pad_token_id=0,
            eos_token_id=None,
        )[0, len(prompt) :].tolist()
        assert completion["tokens"] == expected
        assert len(set(expected)) > 3, expected


def as_transformers_4_wrote_it(folder):
    """Rewrites config.json: rope_theta and rope_scaling in place of rope_parameters."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    kind = rope.pop("rope_type")
    config["rope_scaling"] = {"type": kind, **rope} if kind != "default" else None
    config["torch_dtype"] = config.pop("dtype")
    path.write_text(json.dumps(config))


@pytest.mark.parametrize("name", ["llama3", "llama-linear", "qwen2", "qwen3"])
def test_folders_of_older_versions_are_the_same_model(name, tmp_path):
    model = save(name, tmp_path / "model")
    as_transformers_4_wrote_it(tmp_path / "model")
    tokens = tokens_of(name)
    exported = tmp_path / "exported" / "model.safetensors"
    found = of_muster(tmp_path, tmp_path / "model", tokens, "--export", exported)
    assert_close(found, logits.of_transformers(model, tokens))
    opened = AutoModelForCausalLM.from_pretrained(exported.parent).eval()
    assert_close(logits.of_transformers(opened, tokens), logits.of_transformers(model, tokens))


@pytest.mark.parametrize("name", TRAINED)
def test_twenty_steps_in_every_strategy_equal_pytorch(muster, tmp_path, name):
    model = save(name, tmp_path / "model", as_initialized)
    start = {one: tensor.detach().clone() for one, tensor in model.named_parameters()}

    def loss(output, targets):
        return twin.cross_entropy(output.logits, targets)

    spec = job(tmp_path, name)
    expected = twin.train(spec, model, loss, context=hugging_face_models.context_of(name))
    wanted = {one: expected.tensors[one] for one, _ in model.named_parameters()}
    assert max((wanted[one] - start[one]).abs().max() for one in wanted) > 5e-3
    ends = []
    for strategy in STRATEGIES:
        job_id = f"{name}-{next(iter(strategy))}".replace("_", "-")
        muster.run(job(tmp_path, name, strategy=strategy), job_id)
        twin.assert_close(muster.losses(job_id), expected.losses, 1e-6)
        export = tmp_path / "out" / "model.safetensors"
        twin.assert_close(load_file(export), wanted, 1e-5)
        ends.append((muster.losses(job_id), exports.contents(export)))
        opened = AutoModelForCausalLM.from_pretrained(export.parent)
        assert type(opened) is type(model)
        shutil.rmtree(export.parent)
    assert ends[0] == ends[1] == ends[2]


def test_a_shorter_context_takes_the_first_positions(muster, tmp_path):
    model = save("gpt2", tmp_path / "model", as_initialized)

    def loss(output, targets):
        return twin.cross_entropy(output.logits, targets)

    spec = job(tmp_path, "short", strategy={"fsdp": {}}, world_size=3)
    spec["model"]["context"] = 11
    expected = twin.train(spec, model, loss, context=11)
    muster.run(spec, "short")
    assert "of these shortened: 1 ('transformer.wpe.weight' from 37 to 11 rows)" in str(
        muster.job("short")["events"]
    )
    twin.assert_close(muster.losses("short"), expected.losses, 1e-6)
    opened = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert opened.config.n_positions == 11
    wanted = expected.tensors["transformer.wpe.weight"][:11]
    assert (opened.transformer.wpe.weight - wanted).abs().max() <= 1e-5


def with_tokenizer(folder, name="qwen3"):
    """Writes a model with room for the tokens of a tokenizer, and the tokenizer."""
    lines = pathlib.Path(json.__file__).read_text(encoding="utf-8").splitlines()
    tokenizer = tokenizers_of_families.llama3(lines)
    options = {"vocab_size": tokenizer.get_vocab_size(), "max_position_embeddings": 64}
    model = logits.follow_the_text(hugging_face_models.build(name, **options))
    model.save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    return model, AutoTokenizer.from_pretrained(folder)


def continued(model, tokenizer, text, count):
    """The new tokens, and their text."""
    given = tokenizer(text, return_tensors="pt")
    made = model.generate(
        given["input_ids"],
        attention_mask=given["attention_mask"],
        max_new_tokens=count,
        do_sample=False,
        pad_token_id=0,
        eos_token_id=None,
    )[0, given["input_ids"].shape[1] :]
    return made.tolist(), tokenizer.decode(made, skip_special_tokens=True)


TEXTS = ["def decode(self, s):", "caf\u00e9  \U0001f600", "return"]


def test_texts_are_continued_as_in_transformers(muster, tmp_path):
    model, tokenizer = with_tokenizer(tmp_path / "model")
    prompts = tmp_path / "prompts.json"
    prompts.write_text(json.dumps([*TEXTS, [5, 6]]))
    output = tmp_path / "texts.json"
    spec = {
        "name": "texts",
        "world_size": 2,
        "model": {"hf": str(tmp_path / "model")},
        "strategy": {"fsdp": {}},
        "stages": [
            {
                "predict": {
                    "output": str(output),
                    "generate": {"prompts": str(prompts), "max_tokens": 9},
                }
            }
        ],
    }
    muster.run(spec, "texts")
    found = json.loads(output.read_text())["completions"]
    assert output.read_text() == json.dumps({"completions": found}) + "\n"
    for text, completion in zip(TEXTS, found):
        expected, made = continued(model, tokenizer, text, 9)
        assert completion["prompt"] == tokenizer(text)["input_ids"]
        assert completion["tokens"] == expected
        assert completion["text"] == made
    assert found[3]["prompt"] == [5, 6]


def test_an_export_has_the_tokenizer_and_replaces_no_other(muster, tmp_path):
    _, tokenizer = with_tokenizer(tmp_path / "model")
    out = tmp_path / "out"
    out.mkdir()
    (out / "tokenizer_config.json").write_text('{"eos_token": "mine"}')
    spec = job(tmp_path, "exported", world_size=1, stages=[{"fit": {"steps": 1}}])
    spec["model"]["context"] = 8
    refused = "tokenizer_config.json exists, and was not written"
    with pytest.raises(cluster.JobFailed, match=refused):
        muster.run(spec, "refused")
    (out / "tokenizer_config.json").unlink()
    muster.run(spec, "exported")
    again = AutoTokenizer.from_pretrained(out)
    assert again(TEXTS[1])["input_ids"] == tokenizer(TEXTS[1])["input_ids"]
    # Later exports replace what belongs to the first one.
    (out / "tokenizer.json").write_text("{}")
    muster.run(spec, "again")
    again = AutoTokenizer.from_pretrained(out)
    assert again(TEXTS[1])["input_ids"] == tokenizer(TEXTS[1])["input_ids"]


def test_a_running_job_talks(muster, tmp_path):
    model, tokenizer = with_tokenizer(tmp_path / "model")
    spec = job(tmp_path, "talks", strategy={"fsdp": {}}, stages=[{"fit": {"steps": 4000}}])
    spec["model"]["context"] = 16
    # Nothing is trained, so that the model stays that of Python.
    spec["trainable"] = {"rules": [{"freeze": "*"}]}
    muster.submit(spec | {"checkpoint": {"directory": str(tmp_path / "checkpoints")}}, "talks")
    muster.ask("pause", "talks")
    try:
        muster.await_state("talks", "PAUSED")
        found = muster.ask("sample", "talks", "--prompt", TEXTS[2], "--max-tokens", "9")
        tokens = muster.ask(
            *("sample", "talks", "--tokens", "5,6", "--max-tokens", "3", "-o", "json")
        )
        muster.ask("consolidate", "talks", "--out", tmp_path / "tuned", "--wait")
    finally:
        muster.stop("talks")
    expected, made = continued(model, tokenizer, TEXTS[2], 9)
    assert found.removesuffix("\n") == made or any(ord(one) < 32 for one in made)
    assert json.loads(tokens)["result"]["sample"]["prompt"] == [5, 6]
    again = AutoTokenizer.from_pretrained(tmp_path / "tuned")
    assert again(TEXTS[1])["input_ids"] == tokenizer(TEXTS[1])["input_ids"]
    opened = AutoModelForCausalLM.from_pretrained(tmp_path / "tuned").eval()
    assert continued(opened, again, TEXTS[2], 9) == (expected, made)


def test_data_of_another_tokenizer_are_an_event(muster, tmp_path):
    _, tokenizer = with_tokenizer(tmp_path / "model")
    spec = job(tmp_path, "tokens", world_size=1, stages=[{"fit": {"steps": 2}}])
    spec["model"]["context"] = 8
    packed = tmp_path / "model" / "tokenizer.json"
    for contents, differs in ((packed.read_bytes(), False), (b"{}", True)):
        described = {
            "format": "muster-tokens",
            "tokens": 2000,
            "dtype": "uint16",
            "vocab_size": tokenizer.vocab_size,
            "tokenizer": {
                "path": str(packed),
                "xxh3_128": xxhash.xxh3_128_hexdigest(contents),
            },
        }
        (tmp_path / "train.bin.tokenizer.json").write_text(json.dumps(described))
        job_id = f"tokens-{differs}".lower()
        muster.run(spec, job_id)
        assert ("TOKENIZER_DIFFERS" in str(muster.job(job_id)["events"])) == differs
        shutil.rmtree(tmp_path / "out")


def without(*names):
    def change(folder):
        for name in names:
            (folder / name).unlink()

    return change


def with_config(**changes):
    def change(folder):
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


def pickled(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def adapter(folder):
    (folder / "config.json").rename(folder / "adapter_config.json")


# What cannot be trained, and what the failed job says.
REFUSED = {
    "no-weights": (without("model.safetensors"), "has no model.safetensors and no"),
    "pickled-weights": (pickled, "but a pytorch_model.bin; expected safetensors"),
    "an-adapter": (adapter, "this is an adapter, not a model"),
    "another-model": (with_config(model_type="gemma3"), 'found "gemma3"'),
    "quantized": (with_config(quantization_config={"bits": 4}), "the weights are quantized"),
    "an-unknown-key": (
        with_config(logit_scale=2.0),
        "config.json: does not fit model.hf (docs/how-to/hugging-face.md#what-is-refused): "
        "logit_scale: is not known, with the value 2.0",
    ),
    "weights-of-another-model": (with_config(hidden_size=60), "expected the shape"),
    "too-many-positions": (
        with_config(max_position_embeddings=16),
        "model.context: expected at most 16, the max_position_embeddings of the model, found 32",
    ),
    "a-cut-config": (
        lambda folder: (folder / "config.json").write_text("{"),
        "config.json: not valid JSON",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_folder_that_cannot_be_trained_exactly_is_refused_by_name(muster, tmp_path, name):
    hugging_face_models.build("qwen3").save_pretrained(tmp_path / "model")
    change, said = REFUSED[name]
    change(tmp_path / "model")
    job_id = f"refused-{name}"
    spec = job(tmp_path, "refused")
    spec["model"]["context"] = 32
    with pytest.raises(cluster.JobFailed):
        muster.run(spec, job_id)
    ended = muster.job(job_id)
    assert ended["state"] == "FAILED"
    assert said in ended["failure"]["reason"]
    assert ended.get("restarts", 0) == 0
    assert not (tmp_path / "out" / "model.safetensors").exists()
