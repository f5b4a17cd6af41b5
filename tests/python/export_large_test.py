"""Models without values, whose layers are compared with PyTorch one of each kind: their folders are
those of the same models with values."""

import copy
import json
import pathlib

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM

from tests import cases
from tests.python import package  # noqa: F401

import muster.export  # isort: skip
from muster.export import NotExportable, parameters_on_meta  # isort: skip

SMALL = {
    "vocab_size": 61,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "max_position_embeddings": 32,
    "use_cache": False,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": 0,
}


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)
    torch.manual_seed(0)


def tokens():
    return {"input_ids": torch.randint(0, 61, (2, 6))}


def language(kind, **more):
    config = AutoConfig.for_model(kind, **SMALL, **more)
    return lambda: AutoModelForCausalLM.from_config(config, dtype=torch.float32)


def t5():
    config = AutoConfig.for_model(
        "t5", vocab_size=61, d_model=16, d_kv=8, d_ff=24, num_layers=4, num_decoder_layers=5,
        num_heads=2, use_cache=False, decoder_start_token_id=0,
    )
    return AutoModelForSeq2SeqLM.from_config(config, dtype=torch.float32)


class Block(nn.Module):
    def __init__(self, place):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.place = place

    def forward(self, x):
        return x + (self.linear(x).tanh() if self.place == 3 else self.linear(x).relu())


class Own(nn.Module):
    """Layers of two kinds, layers whose sums are made outside of them, a parameter of a layer that
    is used outside of it, and buffers."""

    def __init__(self, block=Block):
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.layers = nn.ModuleList(block(place) for place in range(6))
        self.added = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.tail = nn.Sequential(*(nn.Linear(8, 8) for _ in range(4)))
        self.head = nn.Linear(8, 6)
        shared = nn.Parameter(torch.zeros(8, 8))
        self.tail[0].weight, self.shared = shared, shared
        self.register_buffer("places", torch.arange(8.0), persistent=False)
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x):
        x = self.norm(self.first(x)) + self.places @ self.shared
        for layer in self.layers:
            x = layer(x)
        for layer in self.added:
            x = x + layer(x)
        return self.head(self.tail(x))


MODELS = {
    "own": (
        Own,
        lambda: torch.randn(4, 6),
        {"layers": [0, 1, 3], "added": [0, 1, 2], "tail": [0, 1]},
    ),
    "gemma3": (
        language("gemma3_text", num_hidden_layers=8, sliding_window=4, sliding_window_pattern=3),
        tokens,
        {"model.layers": [0, 1, 2]},
    ),
    "llama": (language("llama", num_hidden_layers=5), tokens, {"model.layers": [0, 1]}),
    "qwen3": (
        language("qwen3", num_hidden_layers=4, tie_word_embeddings=True),
        tokens,
        {"model.layers": [0, 1]},
    ),
    "t5": (
        t5,
        lambda: {**tokens(), "decoder_input_ids": tokens()["input_ids"]},
        {"encoder.block": [0, 1, 2], "decoder.block": [0, 1, 2]},
    ),
}


def files_of(folder):
    return {path.name for path in pathlib.Path(folder).iterdir()}


def both_ways(name, tmp_path, **options):
    """Exports a model with its values, and without. Returns both folders."""
    make, example, _ = MODELS[name]
    given = example()
    model = make()
    muster.export(model, given, tmp_path / "with", **options)
    with parameters_on_meta():
        without = make()
    return muster.export(
        without, given, tmp_path / "without", weights=tmp_path / "with", **options
    )


@pytest.mark.parametrize("name", cases.first_ones(MODELS, 2))
def test_the_folder_is_that_of_the_model_with_values(tmp_path, name):
    both_ways(name, tmp_path)
    assert files_of(tmp_path / "with") == files_of(tmp_path / "without")
    for file in ("train.json", "evaluate.json", "constants.safetensors", "model.safetensors"):
        assert (tmp_path / "with" / file).read_bytes() == (tmp_path / "without" / file).read_bytes()
    manifests = [
        json.loads((tmp_path / one / "manifest.json").read_text()) for one in ("with", "without")
    ]
    references = [one.pop("reference") for one in manifests]
    assert manifests[0] == manifests[1]
    compared = references[1].pop("layers")
    assert {path: one["compared"] for path, one in compared.items()} == MODELS[name][2]
    assert references[0].keys() == references[1].keys()
    assert (tmp_path / "without/model.safetensors").is_symlink()


def refusal(tmp_path, make, weights, example=None):
    """Exports a model without values, and returns why it is refused."""
    with parameters_on_meta():
        model = make()
    with pytest.raises(NotExportable) as refused:
        muster.export(
            model, torch.randn(4, 6) if example is None else example, tmp_path / "m",
            weights=weights,
        )
    assert not (tmp_path / "m").exists()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    return str(refused.value)


@pytest.fixture
def values(tmp_path):
    """A folder with the values of Own."""
    (tmp_path / "values").mkdir()
    tensors = Own().state_dict()
    del tensors["tail.0.weight"]
    save_file(tensors, tmp_path / "values/model.safetensors")
    return tmp_path / "values"


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.relu()

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient


class Loses(Block):
    """A block of which the fifth computes the same forward with another backward."""

    def forward(self, x):
        y = self.linear(x)
        if self.place == 3:
            return x + y.tanh()
        return x + (Doubled.apply(y) if self.place == 5 else y.relu())


class Hooks(Block):
    def forward(self, x):
        y = super().forward(x)
        if self.place == 5:
            y.register_hook(lambda gradient: 2 * gradient)
        return y


class HooksNode(Block):
    def forward(self, x):
        y = super().forward(x)
        if self.place == 5 and y.grad_fn is not None:
            y.grad_fn.register_hook(lambda given, _: tuple(one * 2 for one in given))
        return y


class AsksForTracing(Block):
    def forward(self, x):
        y = super().forward(x)
        return 3 * y if self.place == 5 and not torch.compiler.is_compiling() else y


@pytest.mark.parametrize(
    "block, found",
    [
        (Loses, "Doubled"),
        (Hooks, "hook on the gradient"),
        (HooksNode, "'layers.5' computes something else than 'layers.1'"),
        (AsksForTracing, "'layers.5' computes something else than 'layers.1'"),
    ],
)
def test_what_only_one_of_many_equal_layers_loses_is_refused(tmp_path, values, block, found):
    assert found in refusal(tmp_path, lambda: Own(block), values)


class AsksForType(Block):
    def forward(self, x):
        y = self.linear(x)
        if self.place == 5 and y.dtype != torch.float32:
            y = y.float() * 1
        return x + (y.tanh() if self.place == 3 else y.relu())


def test_precisions_are_those_of_all_layers(tmp_path, values):
    with parameters_on_meta():
        model = Own(AsksForType)
    folder = muster.export(model, torch.randn(4, 6), tmp_path / "m", weights=values)
    assert json.loads((folder / "manifest.json").read_text())["precisions"] == ["float32"]


def test_a_hook_on_one_of_many_equal_layers_is_refused(tmp_path, values):
    def hooked():
        model = Own()
        model.layers[5].register_full_backward_hook(lambda *_: None)
        return model

    assert "'layers.5' has a backward hook" in refusal(tmp_path, hooked, values)


def test_a_list_that_forward_does_not_use_is_no_hindrance(tmp_path, values):
    def with_unused():
        model = Own()
        model.extra = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))
        return model

    change(values, **{f"extra__{i}__{name}": one for i in range(3) for name, one in (
        ("weight", torch.zeros(2, 2)), ("bias", torch.zeros(2)))})
    with parameters_on_meta():
        model = with_unused()
    muster.export(model, torch.randn(4, 6), tmp_path / "m", weights=values)


class Indexed(Own):
    """Counts on all its layers."""

    def forward(self, x):
        x = self.norm(self.first(x))
        for place in range(6):
            x = self.layers[place](x)
        return self.head(x)


class Told(Own):
    """Has another form with fewer layers."""

    def forward(self, x):
        return super().forward(x) * (2.0 if len(self.layers) == 6 else 3.0)


def test_a_model_that_its_layers_do_not_make_up_is_refused(tmp_path, values):
    assert "3 of the 6 layers of 'layers'" in refusal(tmp_path, Indexed, values)
    told = refusal(tmp_path, Told, values)
    assert told.startswith("what lies around the layers (train): the model for the comparison")


def change(folder, **tensors):
    """Replaces tensors of a file, or removes them (None)."""
    path = folder / "model.safetensors"
    found = {**load_file(path), **{name.replace("__", "."): one for name, one in tensors.items()}}
    save_file({name: one for name, one in found.items() if one is not None}, path)


@pytest.mark.parametrize(
    "changed, found",
    [
        ({"head__bias": None}, "have no 'head.bias'; expected F32 or F16 or BF16 [6]"),
        ({"head__bias": torch.zeros(7)}, "'head.bias' is F32 [7]; expected F32 or F16 or BF16 [6]"),
        ({"head__bias": torch.zeros(6).double()}, "'head.bias' is F64 [6]"),
        ({"norm__num_batches_tracked": torch.zeros(())}, "is F32 []; expected I64 []"),
        ({"other": torch.zeros(2)}, "have 'other', which the model does not have"),
        ({"tail__0__weight": torch.ones(8, 8)}, "'tail.0.weight' and 'shared' differ"),
        (
            {"shared": None, "tail__0__weight": torch.zeros(8, 8)},
            "have no 'shared'; expected F32 or F16 or BF16 [8, 8], by the first name that the "
            "model has (others: tail.0.weight)",
        ),
    ],
)
def test_values_of_another_model_are_refused(tmp_path, values, changed, found):
    change(values, **changed)
    assert found in refusal(tmp_path, Own, values)


def test_values_of_a_tied_parameter_may_be_there_twice(tmp_path, values):
    change(values, tail__0__weight=torch.zeros(8, 8))
    with parameters_on_meta():
        model = Own()
    muster.export(model, torch.randn(4, 6), tmp_path / "m", weights=values)


class Masked(Own):
    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.tensor([True, False]))


def test_a_stored_buffer_that_the_model_makes_itself_must_be_equal(tmp_path, values):
    change(values, mask=torch.tensor([True, True]))
    assert "'mask' is another tensor than the buffer" in refusal(tmp_path, Masked, values)
    change(values, mask=torch.tensor([True, False]))
    with parameters_on_meta():
        model = Masked()
    muster.export(model, torch.randn(4, 6), tmp_path / "m", weights=values)


@pytest.mark.parametrize(
    "index, found",
    [
        ("[]", "is no index"),
        ('{"weight_map": {"a": "../x.safetensors"}}', "names files of other folders"),
        ('{"weight_map": {"a": "model.safetensors"}}', "is not where"),
        ('{"weight_map": {"a": "none.safetensors"}}', "none.safetensors"),
    ],
)
def test_an_index_that_is_wrong_is_refused(tmp_path, values, index, found):
    (values / "model.safetensors").rename(values / "other.safetensors")
    index = index.replace("model.safetensors", "other.safetensors")
    (values / "model.safetensors.index.json").write_text(index)
    assert found in refusal(tmp_path, Own, values)


def test_models_and_values_that_do_not_belong_together_are_refused(tmp_path, values):
    example = torch.randn(4, 6)
    assert "on the meta device, without values" in refusal(tmp_path, Own, None)
    assert "has neither" in refusal(tmp_path, Own, tmp_path / "nothing")
    (values / "model.safetensors.index.json").write_text("{}")
    assert "has both" in refusal(tmp_path, Own, values)
    with pytest.raises(NotExportable, match="weights: the model has values already"):
        muster.export(Own(), example, tmp_path / "m", weights=values)
    with torch.device("meta"):
        model = Own()
    with pytest.raises(NotExportable, match="the buffer 'places' is on the meta device"):
        muster.export(model, example, tmp_path / "m", weights=values)
    with parameters_on_meta():
        model = Own()
    model.head.weight = nn.Parameter(torch.zeros(6, 8))
    with pytest.raises(NotExportable, match="'head.weight' has values, and other parameters"):
        muster.export(model, example, tmp_path / "m", weights=values)


def test_values_in_the_folder_that_is_replaced_are_refused(tmp_path):
    muster.export(Own(), torch.randn(4, 6), tmp_path / "m")
    with parameters_on_meta():
        model = Own()
    with pytest.raises(NotExportable, match="model.safetensors lies in .*, which is replaced"):
        muster.export(
            model, torch.randn(4, 6), tmp_path / "m", weights=tmp_path / "m", overwrite=True
        )
    assert not (tmp_path / "m/model.safetensors").is_symlink()


def test_half_precision_in_several_files_as_transformers_writes_them(tmp_path, capsys):
    make, example, _ = MODELS["qwen3"]
    make().bfloat16().save_pretrained(tmp_path / "values", max_shard_size="5KB")
    with parameters_on_meta():
        model = make()
    model.config.rms_norm_eps = 0.5
    folder = muster.export(model, example(), tmp_path / "m", weights=tmp_path / "values")
    stored = {path.name for path in (tmp_path / "values").iterdir()} - {"config.json"}
    assert len(stored) > 3 and stored <= files_of(folder)
    assert (folder / "generation_config.json").read_bytes() == (
        tmp_path / "values/generation_config.json"
    ).read_bytes()
    told = capsys.readouterr().err
    assert "has another 'rms_norm_eps' than its values: 0.5, and in" in told
    assert told.count("than its values") == 1


def test_the_scope_keeps_ties_flags_and_buffers():
    with parameters_on_meta():
        model = Own()
        model.head.requires_grad_(False)
    assert model.shared is model.tail[0].weight
    assert all(one.is_meta for one in model.parameters())
    assert model.places.tolist() == list(range(8))
    copied = copy.deepcopy(model)
    assert copied.shared is copied.tail[0].weight
    with parameters_on_meta():
        module, scale = nn.Module(), nn.Parameter(torch.ones(2))
        module.scale = scale
        scale.requires_grad_(False)
    assert module.scale is scale and scale.is_meta and not module.scale.requires_grad
    with pytest.raises(NotExportable, match="'scale' has a hook on its gradient"):
        with parameters_on_meta():
            hooked = nn.Parameter(torch.ones(2))
            hooked.register_hook(lambda gradient: 2 * gradient)
            nn.Module().scale = hooked
    assert not nn.Linear(2, 2).weight.is_meta
