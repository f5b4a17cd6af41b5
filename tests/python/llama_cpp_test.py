"""Files of muster.gguf in llama.cpp: the same tokens of a text, and the same greedy tokens as
transformers: 20 with float32 and float16, 8 with bfloat16. `third_party/install.sh --long` builds
llama.cpp, and only `./test.sh --long` runs this."""

import json
import pathlib
import subprocess

import pytest
import torch
import transformers

from tests.parity import hugging_face_models
from tests.python import package  # noqa: F401
from tests.tokenizer import tokenizers_of_families

import muster.gguf  # isort: skip

LLAMA_CPP = pathlib.Path.home() / ".cache/muster/llama-cpp/bin/python"
# Runs in the environment of llama.cpp: reads a question, prints the answer, both as JSON.
PROGRAM = """
import itertools, json, sys
import llama_cpp

question = json.load(sys.stdin)
model = llama_cpp.Llama(
    question["file"], n_ctx=question["context"], verbose=False, n_threads=1, n_threads_batch=1,
    type_k=llama_cpp.GGML_TYPE_F32, type_v=llama_cpp.GGML_TYPE_F32, flash_attn=False,
)
generated = []
for prompt in question["prompts"]:
    model.reset()
    tokens = model.generate(prompt, temp=0.0, top_k=1, repeat_penalty=1.0)
    generated.append(list(itertools.islice(tokens, question["count"])))
texts = [model.tokenize(text.encode(), add_bos=False, special=True) for text in question["texts"]]
json.dump({"generated": generated, "texts": texts}, sys.stdout)
"""
TEXTS = [
    "def encode(self, o):",
    "It's 12345 or 3.14 -- isn't IT?",
    "  two  spaces\n\n\nand lines\t\ttabs",
    "Grüße, здравствуй, 你好, 🙂!",
]
# The model and the kind of its tokenizer.
MODELS = [
    ("gpt2", "gpt2"),
    ("llama2", "llama2"),
    ("llama3", "llama3"),
    ("llama-linear", "llama3"),
    ("mistral", "llama2"),
    ("mistral-without-window", "llama2"),
    ("qwen2", "qwen"),
    ("qwen3", "qwen"),
    ("smollm2", "smollm"),
]


def in_llama_cpp(question):
    done = subprocess.run(
        [LLAMA_CPP, "-c", PROGRAM],
        input=json.dumps(question),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def greedy(model, prompt, count):
    """Without generate(), which would stop at the end of the text."""
    tokens = list(prompt)
    with torch.no_grad():
        for _ in range(count):
            tokens.append(model(torch.tensor([tokens])).logits[0, -1].argmax().item())
    return tokens[len(prompt) :]


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("name, family", MODELS)
def test_llama_cpp_continues_texts_as_transformers_does(tmp_path, name, family, dtype):
    lines = pathlib.Path(json.__file__).read_text(encoding="utf-8").splitlines()
    tokenizer = tokenizers_of_families.FAMILIES[family](lines)
    torch.manual_seed(7)
    # Matrices of another order than 0.02 give logits that differ much from each other.
    model = hugging_face_models.build(
        name, vocab_size=tokenizer.get_vocab_size() + 3, initializer_range=0.3
    ).eval()
    if dtype != "f32":
        rounding = {"f16": torch.float16, "bf16": torch.bfloat16}[dtype]
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(parameter.to(rounding))
    model.save_pretrained(tmp_path / "model")
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(
        tmp_path / "model"
    )
    muster.gguf.write(tmp_path / "model", tmp_path / "model.gguf", dtype=dtype)
    window = getattr(model.config, "sliding_window", None)
    context = window or model.config.max_position_embeddings
    # llama.cpp rounds what it multiplies with bfloat16 matrices, so later tokens may differ.
    count = min(8 if dtype == "bf16" else 20, context - 3)
    prompts = [[5, 9, 4], [40, 3], [17]]
    found = in_llama_cpp(
        {
            "file": str(tmp_path / "model.gguf"),
            "context": context,
            "prompts": prompts,
            "texts": TEXTS,
            "count": count,
        }
    )
    assert found["texts"] == [
        tokenizer.encode(text, add_special_tokens=False).ids for text in TEXTS
    ]
    assert found["generated"] == [greedy(model, prompt, count) for prompt in prompts]
