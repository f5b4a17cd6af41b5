"""Models of transformers on the meta device, whose values are in files elsewhere."""

import copy
import json
import pathlib

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.python import package  # noqa: F401

import muster.export  # isort: skip
from muster.export import NotExportable  # isort: skip
from muster.export._run import Runner  # isort: skip

DECODER = {
    "vocab_size": 600,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "max_position_embeddings": 16,
    "pad_token_id": None,
    "use_cache": False,
}


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)
    torch.manual_seed(0)


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(**DECODER))


def gemma():
    """Layers of two kinds, and a tied head."""
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    kinds = ["sliding_attention", "full_attention"] * 2
    return Gemma3ForCausalLM(Gemma3TextConfig(**DECODER, sliding_window=4, layer_types=kinds))


def on_meta(build):
    with torch.device("meta"):
        return build()


def tokens():
    return torch.randint(0, 600, (2, 8))


def run(folder, ids):
    """Runs the folder's graph of evaluation on its own weights."""
    folder = pathlib.Path(folder)
    weights = {}
    for file in folder.glob("model*.safetensors"):
        weights |= {name: one.float() for name, one in load_file(file).items()}
    constants = load_file(folder / "constants.safetensors")
    graph = json.loads((folder / "evaluate.json").read_text())
    values = {"parameter": weights, "buffer": weights, "constant": constants}
    return Runner(graph, values).run([ids])


@pytest.mark.parametrize(("build", "kinds"), [(llama, 1), (gemma, 2)])
def test_the_graph_with_weights_from_elsewhere_is_the_model(tmp_path, build, kinds):
    real = build().eval()
    with torch.no_grad():
        for one in real.parameters():
            one.copy_(one.bfloat16())
    half = copy.deepcopy(real).to(torch.bfloat16)
    half.save_pretrained(tmp_path / "hf", max_shard_size="20KB")
    assert (tmp_path / "hf/model.safetensors.index.json").exists()
    folder = tmp_path / "exported"
    muster.export(on_meta(build), {"input_ids": tokens()}, folder, weights=tmp_path / "hf")
    ids = tokens()
    with torch.no_grad():
        torch.testing.assert_close(run(folder, ids), real(ids).logits, rtol=0, atol=1e-6)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["reference"]["model"] == f"{kinds} of 4 layers"
    assert manifest["output"]["causal"]
    assert all((folder / file.name).is_symlink() for file in (tmp_path / "hf").glob("model-*"))


def test_weights_that_do_not_fit_the_model_are_refused_and_nothing_is_written(tmp_path):
    real = llama()
    real.save_pretrained(tmp_path / "hf")
    file = tmp_path / "hf/model.safetensors"
    good = load_file(file)

    def refused(match, model=None):
        with pytest.raises(NotExportable, match=match):
            muster.export(
                model or on_meta(llama), {"input_ids": tokens()}, tmp_path / "m",
                weights=tmp_path / "hf",
            )
        assert not (tmp_path / "m").exists()

    save_file({name: one for name, one in good.items() if name != "lm_head.weight"}, file)
    refused("weights: have no 'lm_head.weight'; expected F32 or F16 or BF16 \\[600, 16\\]")
    save_file(good | {"model.norm.weight": torch.zeros(8)}, file)
    refused("weights: 'model.norm.weight' is F32 \\[8\\]; expected F32 or F16 or BF16 \\[16\\]")
    save_file(good | {"model.norm.weight": torch.zeros(16).long()}, file)
    refused("weights: 'model.norm.weight' is I64")
    save_file(good, file)
    refused("expected float32 on the meta device, because `weights` has the values", real)
    with torch.device("meta"):
        other = torch.nn.Linear(3, 2)
    save_file({"weight": torch.zeros(2, 3), "bias": torch.zeros(2)}, file)
    with pytest.raises(NotExportable, match="expected a language model of transformers"):
        muster.export(other, torch.randn(2, 3), tmp_path / "m", weights=tmp_path / "hf")
    file.unlink()
    refused("has neither model.safetensors nor model.safetensors.index.json")


def test_a_model_without_values_needs_weights(tmp_path):
    with pytest.raises(NotExportable, match="`weights` names the files of a model on the meta"):
        muster.export(on_meta(llama), {"input_ids": tokens()}, tmp_path / "m")
