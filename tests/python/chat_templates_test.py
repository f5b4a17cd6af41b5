"""Chat templates: tokens and marks are those of transformers for the templates of many models,
which the package trl has with and without marks."""

import pathlib
import random

import pytest
import transformers
import trl

from tests.python import chats
from tests.python.chats import chat, documents, folder, pack, trained_texts  # noqa: F401

import muster as m  # isort: skip
from muster.data import _template  # isort: skip

TEMPLATES = pathlib.Path(trl.__file__).parent / "chat_templates"
# Templates, and the tokens that end their turns.
MODELS = {
    "cohere": "<|END_OF_TURN_TOKEN|>",
    "deepseekv3": "<\uff5cend\u2581of\u2581sentence\uff5c>",
    "gemma": "<end_of_turn>",
    "gemma3": "<end_of_turn>",
    "glm4moe": "<|user|>",
    "gptoss": "<|return|>",
    "lfm2": "<|im_end|>",
    "llama3": "<|eot_id|>",
    "phi3": "<|end|>",
    "qwen2_5": "<|im_end|>",
    "qwen3": "<|im_end|>",
    "qwen3_instruct_2507": "<|im_end|>",
}


def random_chat(dice, system):
    turns = [chats.words(dice) for _ in range(2 * dice.randint(1, 3))]
    for at in range(1, len(turns), 2):
        if dice.random() < 0.3:
            turns[at] = f"<think>\n{chats.words(dice).strip()}\n</think>\n\n{turns[at]}"
    if system and dice.random() < 0.5:
        return [{"role": "system", "content": chats.words(dice)}, *chat(*turns)]
    return chat(*turns)


def theirs(folder, template=None):
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), bos_token="<s>", eos_token="</s>"
    )
    tokenizer.chat_template = chats.CHATML if template is None else template
    return tokenizer


@pytest.mark.parametrize("name", MODELS)
def test_tokens_and_marks_of_a_template_with_marks_are_those_of_transformers(
    tmp_path, folder, name
):
    template = TEMPLATES / f"{name}_training.jinja"
    tokenizer = theirs(folder, template.read_text())
    dice = random.Random(name)
    chats = [random_chat(dice, system=name != "gemma") for _ in range(50)]
    records = [{"messages": one} for one in chats]
    made, out = pack(folder, tmp_path, records, chat_template=template)
    assert made.records == len(chats)
    found = documents(out)
    for one, (tokens, marks) in zip(chats, found, strict=True):
        wanted = tokenizer.apply_chat_template(
            one, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
        )
        assert tokens == wanted["input_ids"]
        assert marks == wanted["assistant_masks"]


@pytest.mark.parametrize("name", MODELS)
def test_a_template_without_marks_trains_the_turns_up_to_the_token_that_ends_them(
    tmp_path, folder, name
):
    """The marks of TRL's template for training are compared after white space at their ends and
    headers at their starts are taken away: opinions differ on these."""
    template = TEMPLATES / f"{name}.jinja"
    tokenizer = theirs(folder, template.read_text())
    marked = (TEMPLATES / f"{name}_training.jinja").read_text()
    dice = random.Random(name)
    chats = [random_chat(dice, system=name != "gemma") for _ in range(50)]
    made, out = pack(
        folder, tmp_path, [{"messages": one} for one in chats], chat_template=template
    )
    assert made.endless == 0 or name == "glm4moe"
    compared = 0
    shown = m.data.show_documents(out, documents=list(range(len(chats))))
    for one, (tokens, _), document in zip(chats, documents(out), shown, strict=True):
        assert tokens == tokenizer.apply_chat_template(one, tokenize=True, return_dict=True)[
            "input_ids"
        ]
        parts = [part.text for part in document.parts if part.trained]
        answers = [turn["content"] for turn in one if turn["role"] == "assistant"]
        assert len(parts) == len(answers)
        for part, answer in zip(parts, answers, strict=True):
            said = answer.rpartition("</think>")[2].strip()
            assert said in part
            if name != "glm4moe":  # its turns end with the header of the next one
                # The last turn of Phi 3 ends the text, too.
                part = part.removesuffix("\n</s>") if name == "phi3" else part
                # Turns of gpt-oss before the last one end in another way.
                end = "<|end|>" if part.endswith("<|end|>") else MODELS[name]
                assert part.endswith(end)
                assert part.removesuffix(end).rstrip().endswith(said)
        text, spans = transformers.utils.chat_template_utils.render_jinja_template(
            [one],
            chat_template=marked,
            return_assistant_tokens_mask=True,
            bos_token="<s>",
            eos_token="</s>",
        )
        if text[0] != tokenizer.apply_chat_template(one, tokenize=False):
            continue  # the template for training keeps more of the thoughts
        compared += 1
        # After the last turn of Phi 3 follows an end of the text, which is a part of its own.
        for part, (begin, end) in zip(parts, spans[0], strict=name != "phi3"):
            part = part.removesuffix("\n</s>") if name == "phi3" else part
            assert text[0][begin:end].rstrip().endswith(part.strip())
    assert compared > 10 or name in ("glm4moe",)


def test_only_the_last_turn_or_everything_may_be_trained(tmp_path, folder):
    records = [{"messages": chat("one", "two", "three", "four")}]
    _, out = pack(folder, tmp_path, records, train="last")
    assert trained_texts(folder, out) == ["four<|im_end|>"]
    _, out = pack(folder, tmp_path, records)
    assert trained_texts(folder, out) == ["two<|im_end|>", "four<|im_end|>"]
    made, out = pack(folder, tmp_path, records, train="all")
    (tokens, marks), = documents(out)
    assert marks == [0] + [1] * (len(tokens) - 1)  # the first token is no target
    assert made.files[0].trained == len(tokens) - 1


def test_calls_of_tools_and_thoughts_are_trained(tmp_path, folder):
    tools = [
        {
            "type": "function",
            "function": {
                "name": "weather",
                "description": "The weather",
                "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
            },
        }
    ]
    call = {"type": "function", "function": {"name": "weather", "arguments": {"city": "Ulm"}}}
    messages = [
        {"role": "user", "content": "the weather"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "19"},
        {"role": "assistant", "content": "<think>\nof the cat\n</think>\n\nnumber 19"},
    ]
    template = TEMPLATES / "qwen3.jinja"
    record = {"messages": messages, "tools": tools}
    _, out = pack(folder, tmp_path, [record], chat_template=template)
    wanted = theirs(folder, template.read_text()).apply_chat_template(
        messages, tools=tools, tokenize=True, return_dict=True
    )
    assert documents(out)[0][0] == wanted["input_ids"]
    first, second = trained_texts(folder, out)
    assert first == (
        '<tool_call>\n{"name": "weather", "arguments": {"city": "Ulm"}}\n</tool_call><|im_end|>'
    )
    assert second == "<think>\nof the cat\n</think>\n\nnumber 19<|im_end|>"
    # Parquet gives each message every field, and cannot hold arguments of all kinds as such.
    assert "19" in m.data.show_documents(out, documents=[0])[0].parts[2].text


def test_what_the_template_refuses_is_named(tmp_path, folder):
    records = [{"messages": chat("the", "cat")}] * 2
    records[1:1] = [{"messages": [{"role": "system", "content": "x"}, *chat("the", "cat")]}]
    with pytest.raises(ValueError, match="line 2: the chat template refuses it: System role not"):
        pack(folder, tmp_path, records, chat_template=TEMPLATES / "gemma.jinja")


def test_a_template_without_any_mark_in_its_text_trains_nothing_and_is_refused(tmp_path, folder):
    template = tmp_path / "t.jinja"
    template.write_text("{% for m in messages %}{{ m.content }}{% endfor %}{% if false %}"
                        "{% generation %}{% endgeneration %}{% endif %}")
    with pytest.raises(ValueError, match="the template marks nothing of it as generated"):
        pack(folder, tmp_path, [{"messages": chat("the", "cat")}], chat_template=template)


def test_turns_that_end_with_no_token_are_counted(tmp_path, folder):
    template = tmp_path / "t.jinja"
    template.write_text("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}")
    made, out = pack(
        folder, tmp_path, [{"messages": chat("the", "cat")}] * 5, chat_template=template
    )
    assert made.endless == 5
    # Without a start of an answer in the template, the model has to write this, too.
    assert trained_texts(folder, out) == ["assistant: cat"]


WITH_CALL = [
    {"role": "user", "content": "the weather"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {
                "type": "function",
                "id": "abcdefghi",
                "function": {"name": "weather", "arguments": {"city": "Ulm"}},
            }
        ],
    },
    {"role": "tool", "name": "weather", "tool_call_id": "abcdefghi", "content": "19"},
    {"role": "assistant", "content": "number 19"},
]


WRITE_CALLS = ["gemma4", "qwen2_5", "qwen3", "qwen3_instruct_2507", "qwen3_5_think"]


@pytest.mark.parametrize("name", WRITE_CALLS)
def test_the_answer_of_a_tool_is_not_trained(tmp_path, folder, name):
    template = TEMPLATES / f"{name}.jinja"
    _, out = pack(folder, tmp_path, [{"messages": WITH_CALL}], chat_template=template)
    first, *others = trained_texts(folder, out)
    assert "Ulm" in first and "number 19" in others[-1]
    assert not any("19" in one for one in [first, *others[:-1]])


@pytest.mark.parametrize("name", ["llama3", "phi3"])
def test_calls_of_tools_that_a_template_leaves_out_are_refused(tmp_path, folder, name):
    with pytest.raises(ValueError, match="does not write the `tool_calls` of message 1"):
        pack(
            folder,
            tmp_path,
            [{"messages": WITH_CALL}],
            chat_template=TEMPLATES / f"{name}.jinja",
        )


def test_messages_that_a_template_leaves_out_are_counted(tmp_path, folder):
    template = tmp_path / "t.jinja"
    every = "{% for m in messages %}"
    some = "{% for m in messages if m.role != 'system' %}"
    template.write_text(chats.CHATML.replace(every, some))
    records = [{"messages": [{"role": "system", "content": "x"}, *chat("the", "cat")]}] * 3
    made, out = pack(folder, tmp_path, records, chat_template=template)
    assert made.left_out == 3
    assert made.left_out_at.endswith("line 1: message 0 (system)")
    assert trained_texts(folder, out) == ["cat<|im_end|>"]


def test_thoughts_in_a_field_of_their_own_are_trained(tmp_path, folder):
    turn = {"role": "assistant", "content": "number 19", "thinking": "of the cat"}
    record = {"messages": [*chat("the"), turn, *chat("mat", "sat")]}
    _, out = pack(folder, tmp_path, [record], chat_template=TEMPLATES / "gptoss.jinja")
    first = trained_texts(folder, out)[0]
    assert "number 19" in first
    record = {"messages": [*chat("the"), turn]}
    _, out = pack(folder, tmp_path, [record], chat_template=TEMPLATES / "gptoss.jinja")
    assert "of the cat" in trained_texts(folder, out)[0]


def test_a_weight_of_nothing_leaves_a_turn_out_and_unused_fields_are_named(tmp_path, folder):
    messages = chat("the", "cat", "sat", "mat")
    messages[1]["weight"] = 0
    messages[3] |= {"weight": 1, "mood": "good"}
    made, out = pack(folder, tmp_path, [{"messages": messages}])
    assert trained_texts(folder, out) == ["mat<|im_end|>"]
    assert made.ignored == ["messages[].mood"]
    messages[3]["weight"] = 0.5
    with pytest.raises(ValueError, match=r"`messages\[3\]`.weight: expected 0 or 1, found 0.5"):
        pack(folder, tmp_path, [{"messages": messages}])


@pytest.mark.parametrize("name", MODELS)
def test_the_quick_way_finds_the_same_parts(name):
    """All turns of plain conversations are found with one text more. This must be the same as the
    search turn by turn."""
    text = (TEMPLATES / f"{name}.jinja").read_text()
    special = {"bos_token": "<s>", "eos_token": "</s>"}
    headers = ["<|START_OF_TURN_TOKEN|>", "<start_of_turn>", "<|start_header_id|>", "<|assistant|>"]
    template = _template.ChatTemplate(text, special, [*chats.SPECIAL, *headers])
    quick = 0
    dice = random.Random(name)
    for _ in range(50):
        one = random_chat(dice, system=name != "gemma")
        turns = [at for at, turn in enumerate(one) if turn["role"] == "assistant"]
        written = template.render(one)
        found = template._turns._quick(written, one, turns, None)
        if found is None:
            continue
        quick += 1
        for turn, span in zip(turns, found, strict=True):
            begin = template._turns._begin(written, one, turn, None)
            assert span == (begin, template._turns._end(written, one, turn, None, begin))
    assert quick > 10 or name in ("deepseekv3", "glm4moe", "gptoss", "qwen3")
