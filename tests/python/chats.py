"""Files of documents for tests: a small tokenizer with a chat template, and what packing makes."""

import json
import random

import pytest
import tokenizers

from tests.python import package  # noqa: F401

import muster as m  # isort: skip

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
# The special tokens of the tokenizer, which chat templates of several models use.
SPECIAL = [
    *("<|im_start|>", "<s>", "</s>", "<|end|>", "<think>", "</think>", "<|END_OF_TURN_TOKEN|>"),
    *("<end_of_turn>", "<|eot_id|>", "<|im_end|>", "<|return|>", "<|user|>"),
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
]
WORDS = (
    "the cat sat on mat number 7 and 19 thought\nof caf\u00e9 \u4f60\u597d  \U0001f469 {x} ."
).split(" ")


def chat(*turns):
    roles = ("user", "assistant")
    return [{"role": roles[at % 2], "content": text} for at, text in enumerate(turns)]


def words(dice):
    text = " ".join(dice.choices(WORDS, k=dice.randint(1, 8)))
    return dice.choice(["", " ", "\n"]) + text + dice.choice(["", "\n\n"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of a tokenizer with ChatML's template."""
    path = tmp_path_factory.mktemp("tokenizer")
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=SPECIAL,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )
    dice = random.Random(1)
    model.train_from_iterator([words(dice) for _ in range(500)], trainer)
    model.save(str(path / "tokenizer.json"))
    config = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": CHATML}
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    return path


def write(path, records):
    path.write_text("".join(json.dumps(one) + "\n" for one in records))
    return path


def documents(path):
    """All documents: lists of tokens, and of marks."""
    opened = m.data.open_documents(path)
    bounds = opened["bounds"]
    return [
        (opened["tokens"][begin:end].tolist(), opened["trained"][begin:end].tolist())
        for begin, end in zip(bounds, bounds[1:], strict=False)
    ]


def trained_texts(folder, path, number=0):
    """The trained parts of a document."""
    (shown,) = m.data.show_documents(path, documents=[number])
    return [part.text for part in shown.parts if part.trained]


def pack(folder, tmp_path, records, **more):
    out = tmp_path / "out.safetensors"
    given = write(tmp_path / "in.jsonl", records)
    options = {"overwrite": True, "processes": 1, **more}
    return m.data.pack_documents(folder, files=[given], out=out, **options), out
