"""muster.data.pack: the tokens are those of the tokenizer, and a job trains on them."""

import json
import os
import signal
import sys

import datasets
import numpy
import pandas
import pytest
import safetensors
import tokenizers
import transformers
import xxhash

from tests.process import harness, jobs
from tests.python import package

import muster as m  # isort: skip
from muster.data import __main__ as data_command  # isort: skip

TEXTS = [f"the cat sat on mat number {number} and thought of {number * 7}" for number in range(200)]


@pytest.fixture
def tokenizer(tmp_path):
    """A tokenizer.json of 300 tokens and a separator."""
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
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
    rows = datasets.Dataset.from_dict({"story": TEXTS[:3]})
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
        (ValueError, {"texts": TEXTS, "split": 0.5}),
        (ValueError, {"texts": TEXTS, "split": 1.0, "out_rest": out.with_name("rest")}),
        (ValueError, {"texts": TEXTS, "split": 0.5, "out_rest": out}),
        (ValueError, {"texts": ["cat"], "split": 0.001, "out_rest": out.with_name("rest")}),
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
    with pytest.raises(ValueError, match="both input and output"):
        m.data.pack(tokenizer, files=[out], out=out, overwrite=True)
    assert out.read_bytes() == b"mine"
    m.data.pack(tokenizer, texts=TEXTS, out=out, overwrite=True)
    assert out.stat().st_size > 100


def test_no_input_and_nothing_that_is_no_regular_file_is_replaced(tmp_path, tokenizer):
    text = tmp_path / "text"
    text.write_text(TEXTS[0])
    tokens = tmp_path / "tokens"
    (tmp_path / "tokens.tokenizer.json").write_bytes(tokenizer.read_bytes())
    (tmp_path / "hard").hardlink_to(text)
    (tmp_path / "link").symlink_to(text)
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "beside.tokenizer.json").symlink_to(tmp_path / "nothing")
    before = {path: path.lstat() for path in tmp_path.iterdir()}
    both, not_regular = "is both input and output", "is no regular file, and is not replaced"
    for error, why, out, options in (
        (ValueError, both, tokenizer, {}),
        (ValueError, both, tokens, {"tokenizer": tmp_path / "tokens.tokenizer.json"}),
        (ValueError, both, tokens, {"files": [text, tmp_path / "tokens.tokenizer.json"]}),
        (ValueError, both, tmp_path / "hard", {}),
        (ValueError, both, tmp_path / "link", {}),
        (ValueError, both, tokens, {"split": 0.5, "out_rest": text}),
        (ValueError, "same file", tokens, {"split": 0.5, "out_rest": f"{tokens}.tokenizer.json"}),
        (FileExistsError, not_regular, tmp_path / "dangling", {}),
        (FileExistsError, not_regular, tmp_path / "folder", {}),
        (FileExistsError, not_regular, tmp_path / "pipe", {}),
        (FileExistsError, not_regular, tmp_path / "beside", {}),
        (FileExistsError, not_regular, "/dev/null", {}),
        (FileExistsError, "overwrite=True", tokens, {"overwrite": False}),
    ):
        given = {"tokenizer": tokenizer, "files": [text], "overwrite": True} | options
        with pytest.raises(error, match=why):
            m.data.pack(**given, out=out)
        assert {path: path.lstat() for path in tmp_path.iterdir()} == before, out


def test_truncation_and_padding_of_the_tokenizer_do_not_apply(tmp_path, tokenizer):
    model = tokenizers.Tokenizer.from_file(str(tokenizer))
    model.enable_truncation(4)
    model.enable_padding(length=8, pad_id=0, pad_token="<|end|>")
    limited = tmp_path / "limited.json"
    model.save(str(limited))
    assert len(model.encode(TEXTS[0]).ids) == 8
    m.data.pack(limited, texts=TEXTS, out=tmp_path / "out")
    assert list(numpy.fromfile(tmp_path / "out", "<u2")) == expected(tokenizer, TEXTS)


def test_a_file_is_tokenized_as_it_is_and_must_be_utf8(tmp_path, tokenizer):
    path = tmp_path / "text"
    path.write_bytes(b"a\r\n\xc3\xa9\ra\n")
    tokens = characters(tmp_path, {"\r": 0, "\n": 1, "a": 2, "\u00e9": 3})
    m.data.pack(tokens, files=[path], out=tmp_path / "ends")
    assert list(numpy.fromfile(tmp_path / "ends", "<u2")) == [2, 0, 1, 3, 0, 2, 1]
    path.write_bytes(b"the cat \xff sat")
    with pytest.raises(ValueError, match=f"{path} is no text in UTF-8: found 0xff at byte 8 "):
        m.data.pack(tokenizer, files=[path], out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def characters(folder, vocabulary):
    """The path of a tokenizer whose tokens are these characters."""
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<none>"))
    each = tokenizers.Regex(r"[\s\S]")
    model.pre_tokenizer = tokenizers.pre_tokenizers.Split(each, "isolated")
    path = folder / "characters.json"
    model.save(str(path))
    return path


@pytest.mark.parametrize(
    "highest, dtype", [(9, "uint16"), (65535, "uint16"), (65536, "uint32"), (70000, "uint32")]
)
def test_the_highest_id_decides_about_the_vocabulary_and_the_type(tmp_path, highest, dtype):
    """The tokenizer has three tokens, with gaps between their ids."""
    tokenizer = characters(tmp_path, {"a": 0, "b": 5, "c": highest})
    made = m.data.pack(tokenizer, texts=["abc", "ca"], out=tmp_path / "out")
    assert (made.vocab_size, made.dtype) == (highest + 1, dtype)
    assert list(numpy.fromfile(tmp_path / "out", dtype)) == [0, 5, highest, highest, 0]
    said = json.loads((tmp_path / "out.tokenizer.json").read_text())
    assert (said["vocab_size"], said["dtype"]) == (highest + 1, dtype)
    share = numpy.array([2, 1, 2]) / 5
    assert made.unigram_entropy == pytest.approx(-(share * numpy.log(share)).sum())


def test_arrays_and_columns_are_texts(tmp_path, tokenizer):
    for number, texts in enumerate((numpy.array(TEXTS), pandas.Series(TEXTS))):
        m.data.pack(tokenizer, texts=texts, out=tmp_path / str(number))
        assert list(numpy.fromfile(tmp_path / str(number), "<u2")) == expected(tokenizer, TEXTS)
    with pytest.raises(ValueError, match="expected strings, found nan"):
        m.data.pack(tokenizer, texts=[TEXTS[0], float("nan")], out=tmp_path / "out")


def test_few_large_texts_are_in_memory_at_a_time():
    read = 0

    def texts():
        nonlocal read
        for _ in range(40):
            read += 1
            yield "x" * (1 << 20)

    done = 0
    for batch in m.data._tokens._batches(texts()):
        done += len(batch)
        assert read == done and len(batch) <= 16
    assert done == 40


def test_a_part_of_the_tokens_goes_to_a_second_file(tmp_path, tokenizer):
    made = m.data.pack(
        tokenizer, texts=TEXTS, out=tmp_path / "a", split=0.9, out_rest=tmp_path / "b"
    )
    wanted = expected(tokenizer, TEXTS)
    first = int(len(wanted) * 0.9)
    assert list(numpy.fromfile(tmp_path / "a", "<u2")) == wanted[:first]
    assert list(numpy.fromfile(tmp_path / "b", "<u2")) == wanted[first:]
    assert (made.tokens, made.rest.tokens) == (first, len(wanted) - first)
    share = numpy.unique(wanted[:first], return_counts=True)[1] / first
    assert made.unigram_entropy == pytest.approx(-(share * numpy.log(share)).sum())
    assert json.loads((tmp_path / "b.tokenizer.json").read_text())["tokens"] == made.rest.tokens


def model_of(made, context=16):
    sizes = {"vocab_size": made.vocab_size, "context": context, "layers": 1, "heads": 2}
    return {"gpt2": sizes | {"width": 32}}


def tokens_of(name):
    return {"tokens": {"path": name, "dtype": "uint16"}}


def test_a_job_and_what_it_writes_carry_the_tokenizer_along(muster, tokenizer):
    made = m.data.pack(tokenizer, texts=TEXTS, out=muster.folder / "packed.bin")
    path = jobs.write_job(
        muster.folder, data={"train": tokens_of("packed.bin")}, model=model_of(made)
    )
    muster.cli("run", path)
    source = {"path": str(tokenizer), "xxh3_128": made.tokenizer_xxh3_128}
    with safetensors.safe_open(muster.folder / "model.safetensors", "numpy") as exported:
        metadata = exported.metadata()
    assert metadata["muster_tokenizer"] == source["path"]
    assert metadata["muster_tokenizer_xxh3_128"] == source["xxh3_128"]
    (job,) = (muster.folder / "checkpoints").iterdir()
    checkpoint = list(m.checkpoints.list(job).values())[-1]
    assert m.checkpoints.open(checkpoint).manifest["tokenizer"] == source

    muster.cli("consolidate", checkpoint, "--out", muster.folder / "folder")
    loaded = transformers.AutoTokenizer.from_pretrained(muster.folder / "folder")
    assert loaded(TEXTS[0]).input_ids == expected(tokenizer, TEXTS[:1])
    tokenizer.write_text(tokenizer.read_text() + " ")
    said = muster.cli("consolidate", checkpoint, "--out", muster.folder / "later")
    assert "has changed since it made the training data" in said.out + said.err
    assert not (muster.folder / "later" / "tokenizer.json").exists()


def test_a_running_job_writes_its_tokenizer_into_the_folder_of_the_model(muster, tokenizer):
    made = m.data.pack(tokenizer, texts=TEXTS, out=muster.folder / "packed.bin")
    path = jobs.write_job(
        muster.folder, data={"train": tokens_of("packed.bin")}, model=model_of(made)
    )
    daemon = muster.musterd(local_slots=2)
    with m.Client(muster.address) as client:
        job = client.submit(path, id="one")
        job.consolidate(muster.folder / "folder", at_step=5).result(harness.BOUND)
        job.wait(harness.BOUND, check=True)
    muster.stop(daemon)
    assert (muster.folder / "folder" / "tokenizer.json").read_bytes() == tokenizer.read_bytes()


def test_a_job_refuses_tokens_that_are_not_what_their_sidecar_says(muster, tokenizer):
    made = m.data.pack(tokenizer, texts=TEXTS, out=muster.folder / "packed.bin")
    other = muster.folder / "other.json"
    other.write_text(tokenizer.read_text() + " ")
    m.data.pack(other, texts=TEXTS, out=muster.folder / "other.bin")
    small = dict(model_of(made)["gpt2"], vocab_size=made.vocab_size - 1)
    wide = {"tokens": {"path": "packed.bin", "dtype": "uint32"}}
    both = {"train": tokens_of("packed.bin"), "validate": tokens_of("other.bin")}
    for changes, why in (
        ({"model": {"gpt2": small}}, f"expected at least {made.vocab_size}"),
        ({"data": {"train": wide}}, "dtype: expected uint16"),
        ({"data": both}, "two different tokenizers: data.train"),
    ):
        changes = {"data": {"train": tokens_of("packed.bin")}, "model": model_of(made)} | changes
        refused = muster.cli("run", jobs.write_job(muster.folder, **changes), expect=100)
        assert why in refused.out + refused.err


# ---- The command line ----


def of_python(muster, **more):
    """With the package for the Python of this test."""
    return {"MUSTER_PYTHON": sys.executable, "PYTHONPATH": str(package.folder())} | more


def test_the_command_line_packs_with_a_tokenizer(muster, tokenizer):
    files = []
    for number, text in enumerate(TEXTS[:50]):
        files.append(muster.folder / f"{number}.txt")
        files[-1].write_text(text)
    options = ("--tokenizer", tokenizer, "--separator", "<|end|>", "--split", "0.5")
    outputs = ("--out", "a.bin", "--out-rest", "b.bin")
    with muster.variables(of_python(muster)):
        shown = muster.cli("data", "pack", *options, *outputs, *files)
        document = muster.cli("data", "pack", *options, *outputs, "-o", "json", *files)
    wanted = expected(tokenizer, TEXTS[:50], after=[0])
    half = len(wanted) // 2
    assert list(numpy.fromfile(muster.folder / "a.bin", "<u2")) == wanted[:half]
    assert list(numpy.fromfile(muster.folder / "b.bin", "<u2")) == wanted[half:]
    assert f"a.bin: {half} tokens (uint16), unigram entropy " in shown.out
    assert [one["tokens"] for one in json.loads(document.out)["files"]] == [
        half,
        len(wanted) - half,
    ]


def test_the_command_line_says_why_nothing_was_packed(muster, tokenizer):
    text = muster.folder / "text"
    text.write_text(TEXTS[0])

    def refused(*more, code, **variables):
        with muster.variables(of_python(muster, **variables)):
            arguments = ("--out", "out.bin", text)
            return muster.cli("data", "pack", *more, *arguments, expect=code).err

    of_file = ("--tokenizer", tokenizer)
    assert "no token 'nothing'" in refused(*of_file, "--separator", "nothing", code=2)
    assert "only with a tokenizer's file" in refused(
        "--tokenizer", "bytes", "--separator", "x", code=2
    )
    bad = muster.folder / "bad.json"
    bad.write_text("{}")
    assert "is no tokenizer" in refused("--tokenizer", bad, code=2)
    missing = refused(*of_file, code=1, PYTHONPATH="")
    assert "pip install tokenizers" in missing
    assert "No such file" in refused(*of_file, code=1, MUSTER_PYTHON="/nowhere/python")
    text.write_bytes(b"\xff\xfe")
    assert "no text in UTF-8: found 0xff at byte 0" in refused(*of_file, code=2)
    assert not (muster.folder / "out.bin").exists()
    (muster.folder / "out.bin").symlink_to(text)
    assert "is both input and output" in refused(*of_file, code=2)
    (muster.folder / "out.bin").unlink()
    (muster.folder / "out.bin").symlink_to("nothing")
    assert "is no regular file, and is not replaced" in refused(*of_file, code=1)


class Panic(BaseException):
    """As of a package that is written in Rust."""


@pytest.mark.parametrize(
    "error, kind, text",
    [
        (ImportError("no such package"), "package", "no such package"),
        (ValueError("wrong"), "argument", "wrong"),
        (FileExistsError("it exists"), "file", "it exists"),
        (RuntimeError("index out of range"), "other", "RuntimeError: index out of range"),
        (Panic("unreachable"), "other", "Panic: unreachable"),
        (ValueError("a\udcff is both"), "argument", "a? is both"),
    ],
)
def test_each_error_of_packing_is_told_to_its_caller(monkeypatch, capfdbinary, error, kind, text):
    def fails(*_, **__):
        raise error

    monkeypatch.setattr(data_command.data, "pack", fails)
    monkeypatch.setattr(sys, "argv", ["data", "pack", "--tokenizer", "t", "--out", "o", "input"])
    assert data_command.main() == 1
    assert json.loads(capfdbinary.readouterr().out) == {"error": text, "kind": kind}


def test_an_interrupt_ends_packing_and_leaves_nothing(muster, tokenizer):
    """The input is a pipe into which nothing is written."""
    pipe = muster.folder / "pipe"
    os.mkfifo(pipe)
    command = ("data", "pack", "--tokenizer", tokenizer, "--out", "out.bin", pipe)
    with muster.variables(of_python(muster)):
        child = muster.spawn("muster", *command)
    writer = harness.eventually(lambda: opened(pipe), "the pipe is read")
    child.send_signal(signal.SIGINT)
    muster.wait(child, expect=130)
    os.close(writer)
    assert [path.name for path in muster.folder.iterdir() if "out.bin" in path.name] == []


def opened(pipe):
    try:
        return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None
