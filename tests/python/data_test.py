"""muster.data.pack: the tokens are those of the tokenizer, and a job trains on them."""

import json

import numpy
import pytest
import tokenizers
import xxhash

from tests.process import jobs
from tests.python import package  # noqa: F401

import muster as m  # isort: skip

TEXTS = [f"the cat sat on mat number {number} and thought of {number * 7}" for number in range(200)]


@pytest.fixture
def tokenizer(tmp_path):
    """A tokenizer.json of 300 tokens and a separator."""
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel()
    model.train_from_iterator(
        TEXTS, tokenizers.trainers.BpeTrainer(vocab_size=300, special_tokens=["<|end|>"])
    )
    path = tmp_path / "tokenizer.json"
    model.save(str(path))
    return path


def expected(tokenizer, texts, after=()):
    model = tokenizers.Tokenizer.from_file(str(tokenizer))
    return [token for text in texts for token in [*model.encode(text).ids, *after]]


def test_texts_become_the_tokens_of_the_tokenizer(tmp_path, tokenizer):
    out = tmp_path / "train.bin"
    made = m.data.pack(tokenizer, texts=iter(TEXTS), out=out)
    tokens = numpy.fromfile(out, "<u2")
    assert list(tokens) == expected(tokenizer, TEXTS)
    assert (made.tokens, made.dtype) == (len(tokens), "uint16")
    assert tokens.max() < made.vocab_size
    said = json.loads((tmp_path / "train.bin.tokenizer.json").read_text())
    assert said["tokens"] == made.tokens and said["dtype"] == "uint16"
    assert said["tokenizer"] == {
        "path": str(tokenizer),
        "xxh3_128": xxhash.xxh3_128_hexdigest(tokenizer.read_bytes()),
    }
    assert said["tokenizer"]["xxh3_128"] == made.tokenizer_xxh3_128


def test_files_and_rows_are_texts_each_with_a_separator_after_it(tmp_path, tokenizer):
    paths = []
    for number, text in enumerate(TEXTS[:3]):
        paths.append(tmp_path / f"{number}.txt")
        paths[-1].write_text(text)
    rows = [{"story": text} for text in TEXTS[:3]]
    wanted = expected(tokenizer, TEXTS[:3], after=[0])
    m.data.pack(tokenizer, files=paths, out=tmp_path / "a", separator="<|end|>")
    m.data.pack(
        tokenizer, dataset=rows, column="story", out=tmp_path / "b", separator="<|end|>"
    )
    for name in ("a", "b"):
        assert list(numpy.fromfile(tmp_path / name, "<u2")) == wanted


def test_what_cannot_be_packed_is_refused_and_leaves_nothing(tmp_path, tokenizer):
    out = tmp_path / "out" / "train.bin"
    out.parent.mkdir()

    def fails():
        yield TEXTS[0]
        raise OSError("the disk is gone")

    other = tmp_path / "other.json"
    other.write_text("{}")
    for error, options in (
        (ValueError, {}),
        (ValueError, {"texts": TEXTS, "files": []}),
        (ValueError, {"texts": []}),
        (ValueError, {"texts": TEXTS, "separator": "<|none|>"}),
        (ValueError, {"texts": TEXTS, "tokenizer": other}),
        (OSError, {"texts": fails()}),
        (FileNotFoundError, {"files": [tmp_path / "missing.txt"]}),
        (FileNotFoundError, {"texts": TEXTS, "tokenizer": tmp_path / "missing.json"}),
    ):
        with pytest.raises(error):
            m.data.pack(**{"tokenizer": tokenizer, "out": out} | options)
        assert list(out.parent.iterdir()) == []
    out.write_bytes(b"mine")
    with pytest.raises(FileExistsError):
        m.data.pack(tokenizer, texts=TEXTS, out=out)
    assert out.read_bytes() == b"mine"
    m.data.pack(tokenizer, texts=TEXTS, out=out, overwrite=True)
    assert out.stat().st_size > 100


def test_a_job_trains_on_packed_tokens(muster, tokenizer):
    made = m.data.pack(tokenizer, texts=TEXTS, out=muster.folder / "packed.bin")
    path = jobs.write_job(
        muster.folder,
        data={"train": {"tokens": {"path": "packed.bin", "dtype": made.dtype}}},
        model={
            "gpt2": {
                "vocab_size": made.vocab_size, "context": 16, "layers": 1, "heads": 2, "width": 32
            }
        },
    )
    muster.cli("run", path)
