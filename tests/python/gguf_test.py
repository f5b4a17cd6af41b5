"""muster.gguf: the file has the model's values under llama.cpp's names, and what llama.cpp would
compute in another way is refused. llama_cpp_test.py runs the files in llama.cpp."""

import json
import pathlib

import gguf
import numpy
import pytest
import torch
import transformers

from tests.parity import hugging_face_models
from tests.python import package  # noqa: F401
from tests.tokenizer import tokenizers_of_families

import muster as m  # isort: skip
import muster.gguf  # isort: skip


def save(folder, name, family="llama3", **options):
    lines = pathlib.Path(json.__file__).read_text(encoding="utf-8").splitlines()
    tokenizer = tokenizers_of_families.FAMILIES[family](lines)
    torch.manual_seed(1)
    model = hugging_face_models.build(
        name, **{"vocab_size": tokenizer.get_vocab_size() + 3, **options}
    )
    model.save_pretrained(folder)
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    return model


def written(folder, out, **more):
    notes = m.gguf.write(folder, out, dtype=more.pop("dtype", "f32"), **more)
    reader = gguf.GGUFReader(out)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    return {one.name: numpy.array(one.data) for one in reader.tensors}, fields, notes


def test_a_decoder_has_its_values_under_the_names_of_llama_cpp(tmp_path):
    model = save(tmp_path / "model", "qwen3")
    tensors, fields, notes = written(tmp_path / "model", tmp_path / "a.gguf")
    parameters = dict(model.named_parameters())
    assert numpy.array_equal(
        tensors["blk.1.attn_q.weight"],
        parameters["model.layers.1.self_attn.q_proj.weight"].detach().numpy(),
    )
    assert "output.weight" not in tensors  # the embedding is the output layer, too
    assert len(tensors) == len(parameters)
    assert fields["general.architecture"] == "qwen3"
    assert fields["qwen3.attention.key_length"] == model.config.head_dim
    assert fields["qwen3.context_length"] == model.config.max_position_embeddings
    assert fields["tokenizer.ggml.pre"] == "llama-bpe"
    assert fields["tokenizer.ggml.eos_token_id"] == model.config.eos_token_id
    tokens = fields["tokenizer.ggml.tokens"]
    assert len(tokens) == model.config.vocab_size and tokens[-1].startswith("[PAD")
    assert notes == []


def test_rows_of_queries_are_in_the_order_of_neighbours(tmp_path):
    model = save(tmp_path / "model", "llama3")
    tensors, _, _ = written(tmp_path / "model", tmp_path / "a.gguf")
    head = model.config.head_dim
    theirs = dict(model.named_parameters())["model.layers.0.self_attn.q_proj.weight"].detach()
    ours = tensors["blk.0.attn_q.weight"]
    for row in range(head):
        pair, half = divmod(row, 2)
        assert numpy.array_equal(ours[row], theirs[pair + half * head // 2].numpy())
    scaled = model.model.rotary_emb.inv_freq.numpy()
    plain = 500.0 ** -(numpy.arange(0, head, 2) / head)
    assert numpy.allclose(tensors["rope_freqs.weight"], plain / scaled, rtol=1e-6)
    assert (plain / scaled).max() > 1.5


def test_the_matrices_of_gpt2_are_turned(tmp_path):
    model = save(tmp_path / "model", "gpt2")
    tensors, fields, _ = written(tmp_path / "model", tmp_path / "a.gguf", dtype="f16")
    matrix = model.transformer.h[0].attn.c_attn.weight.detach().numpy()
    found = tensors["blk.0.attn_qkv.weight"]
    assert found.dtype == numpy.float16
    assert numpy.array_equal(found, matrix.T.astype("float16"))
    assert tensors["blk.0.attn_norm.weight"].dtype == numpy.float32
    assert fields["general.architecture"] == "gpt2"


def test_a_sliding_window_is_a_shorter_context(tmp_path):
    model = save(tmp_path / "model", "mistral")
    _, fields, notes = written(tmp_path / "model", tmp_path / "a.gguf")
    assert fields["llama.context_length"] == model.config.sliding_window
    assert "the file's context is 7 tokens" in notes[0]


def test_a_sentencepiece_vocabulary_has_scores_in_the_order_of_its_merges(tmp_path):
    save(tmp_path / "model", "llama2", family="llama2")
    _, fields, _ = written(tmp_path / "model", tmp_path / "a.gguf")
    assert fields["tokenizer.ggml.model"] == "llama"
    merges = json.loads((tmp_path / "model/tokenizer.json").read_text())["model"]["merges"]
    tokens, numbers = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.scores"]
    scores = dict(zip(tokens, numbers, strict=True))
    first, second = ("".join(merge) for merge in merges[:2])
    assert scores[first] == 0 and scores[second] == -1
    assert 6 in fields["tokenizer.ggml.token_type"]  # bytes


def with_config(**changes):
    def change(folder):
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


def without_end(folder):
    for name in ("config.json", "generation_config.json"):
        path = folder / name
        if path.exists():
            config = json.loads(path.read_text()) | {"eos_token_id": None}
            path.write_text(json.dumps(config))


def with_tokenizer(**changes):
    def change(folder):
        path = folder / "tokenizer.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


@pytest.mark.parametrize(
    "name, change, said",
    [
        ("qwen3-biases", lambda folder: None, "has no place for the tensor"),
        ("smollm3", lambda folder: None, "leaves out rotary positions in each fourth layer"),
        ("qwen3", with_config(hidden_act="gelu"), "hidden_act: llama.cpp computes silu"),
        ("qwen3", with_config(model_type="mamba"), "model_type mamba cannot be written"),
        ("qwen3", with_config(num_hidden_layers=3), "lacks 11 tensors"),
        ("qwen3", with_config(num_hidden_layers=1), "more layers than config.json says"),
        ("qwen3", with_config(vocab_size=5), "the model only 5"),
        ("qwen3", without_end, "does not say which token ends a text"),
        ("qwen3", with_tokenizer(normalizer={"type": "Lowercase"}), "no known name for how"),
        ("qwen3", lambda folder: (folder / "tokenizer.json").unlink(), "has no tokenizer.json"),
        ("qwen3", lambda folder: (folder / "model.safetensors").unlink(), "has no weights"),
    ],
)
def test_what_llama_cpp_computes_otherwise_is_refused(tmp_path, name, change, said):
    save(tmp_path / "model", name)
    change(tmp_path / "model")
    with pytest.raises(ValueError, match=said):
        m.gguf.write(tmp_path / "model", tmp_path / "a.gguf")
    assert [one.name for one in tmp_path.iterdir()] == ["model"]


def test_numbers_that_are_too_large_for_f16_are_refused(tmp_path):
    model = save(tmp_path / "model", "qwen3")
    with torch.no_grad():
        model.model.layers[0].mlp.up_proj.weight[0, 0] = 1e5
    model.save_pretrained(tmp_path / "model")
    with pytest.raises(ValueError, match="blk.0.ffn_up.weight has numbers that f16 cannot hold"):
        m.gguf.write(tmp_path / "model", tmp_path / "a.gguf")
    m.gguf.write(tmp_path / "model", tmp_path / "a.gguf", dtype="bf16")
    with pytest.raises(FileExistsError):
        m.gguf.write(tmp_path / "model", tmp_path / "a.gguf", dtype="bf16")
