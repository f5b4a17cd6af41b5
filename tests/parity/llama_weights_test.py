"""Llama weights go from transformers to Muster and back; logits and gradients are equal.

Both compute in float32. Differences come from attention (a fused kernel in Muster, written out in
transformers) and from the order of sums. They are some 1e-6 of the values, which are about 1 to 10.
A bound of 1e-4 leaves room and hides no mistake."""

import copy

import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, LlamaForCausalLM

from tests import bazel
from tests.parity import cluster, logits, reference, workloads

# Sizes that reveal a layout mistake: groups of three, contexts and vocabularies that divide
# nothing, the narrowest heads, unusual positions and norms.
CONFIGURATIONS = {
    "grouped-query": dict(
        vocab_size=256, context=32, layers=2, heads=8, kv_heads=2, width=64, inner=176
    ),
    "multi-head": dict(vocab_size=256, context=32, layers=2, heads=4, width=64, inner=176),
    "multi-query-tied": dict(
        vocab_size=257, context=17, layers=2, heads=5, kv_heads=1, width=30, inner=70, tied=True
    ),
    "odd-everything": dict(
        vocab_size=1003,
        context=19,
        layers=3,
        heads=9,
        kv_heads=3,
        width=54,
        inner=71,
        norm_eps=1e-2,
    ),
    "head-of-two-tied": dict(
        vocab_size=61, context=9, layers=2, heads=7, kv_heads=7, width=14, inner=1, tied=True
    ),
    # Long enough for the slow pairs to turn.
    "other-theta": dict(
        vocab_size=61,
        context=301,
        layers=1,
        heads=2,
        kv_heads=1,
        width=32,
        inner=24,
        rope_theta=137.5,
    ),
    "large-theta": dict(
        vocab_size=61,
        context=301,
        layers=1,
        heads=2,
        kv_heads=1,
        width=32,
        inner=24,
        rope_theta=5e5,
    ),
}


@pytest.fixture(params=CONFIGURATIONS.values(), ids=CONFIGURATIONS.keys())
def options(request):
    return request.param


def hugging_face_model(options):
    return logits.random_values(LlamaForCausalLM(reference.llama_config(options)))


def save(model, folder, shards=False):
    """Returns the path for `model.weights`."""
    if not shards:
        model.save_pretrained(folder)
        return folder / "model.safetensors"
    size = sum(parameter.nbytes for parameter in model.parameters())
    model.save_pretrained(folder, max_shard_size=size // 3)
    assert len(list(folder.glob("model-*-of-*.safetensors"))) >= 3
    return folder / "model.safetensors.index.json"


@pytest.mark.parametrize("shards", [False, True], ids=["one-file", "sharded"])
def test_logits_equal_those_of_transformers(options, shards, tmp_path):
    model = hugging_face_model(options)
    weights = save(model, tmp_path / "model", shards)
    tokens = logits.random_tokens(options)
    found = logits.of_muster(tmp_path, "llama", options, weights, tokens)
    logits.assert_close(found, logits.of_transformers(model, tokens))


def test_gradients_equal_those_of_transformers(options, tmp_path):
    model = hugging_face_model(options)
    weights = save(model, tmp_path / "model")
    tokens = logits.random_tokens(options)
    found = logits.gradients_of_muster(tmp_path, "llama", options, weights, tokens)
    expected = logits.gradients_of_transformers(model, tokens)
    assert found.keys() == expected.keys()
    for name in expected:
        logits.assert_close(found[name], expected[name])


def test_exported_weights_open_in_transformers(options, tmp_path):
    model = hugging_face_model(options)
    weights = save(model, tmp_path / "model", shards=True)
    tokens = logits.random_tokens(options)
    exported = tmp_path / "exported" / "model.safetensors"
    ours = logits.of_muster(tmp_path, "llama", options, weights, tokens, "--export", exported)

    opened = AutoModelForCausalLM.from_pretrained(
        exported.parent, attn_implementation="eager"
    ).eval()
    assert type(opened) is LlamaForCausalLM
    expected = model.state_dict()
    found = opened.state_dict()
    assert found.keys() == expected.keys()
    for name in expected:
        assert torch.equal(found[name], expected[name]), name
    # The same weights and kernels, so the configuration is the same too. Only where the weights lie
    # in memory differs, which can change last bits.
    logits.assert_close(
        logits.of_transformers(opened, tokens), logits.of_transformers(model, tokens), 1e-6
    )
    logits.assert_close(ours, logits.of_transformers(opened, tokens))


def test_weights_of_the_bare_model_load(tmp_path):
    # Files of LlamaModel have no "model." in front, old ones carry the rotary frequencies.
    options = CONFIGURATIONS["multi-query-tied"]
    model = hugging_face_model(options)
    tensors = {name: tensor.clone() for name, tensor in model.model.state_dict().items()}
    tensors["layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(3)
    save_file(tensors, tmp_path / "bare.safetensors")
    tokens = logits.random_tokens(options)
    found = logits.of_muster(tmp_path, "llama", options, tmp_path / "bare.safetensors", tokens)
    logits.assert_close(found, logits.of_transformers(model, tokens))


def test_weights_in_half_precision_load(tmp_path):
    options = CONFIGURATIONS["grouped-query"]
    model = hugging_face_model(options)
    with torch.no_grad():
        for (
            parameter
        ) in model.parameters():  # not model.bfloat16(): that rounds the rotary frequencies too
            parameter.copy_(parameter.bfloat16())
    weights = save(copy.deepcopy(model).bfloat16(), tmp_path / "model", shards=True)
    tokens = logits.random_tokens(options)
    found = logits.of_muster(tmp_path, "llama", options, weights, tokens)
    logits.assert_close(found, logits.of_transformers(model, tokens))


@pytest.mark.parametrize("tied", [True, False])
def test_what_a_job_exports_opens_in_transformers(tied, tmp_path):
    spec = workloads.llama(tmp_path, tied=tied)
    options = spec["model"]["llama"]
    model = reference.build(spec)
    spec["model"]["weights"] = str(save(model, tmp_path / "sharded", shards=True))
    exported = tmp_path / "out" / "model.safetensors"
    spec |= {
        "world_size": 2,
        "optimizer": {"sgd": {"lr": 0.05, "momentum": 0.9}},
        "batch": {"per_rank": 3, "accumulate": 2},
        "stages": [{"fit": {"steps": 8}}],
        "export": {"path": str(exported)},
    }
    submitted = copy.deepcopy(spec)
    del submitted["model"]["llama"]["inner"]
    programs = cluster.install(bazel.runfile, tmp_path / "bin")
    with cluster.Cluster(programs, tmp_path / "cluster", slots=2) as muster:
        job = muster.run(submitted, "exporting")
        losses = muster.losses("exporting")
    assert job["spec"]["model"]["llama"]["inner"] == options["inner"]
    assert job["exported_path"] == str(exported)

    opened = AutoModelForCausalLM.from_pretrained(
        exported.parent, attn_implementation="eager"
    ).eval()
    trained = reference.train(spec)
    assert losses == pytest.approx(trained.losses, abs=1e-6)
    expected = trained.parameters[8]
    found = dict(opened.named_parameters())
    assert found.keys() == expected.keys()
    for name in expected:  # trained, as PyTorch trains it
        torch.testing.assert_close(found[name], expected[name], rtol=0, atol=1e-6)
    tokens = logits.random_tokens(options)
    ours = logits.of_muster(tmp_path, "llama", options, exported, tokens)
    logits.assert_close(ours, logits.of_transformers(opened, tokens))


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_training_in_half_precision_equals_transformers(precision, tmp_path):
    # The norms and rotations are float32 here and the projections are not: every mixture must be
    # taken. Attention rounds in other places than transformers' written-out one; losses differ by
    # 4e-5 and less.
    spec = workloads.llama(tmp_path) | {
        "world_size": 2,
        "precision": precision,
        "optimizer": {"sgd": {"lr": 0.05, "momentum": 0.9}},
        "batch": {"per_rank": 3, "accumulate": 2},
        "stages": [{"fit": {"steps": 8, "validate_every": 4}}],
    }
    programs = cluster.install(bazel.runfile, tmp_path / "bin")
    with cluster.Cluster(programs, tmp_path / "cluster", slots=2) as muster:
        muster.run(spec, "half")
        losses = muster.losses("half")
    assert losses == pytest.approx(reference.train(spec).losses, abs=1e-3)
