"""muster.data.pack_documents: files of records become documents, and what has nothing to train is
named."""

import json
import os
import signal
import subprocess
import sys
import time

import datasets
import numpy
import pyarrow
import pyarrow.parquet
import pytest
import tokenizers

from tests.python import package
from tests.python.chats import chat, documents, folder, pack, write  # noqa: F401

import muster as m  # isort: skip
from muster.data import _documents, _parts  # isort: skip


SHAPES = {
    "text": ({"text": "the cat"}, ["the cat</s>"], "all"),
    "prompt": ({"prompt": "the", "completion": " cat"}, [" cat</s>"], "completion"),
    "messages": ({"messages": chat("the", "cat")}, ["cat<|im_end|>"], "assistant"),
    "prompt of messages": (
        {"prompt": chat("the", "cat", "sat"), "completion": chat("", "mat")[1:]},
        ["mat<|im_end|>"],
        "completion",
    ),
    "sharegpt": (
        {"conversations": [{"from": "human", "value": "the"}, {"from": "gpt", "value": "cat"}]},
        ["cat<|im_end|>"],
        "assistant",
    ),
    "alpaca": (
        {"instruction": "the", "input": "cat", "output": "sat", "id": 7},
        ["sat<|im_end|>"],
        "assistant",
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_is_recognised_and_said(tmp_path, folder, name):
    record, parts, train = SHAPES[name]
    made, out = pack(folder, tmp_path, [record])
    assert made.shape == name.partition(" ")[0] and made.train == train
    assert made.ignored == (["id"] if "id" in record else [])
    (tokens, marks), = documents(out)
    text = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")).decode(
        [token for token, mark in zip(tokens, marks, strict=True) if mark],
        skip_special_tokens=False,
    )
    # The first token of a text is never a target.
    assert "".join(parts).endswith(text) and text


def test_every_kind_of_file_has_the_same_documents(tmp_path, folder):
    records = [{"prompt": f'the "cat", {number}\n', "completion": " sat"} for number in range(2500)]
    rows = datasets.Dataset.from_list(records)
    write(tmp_path / "a.jsonl", records)
    (tmp_path / "b.json").write_text(json.dumps(records, indent=2))
    write(tmp_path / "c.json", records)
    rows.to_csv(tmp_path / "d.csv")
    rows.to_parquet(tmp_path / "e.parquet", batch_size=400)
    rows.save_to_disk(tmp_path / "f")
    with pyarrow.OSFile(str(tmp_path / "g.arrow"), "wb") as file:
        table = pyarrow.Table.from_pylist(records)
        with pyarrow.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    arrow = next((tmp_path / "f").glob("*.arrow"))
    files = [tmp_path / name for name in ("a.jsonl", "b.json", "c.json", "d.csv", "e.parquet")]
    wanted = None
    for file in [*files, arrow, tmp_path / "g.arrow"]:
        out = tmp_path / "out.safetensors"
        made = m.data.pack_documents(folder, files=[file], out=out, overwrite=True, processes=2)
        assert made.records == len(records), file
        wanted = wanted or documents(out)
        assert documents(out) == wanted, file
    assert len(wanted) == len(records)
    m.data.pack_documents(folder, records=rows, out=out, overwrite=True)
    assert documents(out) == wanted


def test_records_that_cannot_be_read_are_named_and_nothing_is_made(tmp_path, folder):
    good = {"messages": chat("the", "cat")}
    path = tmp_path / "in.jsonl"
    out = tmp_path / "out.safetensors"
    for bad, wanted in (
        ('{"messages": [', "line 3: no JSON"),
        ('{"text": "the cat"}', "line 3: `messages`: expected a list of messages, found nothing"),
        ("[1, 2]", "line 3: expected fields with names, found [1, 2]"),
        (
            '{"messages": [{"role": "user", "content": 7}]}',
            "line 3: `messages[0]`.content: expected a text, found 7",
        ),
        (
            '{"messages": [{"role": "user", "content": [{"type": "image"}]}]}',
            "only texts can be trained",
        ),
    ):
        path.write_text(f"{json.dumps(good)}\n\n{bad}\n{json.dumps(good)}\n")
        with pytest.raises(ValueError) as caught:
            m.data.pack_documents(folder, files=[path], out=out)
        assert wanted in str(caught.value), str(caught.value)
        assert "1 record" in str(caught.value)
        assert os.listdir(tmp_path) == ["in.jsonl"]
    path.write_bytes(json.dumps(good).encode() + b'\n{"messages": "\xff"}\n')
    with pytest.raises(ValueError, match="line 2: no text in UTF-8"):
        m.data.pack_documents(folder, files=[path], out=out)


def test_records_without_a_trained_token_are_named_and_refused_above_a_share(tmp_path, folder):
    records = [{"messages": chat("the", "cat")} for _ in range(97)]
    records.insert(3, {"messages": []})
    records.insert(5, {"messages": chat("only the user")})
    records.insert(50, {"messages": chat("the cat", "sat " * 40, "the", "mat")})
    records[50]["messages"][0]["content"] *= 30
    with pytest.raises(ValueError) as caught:
        pack(folder, tmp_path, records, context=64)
    said = str(caught.value)
    assert "3 of 100 records (3.0%) have no trained token, and at most 1.0% may have none" in said
    assert "in.jsonl: line 4: the conversation is empty" in said
    assert "line 6: it has no turn of the assistant that is trained; roles: user" in said
    assert "in.jsonl: line 51: the first 65 of its " in said
    assert os.listdir(tmp_path) == ["in.jsonl"]
    made, out = pack(folder, tmp_path, records, context=64, allow_untrained=0.03)
    assert (made.untrained, made.files[0].documents, made.longer) == (3, 97, 1)
    assert made.longest_at.endswith("line 51") and made.longest > 65
    assert m.data.open_documents(out)["metadata"]["allow_untrained"] == "0.03"
    assert m.data.open_documents(out)["metadata"]["untrained"] == "3"


def test_answers_without_text_and_prompts_without_a_template_are_counted(tmp_path, folder):
    records = [
        {"messages": chat("the", "cat")},
        {"messages": chat("the", "cat", "sat", "  ")},
        {"messages": [*chat("the", ""), {"role": "user", "content": "cat"}]},
    ]
    made, _ = pack(folder, tmp_path, records)
    assert made.empty == 2
    assert made.empty_at.endswith("in.jsonl: line 2: message 3")
    assert made.joined == 0
    (tmp_path / "prompts").mkdir()
    made, _ = pack(folder, tmp_path / "prompts", [{"prompt": "the ", "completion": "cat"}] * 2)
    assert (made.empty, made.joined) == (0, 2)


def test_longer_documents_are_cut_split_or_left_out(tmp_path, folder):
    long = " ".join(str(number) for number in range(100))
    whole = documents(pack(folder, tmp_path, [{"text": long}])[1])[0][0]
    made, out = pack(folder, tmp_path, [{"text": long}], context=20)
    parts = documents(out)
    assert made.longer == 1 and made.lost == 0
    assert all(len(tokens) <= 21 for tokens, _ in parts)
    # Parts share a token: every token but the first is a target once.
    assert [t for tokens, _ in parts for t in tokens[1:]] == whole[1:]
    assert sum(sum(marks) for _, marks in parts) == len(whole) - 1

    made, out = pack(folder, tmp_path, [{"text": long}, {"text": "the"}], context=20, longer="cut")
    assert documents(out)[0][0] == whole[:21]
    assert made.lost == len(whole) - 21
    made, out = pack(
        folder, tmp_path, [{"text": long}, {"text": "the"}], context=20, longer="drop"
    )
    assert (made.files[0].documents, made.untrained, made.lost) == (1, 0, len(whole) - 1)


def test_a_share_of_the_records_goes_to_a_second_file(tmp_path, folder):
    records = [{"text": f"the cat {number}"} for number in range(1000)]
    whole = documents(pack(folder, tmp_path, records)[1])
    rest = tmp_path / "rest.safetensors"
    made, out = pack(folder, tmp_path, records, split=0.9, out_rest=rest)
    first, second = documents(out), documents(rest)
    assert sorted(first + second) == sorted(whole)
    assert 70 <= len(second) <= 130
    assert [one.documents for one in made.files] == [len(first), len(second)]


def test_a_run_that_was_killed_goes_on_and_makes_the_same_file(tmp_path, folder):
    records = [{"messages": chat(f"the cat {at}", "sat on the mat " * 20)} for at in range(12000)]
    given = write(tmp_path / "in.jsonl", records)
    m.data.pack_documents(folder, files=[given], out=tmp_path / "whole.safetensors")
    out = tmp_path / "out.safetensors"
    program = (
        "import sys, muster.data._documents as d\n"
        "d._NOTED = 0.0\n"
        "print(d.pack_documents(sys.argv[1], files=[sys.argv[2]], out=sys.argv[3]).continued)\n"
    )
    command = [sys.executable, "-c", program, folder, given, out]
    environment = os.environ | {"PYTHONPATH": str(package.folder())}
    journal = tmp_path / ".out.safetensors.packing/journal.json"
    kills = 0
    before = 0
    while kills < 3:
        process = subprocess.Popen(command, env=environment, start_new_session=True)
        while process.poll() is None:
            if journal.exists() and json.loads(journal.read_text())["state"]["chunks"] > before:
                process.send_signal(signal.SIGKILL)
                kills += 1
                break
            time.sleep(0.001)
        assert process.wait() == -signal.SIGKILL
        before = json.loads(journal.read_text())["state"]["chunks"]
    assert not out.exists()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert int(done.stdout) > 0
    assert out.read_bytes() == (tmp_path / "whole.safetensors").read_bytes()
    assert not journal.parent.exists()


class Stopped(BaseException):
    """As of Ctrl-C."""


def stop_after(monkeypatch, notes):
    """Notes after every chunk, and stops after this number of notes, or, with 0, before the first
    one."""
    monkeypatch.setattr(_documents, "_NOTED", 0.0)
    note = _parts.Journal.note
    left = [notes]

    def noted(journal, state):
        if left[0] == 0:
            raise Stopped
        note(journal, state)
        left[0] -= 1
        if left[0] == 0:
            raise Stopped

    monkeypatch.setattr(_parts.Journal, "note", noted)


def many(count, bad=None):
    records = [{"text": f"the cat {at} " + "sat " * 50} for at in range(count)]
    if bad is not None:
        records[bad] = {"txet": "the cat"}
    return records


def test_a_journal_of_other_settings_is_not_continued(tmp_path, folder, monkeypatch):
    """Runs with other settings empty the parts: the first run's journal must not outlive them."""
    given = write(tmp_path / "in.jsonl", many(9000))
    out = tmp_path / "out.safetensors"
    options = {"files": [given], "out": out, "processes": 1}
    for notes, train in ((2, "all"), (0, "completion")):
        with monkeypatch.context() as patch:
            stop_after(patch, notes)
            with pytest.raises(Stopped):
                m.data.pack_documents(folder, train=train, **options)
    made = m.data.pack_documents(folder, train="all", **options)
    assert made.continued == 0
    found = out.read_bytes()
    out.unlink()
    m.data.pack_documents(folder, train="all", **options)
    assert out.read_bytes() == found


def test_a_run_that_goes_on_finds_what_was_damaged_before(tmp_path, folder, monkeypatch):
    given = write(tmp_path / "in.jsonl", many(9000, bad=10))
    options = {"files": [given], "out": tmp_path / "out.safetensors", "processes": 1}
    with monkeypatch.context() as patch:
        stop_after(patch, 1)
        with pytest.raises(ValueError, match="1 record cannot be read"):
            m.data.pack_documents(folder, **options)
    given = write(tmp_path / "in.jsonl", many(9000, bad=8990))
    with monkeypatch.context() as patch:
        stop_after(patch, 1)
        with pytest.raises(Stopped):
            m.data.pack_documents(folder, **options)
    with pytest.raises(ValueError, match="line 8991: `text`: expected a text"):
        m.data.pack_documents(folder, **options)
    assert os.listdir(tmp_path) == ["in.jsonl"]


def test_a_part_that_is_shorter_than_its_journal_says_starts_anew(tmp_path, folder, monkeypatch):
    given = write(tmp_path / "in.jsonl", many(9000))
    out = tmp_path / "out.safetensors"
    options = {"files": [given], "out": out, "processes": 1}
    with monkeypatch.context() as patch:
        stop_after(patch, 2)
        with pytest.raises(Stopped):
            m.data.pack_documents(folder, **options)
    os.truncate(tmp_path / ".out.safetensors.packing/0/tokens", 100)
    assert m.data.pack_documents(folder, **options).continued == 0
    assert len(documents(out)) == 9000


def test_both_files_are_made_or_none(tmp_path, folder):
    out, rest = tmp_path / "out.safetensors", tmp_path / "rest.safetensors"
    with pytest.raises(ValueError, match="would have no document"):
        pack(folder, tmp_path, [{"text": "the cat"}], split=0.5, out_rest=rest)
    assert not out.exists() and not rest.exists()


def test_a_process_that_fails_names_the_record(tmp_path, folder):
    records = [{"text": "the cat"}, {"text": "a\ud83d"}]
    with pytest.raises(ValueError, match="line 2: no Unicode: the surrogate '.ud83d' stands"):
        pack(folder, tmp_path, records)
    template = tmp_path / "t.jinja"
    template.write_text("{{ 1 / 0 }}")
    with pytest.raises(ValueError, match="line 1: the chat template fails: ZeroDivisionError"):
        pack(folder, tmp_path, [{"messages": chat("the", "cat")}], chat_template=template)


def test_nothing_is_lost_between_the_records(tmp_path, folder):
    out = tmp_path / "out.safetensors"

    def refused(name, contents, said):
        path = tmp_path / name
        path.write_text(contents)
        with pytest.raises(ValueError) as caught:
            m.data.pack_documents(folder, files=[path], out=out)
        assert said in str(caught.value) and str(path) in str(caught.value), str(caught.value)

    text = '{"text": "the cat"}'
    refused("a.jsonl", f"{text}\nnull\n", "line 2: expected fields with names, found nothing")
    refused("b.json", f"[{text}, null]", "element 2: expected fields with names, found nothing")
    refused("c.json", f"[{text}]\n[{text}]", "after the list: expected nothing, found '[")
    refused("d.json", f"[{text}, {{]", "element 2: no JSON")
    refused("e.csv", "text,text\na,b\n", "a field appears twice: text, text")
    refused("f.csv", "text,id\na\n", "row 1: expected 2 fields as in the first line, found 1")
    (tmp_path / "g.parquet").write_bytes(b"PAR1 nothing")
    with pytest.raises(ValueError, match="g.parquet: "):
        m.data.pack_documents(folder, files=[tmp_path / "g.parquet"], out=out)
    history = {"instruction": "the", "output": "cat", "history": [["one", "two", "three"]]}
    with pytest.raises(ValueError, match=r"`history\[0\]`: expected two texts"):
        pack(folder, tmp_path, [history])


def test_columns_are_taken_all_at_once(tmp_path, folder):
    record = {"input": "the", "instruction": "cat", "output": "sat", "text": "number 7"}
    made, out = pack(
        folder, tmp_path, [record], columns={"input": "instruction", "instruction": "input"}
    )
    (shown,) = m.data.show_documents(out, documents=[0])
    assert "the\ncat" in shown.parts[0].text
    assert made.ignored == ["text"]
    with pytest.raises(ValueError, match="column tool: expected one of"):
        pack(folder, tmp_path, [record], columns={"tool": "input"})


@pytest.mark.parametrize(
    "record, settings, said",
    [
        ({"messages": chat("the", "cat")}, {"end": "</s>"}, "is for texts"),
        ({"text": "the"}, {"longer": "drop"}, "give context"),
        ({"text": "the"}, {"chat_template": __file__}, "is for conversations"),
        ({"text": "the"}, {"processes": 0}, "expected at least 1, found 0"),
        ({"text": "the"}, {"train": "assistant"}, "is for conversations"),
        ({"text": "the"}, {"end": "<|nothing|>"}, "has no token '<|nothing|>'"),
        (
            {"messages": [{"speaker": "user", "text": "the"}]},
            {},
            "`messages[0]`: expected `role` and `content`, or `from` and `value`; found speaker",
        ),
    ],
)
def test_settings_without_a_meaning_are_refused(tmp_path, folder, record, settings, said):
    with pytest.raises(ValueError) as caught:
        pack(folder, tmp_path, [record], **settings)
    assert said in str(caught.value)


def test_texts_of_a_tokenizer_without_an_end_are_refused_unless_none_is_wanted(tmp_path, folder):
    (tmp_path / "bare.json").write_bytes((folder / "tokenizer.json").read_bytes())
    given = write(tmp_path / "in.jsonl", [{"text": "the cat"}])
    options = {"files": [given], "out": tmp_path / "out.safetensors"}
    with pytest.raises(ValueError, match="names no token that ends a text"):
        m.data.pack_documents(tmp_path / "bare.json", **options)
    made = m.data.pack_documents(tmp_path / "bare.json", end="", **options)
    assert made.endless == 1


def test_two_runs_for_one_file_at_a_time_are_refused(tmp_path, folder):
    out = tmp_path / "out.safetensors"

    def slow():
        yield from [{"text": "the cat"}] * 1000  # the first chunk, which is read before all else
        with pytest.raises(OSError, match="another program makes"):
            m.data.pack_documents(folder, records=[{"text": "x"}], out=out)
        yield {"text": "sat"}

    made = m.data.pack_documents(folder, records=slow(), out=out)
    assert made.records == 1001


def test_a_damaged_file_of_documents_and_another_tokenizer_are_refused(tmp_path, folder):
    _, out = pack(folder, tmp_path, [{"text": "the cat"}])
    with pytest.raises(ValueError, match="has the documents 0 to 0; no 3"):
        m.data.show_documents(out, documents=[3])
    numpy.savez(tmp_path / "x.npz", tokens=numpy.arange(3))
    with pytest.raises(ValueError, match="is no file of documents"):
        m.data.show_documents(tmp_path / "x.npz")
    other = tmp_path / "other"
    other.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (other / name).write_bytes((folder / name).read_bytes())
    _, out = pack(other, tmp_path, [{"text": "the cat"}])
    (other / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match="has changed since"):
        m.data.show_documents(out)


def of_python(muster, folder):
    return {"MUSTER_PYTHON": sys.executable, "PYTHONPATH": str(package.folder())}


def test_the_command_line_packs_shows_and_refuses(muster, folder):
    records = [{"messages": chat(f"the cat {number}", "sat")} for number in range(20)]
    records.append({"messages": []})
    write(muster.folder / "in.jsonl", records)
    command = ("data", "pack", "--tokenizer", folder, "in.jsonl", "--out")
    with muster.variables(of_python(muster, folder)):
        refused = muster.cli(*command, "out.safetensors", expect=2).err
        assert "1 of 21 records (4.8%) have no trained token" in refused
        assert "in.jsonl: line 21: the conversation is empty" in refused
        allowed = ("--allow-untrained", "0.05")
        made = muster.cli(*command, "out.safetensors", *allowed).out
        assert made.startswith("out.safetensors: 20 documents, ")
        assert "21 records of the shape `messages`; trained: assistant\n" in made
        assert made.count("\u27e6sat<|im_end|>\u27e7") == 5
        document = json.loads(
            muster.cli(*command, "out.safetensors", *allowed, "-o", "json").out
        )
        assert (document["records"], document["files"][0]["documents"]) == (21, 20)
        shown = muster.cli("data", "show", "out.safetensors", "7", "3").out
        lines = [line for line in shown.splitlines() if "cat" in line]
        assert lines == ["the cat 7<|im_end|>", "the cat 3<|im_end|>"]
        assert "no 99" in muster.cli("data", "show", "out.safetensors", "99", expect=2).err
        said = muster.cli(*command, "out.bin", expect=2).err
        assert "in.jsonl has records; expected an --out" in said
        said = muster.cli(*command, "out.bin", "--train", "all", expect=2).err
        assert "--train is for files of documents" in said
        bytes_ = ("data", "pack", "--tokenizer", "bytes", "in.jsonl", "--out")
        assert "makes plain tokens" in muster.cli(*bytes_, "out.safetensors", expect=2).err
        columns = ("--column", "messages=chat", "--column", "tools=no")
        said = muster.cli(*command, "out.safetensors", *columns, expect=2).err
        assert "there is no field `chat`" in said
