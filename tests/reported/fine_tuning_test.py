"""Fine-tunes on conversations that taught something else than what was meant, in other tools."""

import json
import math

import pytest
import tokenizers
import transformers

from tests.parity import hugging_face_models
from tests.python import package  # noqa: F401

import muster as m  # isort: skip

# Templates like those of Llama 2 (the token that begins a text is in the template) and of Qwen.
LLAMA2 = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ '[INST] ' + m.content + "
    "' [/INST]' }}{% else %}{{ ' ' + m.content + ' ' + eos_token }}{% endif %}{% endfor %}"
)
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def chat(*turns):
    roles = ("user", "assistant")
    return [{"role": roles[at % 2], "content": text} for at, text in enumerate(turns)]


def tokenizer_folder(folder, template=CHATML, bos=False, **config):
    folder.mkdir()
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = tokenizers.decoders.ByteLevel()
    special = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]
    model.train_from_iterator(
        ["one two three"],
        tokenizers.trainers.BpeTrainer(
            special_tokens=special, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()
        ),
    )
    if bos:
        model.post_processor = tokenizers.processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", 0)]
        )
    model.save(str(folder / "tokenizer.json"))
    said = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": template} | config
    (folder / "tokenizer_config.json").write_text(json.dumps(said))
    return folder


def pack(tmp_path, folder, records, **more):
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in records))
    out = tmp_path / "train.safetensors"
    return m.data.pack_documents(folder, files=[path], out=out, overwrite=True, **more)


def shown(made):
    """The text and the trained parts of the first document."""
    (document,) = m.data.show_documents(made.files[0].path, documents=[0])
    whole = "".join(part.text for part in document.parts)
    return whole, [part.text for part in document.parts if part.trained]


def test_a_limit_of_the_length_that_leaves_no_answer_trains_nothing_and_says_so(tmp_path):
    """huggingface/trl#6668: every label is masked after truncation; the loss is reported as 0.0."""
    folder = tokenizer_folder(tmp_path / "tokenizer")
    records = [{"prompt": "a long question " * 20, "completion": "one"}] * 64
    with pytest.raises(ValueError, match="64 of 64 records .* have no trained token"):
        pack(tmp_path, folder, records, context=16)


def test_the_end_is_trained_although_it_is_also_the_padding(tmp_path):
    """huggingface/trl#1623, mlabonne/llm-course#33: with pad_token = eos_token the end of a text is
    masked, and the model never stops."""
    folder = tokenizer_folder(tmp_path / "tokenizer", pad_token="</s>")
    assert shown(pack(tmp_path, folder, [{"text": "one two"}])) == ("one two</s>", [" two</s>"])
    folder = tokenizer_folder(tmp_path / "llama", template=LLAMA2, pad_token="</s>")
    assert shown(pack(tmp_path, folder, [{"messages": chat("one", "two")}]))[1] == [" two </s>"]


def test_a_text_begins_once(tmp_path):
    """huggingface/alignment-handbook#127: the template and the tokenizer both add the token that
    begins a text."""
    folder = tokenizer_folder(tmp_path / "tokenizer", template=LLAMA2, bos=True)
    whole, _ = shown(pack(tmp_path, folder, [{"messages": chat("one", "two")}]))
    assert whole == "<s>[INST] one [/INST] two </s>"
    whole, _ = shown(pack(tmp_path, folder, [{"text": "one"}]))
    assert whole == "<s>one</s>"


def test_all_turns_of_the_assistant_are_trained(tmp_path):
    """axolotl-ai-cloud/axolotl#1761: only the last answer of a conversation is trained."""
    folder = tokenizer_folder(tmp_path / "tokenizer")
    made = pack(tmp_path, folder, [{"messages": chat("one", "two", "three", "one two")}])
    assert shown(made)[1] == ["two<|im_end|>", "one two<|im_end|>"]


def test_the_history_of_a_record_is_part_of_the_conversation(tmp_path):
    """hiyouga/LlamaFactory#4683: the turns before the last one are not in the data."""
    folder = tokenizer_folder(tmp_path / "tokenizer")
    record = {"instruction": "three", "output": "one two", "history": [["one", "two"]]}
    whole, trained = shown(pack(tmp_path, folder, [record]))
    assert whole.count("<|im_start|>user") == 2
    assert trained == ["two<|im_end|>", "one two<|im_end|>"]


def test_a_conversation_may_end_with_the_user(tmp_path):
    """axolotl-ai-cloud/axolotl#3231: a conversation whose last turn is the user's ends the whole
    preparation."""
    folder = tokenizer_folder(tmp_path / "tokenizer")
    made = pack(tmp_path, folder, [{"messages": chat("one", "two", "three")}])
    assert made.untrained == 0
    assert shown(made)[1] == ["two<|im_end|>"]


def test_an_error_names_the_record(tmp_path):
    """axolotl-ai-cloud/axolotl#593: an error in one of many records does not say in which."""
    folder = tokenizer_folder(tmp_path / "tokenizer")
    records = [{"messages": chat("one", "two")} for _ in range(2000)]
    records[1234] = {"messages": [{"role": "user", "content": {"text": "one"}}]}
    with pytest.raises(ValueError) as caught:
        pack(tmp_path, folder, records)
    assert "in.jsonl: line 1235: `messages[0]`.content: expected a text" in str(caught.value)


def job(folder, **more):
    """A job on the documents of pack. None: without this field."""
    model = hugging_face_models.build("qwen3", vocab_size=300, max_position_embeddings=128)
    model.save_pretrained(folder / "model")
    spec = {
        "name": "documents",
        "world_size": 2,
        "model": {"hf": str(folder / "model"), "context": 32},
        "data": {"train": {"documents": {"path": str(folder / "train.safetensors")}}},
        "batch": {"per_rank": 2},
        "optimizer": {"adamw": {"lr": 1e-3}},
        "stages": [{"fit": {"steps": 3}}],
        **more,
    }
    path = folder / "job.yaml"
    path.write_text(json.dumps({name: one for name, one in spec.items() if one is not None}))
    return path


def test_held_out_data_may_be_fewer_than_a_batch(muster):
    """axolotl-ai-cloud/axolotl#1644: with packing, a small set for evaluation has no batch, and the
    run fails."""
    folder = tokenizer_folder(muster.folder / "tokenizer")
    pack(muster.folder, folder, [{"messages": chat("one", "two")}])
    documents = {"documents": {"path": str(muster.folder / "train.safetensors")}}
    path = job(
        muster.folder, data={"validate": documents}, stages=[{"validate": {}}], optimizer=None
    )
    ended = muster.cli("run", path, "-o", "json").json()
    assert math.isfinite(ended["validation_loss"])


def test_packed_conversations_have_their_own_positions(muster):
    """hiyouga/LlamaFactory#7318: packing keeps attention apart but lets positions run on, so a
    packed conversation has another loss than by itself."""
    folder = tokenizer_folder(muster.folder / "tokenizer")
    pack(muster.folder, folder, [{"messages": chat(f"one {at}", "two")} for at in range(12)])
    losses = []
    for packing in ("best_fit", "none"):
        documents = {"path": str(muster.folder / "train.safetensors"), "packing": packing}
        path = job(
            muster.folder,
            data={"validate": {"documents": documents}},
            stages=[{"validate": {}}],
            optimizer=None,
            model={"hf": str(muster.folder / "model"), "context": 100},
        )
        losses.append(muster.cli("run", path, "-o", "json").json()["validation_loss"])
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)


def test_the_result_opens_with_its_tokenizer_and_template(muster):
    """unslothai/unsloth#416, huggingface/trl#3091: the folder of a trained model lacks the
    tokenizer or the template with which it was trained, and answers in another way."""
    folder = tokenizer_folder(muster.folder / "tokenizer")
    pack(muster.folder, folder, [{"messages": chat(f"one {at}", "two")} for at in range(12)])
    path = job(muster.folder, export={"path": str(muster.folder / "tuned/model.safetensors")})
    for one in folder.iterdir():
        (muster.folder / "model" / one.name).write_bytes(one.read_bytes())
    muster.cli("run", path)
    tuned = transformers.AutoTokenizer.from_pretrained(muster.folder / "tuned")
    wanted = transformers.AutoTokenizer.from_pretrained(muster.folder / "model")
    given = chat("one", "two")
    assert tuned.apply_chat_template(given) == wanted.apply_chat_template(given)
    transformers.AutoModelForCausalLM.from_pretrained(muster.folder / "tuned")
