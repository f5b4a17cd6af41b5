"""GPT-2 weights go from transformers to Muster and back, and both compute the same logits from
them."""

import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, GPT2LMHeadModel

from tests import bazel
from tests.parity import cluster, logits, reference, workloads

# Sizes that reveal a layout mistake: odd widths, heads of odd size, contexts and vocabularies that
# divide nothing, inner widths that are not 4 times the width.
CONFIGURATIONS = {
    "usual": dict(vocab_size=256, context=32, layers=2, heads=4, width=64),
    "odd-everything": dict(vocab_size=257, context=17, layers=3, heads=3, width=27, inner=70),
    "untied": dict(vocab_size=257, context=17, layers=2, heads=5, width=35, tied=False),
    "one-head": dict(vocab_size=1003, context=17, layers=1, heads=1, width=13, inner=11),
    "head-of-one": dict(vocab_size=61, context=9, layers=2, heads=7, width=7, inner=1),
    "narrow-inner-untied": dict(
        vocab_size=1003, context=33, layers=3, heads=9, width=45, inner=31, tied=False
    ),
    "one-position": dict(vocab_size=3, context=1, layers=1, heads=2, width=6),
}


@pytest.fixture(params=CONFIGURATIONS.values(), ids=CONFIGURATIONS.keys())
def options(request):
    return request.param


def hugging_face_model(options):
    return logits.random_values(GPT2LMHeadModel(reference.gpt2_config(options)))


def test_logits_equal_those_of_transformers(options, tmp_path):
    model = hugging_face_model(options)
    model.save_pretrained(tmp_path / "model")
    tokens = logits.random_tokens(options)
    found = logits.of_muster(
        tmp_path, "gpt2", options, tmp_path / "model" / "model.safetensors", tokens
    )
    logits.assert_close(found, logits.of_transformers(model, tokens))


def test_exported_weights_open_in_transformers(options, tmp_path):
    model = hugging_face_model(options)
    model.save_pretrained(tmp_path / "model")
    tokens = logits.random_tokens(options)
    weights = tmp_path / "model" / "model.safetensors"
    exported = tmp_path / "exported" / "model.safetensors"
    ours = logits.of_muster(tmp_path, "gpt2", options, weights, tokens, "--export", exported)

    opened = AutoModelForCausalLM.from_pretrained(exported.parent).eval()
    assert type(opened) is GPT2LMHeadModel
    expected = model.state_dict()
    found = opened.state_dict()
    assert found.keys() == expected.keys()
    for name in expected:
        assert torch.equal(found[name], expected[name]), name
    # The same weights and kernels in the same library: the same bits.
    assert torch.equal(
        logits.of_transformers(opened, tokens), logits.of_transformers(model, tokens)
    )
    logits.assert_close(ours, logits.of_transformers(opened, tokens))


def test_gradients_equal_those_of_transformers(tmp_path):
    options = CONFIGURATIONS["odd-everything"]
    model = hugging_face_model(options)
    model.save_pretrained(tmp_path / "model")
    tokens = logits.random_tokens(options)
    weights = tmp_path / "model" / "model.safetensors"
    found = logits.gradients_of_muster(tmp_path, "gpt2", options, weights, tokens)
    expected = logits.gradients_of_transformers(model, tokens)
    assert found.keys() == expected.keys()
    for name in expected:
        logits.assert_close(found[name], expected[name])


@pytest.mark.parametrize("tied", [True, False])
def test_sharded_weights_load_through_their_index(tied, tmp_path):
    options = CONFIGURATIONS["odd-everything"] | {"tied": tied}
    model = hugging_face_model(options)
    model.save_pretrained(tmp_path / "model", max_shard_size="20KB")
    assert len(list((tmp_path / "model").glob("model-*-of-*.safetensors"))) >= 3
    tokens = logits.random_tokens(options)
    index = tmp_path / "model" / "model.safetensors.index.json"
    found = logits.of_muster(tmp_path, "gpt2", options, index, tokens)
    logits.assert_close(found, logits.of_transformers(model, tokens))


def test_weights_of_the_bare_model_load(tmp_path):
    # Files of GPT2Model have no "transformer." in front, old ones carry the causal masks.
    options = CONFIGURATIONS["odd-everything"]
    model = hugging_face_model(options)
    tensors = {name: tensor.clone() for name, tensor in model.transformer.state_dict().items()}
    tensors["h.0.attn.bias"] = torch.ones(1, 1, 17, 17)
    save_file(tensors, tmp_path / "bare.safetensors")
    tokens = logits.random_tokens(options)
    found = logits.of_muster(tmp_path, "gpt2", options, tmp_path / "bare.safetensors", tokens)
    logits.assert_close(found, logits.of_transformers(model, tokens))


@pytest.mark.parametrize("tied", [True, False])
def test_what_a_job_exports_opens_in_transformers(tied, tmp_path):
    spec = workloads.gpt2(tmp_path, tied=tied)
    exported = tmp_path / "out" / "model.safetensors"
    spec |= {
        "world_size": 2,
        "optimizer": {"sgd": {"lr": 0.05, "momentum": 0.9}},
        "batch": {"per_rank": 3, "accumulate": 2},
        "stages": [{"fit": {"steps": 8}}],
        "export": {"path": str(exported)},
    }
    programs = cluster.install(bazel.runfile, tmp_path / "bin")
    with cluster.Cluster(programs, tmp_path / "cluster", slots=2) as muster:
        job = muster.run(spec, "exporting")
    assert job["exported_path"] == str(exported)

    opened = AutoModelForCausalLM.from_pretrained(exported.parent).eval()
    expected = reference.train(spec).parameters[8]
    found = dict(opened.named_parameters())
    assert found.keys() == expected.keys()
    for name in expected:  # trained, as PyTorch trains it
        torch.testing.assert_close(found[name], expected[name], rtol=0, atol=1e-6)
    tokens = logits.random_tokens(spec["model"]["gpt2"])
    ours = logits.of_muster(tmp_path, "gpt2", spec["model"]["gpt2"], exported, tokens)
    logits.assert_close(ours, logits.of_transformers(opened, tokens))
