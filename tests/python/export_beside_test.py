"""What muster.export writes beside a model of transformers: adapters of PEFT, tokenizers, and
settings for texts. That consolidated folders have them: tests/parity/exported_generate_test.py."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.python import package  # noqa: F401

import muster.export  # isort: skip
from muster.export import NotExportable  # isort: skip


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)
    torch.manual_seed(0)


def base():
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(3)
    config = GPT2Config(
        vocab_size=11, n_positions=8, n_embd=8, n_layer=1, n_head=2,
        bos_token_id=0, eos_token_id=0, use_cache=False,
    )
    return GPT2LMHeadModel(config)


def tokens():
    return torch.randint(0, 11, (2, 6))


def with_adapter(name="default"):
    from peft import LoraConfig, get_peft_model

    made = get_peft_model(
        base(), LoraConfig(r=2, target_modules=["c_attn"], modules_to_save=["ln_f"]), name
    )
    for name, one in made.named_parameters():
        if "lora_B" in name:  # zeros at first
            torch.nn.init.normal_(one)
    return made


@pytest.mark.parametrize("name", ["default", "mine"])
def test_the_adapter_of_trained_weights_is_one_of_peft(tmp_path, name):
    from peft import PeftModel

    model = with_adapter(name)
    muster.export(model, {"input_ids": tokens()}, tmp_path / "exported")
    # Training changes the adapter alone.
    weights = load_file(tmp_path / "exported/model.safetensors")
    with torch.no_grad():
        for parameter, one in model.named_parameters():
            if one.requires_grad:
                one.add_(0.5)
                weights[parameter] = one.detach().clone()
    save_file(weights, tmp_path / "trained.safetensors")
    muster.export.adapter(
        tmp_path / "exported", tmp_path / "trained.safetensors", tmp_path / "adapter"
    )
    opened = PeftModel.from_pretrained(base(), tmp_path / "adapter").eval()
    with torch.no_grad():
        found = opened(tokens_ := tokens()).logits
        assert found.equal(model.eval()(tokens_).logits)
    model.save_pretrained(tmp_path / "by_peft")
    peft = tmp_path / "by_peft" / ("" if name == "default" else name)
    own, by_peft = (
        json.loads((folder / "adapter_config.json").read_text())
        for folder in (tmp_path / "adapter", peft)
    )
    assert own == by_peft
    assert (
        load_file(tmp_path / "adapter/adapter_model.safetensors").keys()
        == load_file(peft / "adapter_model.safetensors").keys()
    )


def test_weights_of_another_model_have_no_adapter(tmp_path):
    muster.export(with_adapter(), {"input_ids": tokens()}, tmp_path / "exported")
    muster.export(base(), {"input_ids": tokens()}, tmp_path / "base")
    with pytest.raises(NotExportable, match="tensors of the adapter are missing"):
        muster.export.adapter(
            tmp_path / "exported", tmp_path / "base/model.safetensors", tmp_path / "adapter"
        )
    with pytest.raises(NotExportable, match="expected the folder of a model that PEFT wrapped"):
        muster.export.adapter(
            tmp_path / "base", tmp_path / "base/model.safetensors", tmp_path / "adapter"
        )
    assert not (tmp_path / "adapter").exists()
    (tmp_path / "adapter").mkdir()
    with pytest.raises(FileExistsError, match="expected the name of a new folder"):
        muster.export.adapter(
            tmp_path / "exported", tmp_path / "exported/model.safetensors", tmp_path / "adapter"
        )
    assert list((tmp_path / "adapter").iterdir()) == []


def test_an_adapter_on_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    import safetensors.torch

    muster.export(with_adapter(), {"input_ids": tokens()}, tmp_path / "exported")

    def full(_, path, **__):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(safetensors.torch, "save_file", full)
    with pytest.raises(OSError, match="No space left"):
        muster.export.adapter(
            tmp_path / "exported", tmp_path / "exported/model.safetensors", tmp_path / "adapter"
        )
    assert [one.name for one in tmp_path.iterdir()] == ["exported"]


def test_a_tokenizer_and_the_settings_for_texts_lie_beside_the_model(tmp_path):
    from tokenizers import Tokenizer, models
    from transformers import AutoTokenizer, GenerationConfig, PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words)
    muster.export(base(), {"input_ids": tokens()}, tmp_path / "m", tokenizer=tokenizer)
    assert AutoTokenizer.from_pretrained(tmp_path / "m").convert_tokens_to_ids("b") == 1
    assert GenerationConfig.from_pretrained(tmp_path / "m").eos_token_id == 0


def test_settings_that_transformers_does_not_write_are_left_out(tmp_path, capsys):
    model = base()
    model.generation_config.temperature = 0.5  # without do_sample
    muster.export(model, {"input_ids": tokens()}, tmp_path / "m")
    assert "no generation_config.json is written" in capsys.readouterr().err
    assert not (tmp_path / "m/generation_config.json").exists()


def test_an_adapter_that_is_more_than_parameters_trains_without_files_of_its_own(tmp_path, capsys):
    from peft import LoraConfig, get_peft_model

    net = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 3))
    model = get_peft_model(net, LoraConfig(r=2, target_modules=["0"], modules_to_save=["1"]))
    muster.export(model, torch.randn(3, 4), tmp_path / "m")
    assert "there will be no files of the adapter 'default'" in capsys.readouterr().err
    assert not (tmp_path / "m/adapter.json").exists()


def test_a_large_model_is_written_into_several_files(tmp_path, monkeypatch):
    from muster.export import _weights

    monkeypatch.setattr(_weights, "_BYTES", 1000)
    model = base()
    muster.export(model, {"input_ids": tokens()}, tmp_path / "m")
    index = json.loads((tmp_path / "m/model.safetensors.index.json").read_text())["weight_map"]
    files = sorted((tmp_path / "m").glob("model-*.safetensors"))
    assert len(files) > 2
    assert not (tmp_path / "m/model.safetensors").exists()
    for name, one in model.named_parameters():
        assert load_file(tmp_path / "m" / index[name])[name].equal(one)
