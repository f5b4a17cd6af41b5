"""What muster.export writes, and what it refuses. That the worker trains such folders as PyTorch
does: tests/parity/exported_test.py."""

import json
import pathlib
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from tests.python import package

import muster.export  # isort: skip
from muster.export import NotExportable  # isort: skip


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)
    torch.manual_seed(0)


def rows():
    return torch.randn(2, 4)


def read(folder, name):
    return json.loads((pathlib.Path(folder) / f"{name}.json").read_text())


class Plain(nn.Module):
    """A base of models whose forward is one function."""

    def __init__(self, forward=None, **modules):
        super().__init__()
        for name, module in modules.items():
            setattr(self, name, module)
        self.function = forward

    def forward(self, x):
        return self.function(self, x)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        return gradient * 2


def with_hook(model):
    model.fc.register_full_backward_hook(lambda module, before, after: None)
    return model


def with_parameter_hook(model):
    model.fc.weight.register_hook(lambda gradient: gradient * 2)
    return model


@torch.library.custom_op("export_test::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


twice.register_fake(torch.empty_like)
twice.register_autograd(lambda context, gradient: gradient * 2)


def half(model):
    return model.to(torch.bfloat16)


def frozen(model):
    return model.requires_grad_(False)


def change_parameter(model, x):
    with torch.no_grad():
        model.fc.weight.mul_(0.9)
    return model.fc(x)


def linear(function, change=lambda model: model):
    return lambda: change(Plain(function, fc=nn.Linear(4, 3)))


def plain(model, x):
    return model.fc(x)


class Counts(nn.Module):
    """Counts its calls in a number of Python, which no graph has."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.fc(x) * self.calls


def clipped(model, x):
    y = model.fc(x)
    y.register_hook(lambda gradient: gradient.clamp(-1, 1))
    return y * 2


class Statistics(nn.Module):
    """Normalizes with statistics that it changes in evaluation, too."""

    def __init__(self, persistent=True):
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.register_buffer("mean", torch.zeros(4), persistent=persistent)
        self.register_buffer("variance", torch.ones(4), persistent=persistent)

    def forward(self, x):
        return self.fc(nn.functional.batch_norm(x, self.mean, self.variance, training=True))


# name: (makes the model, its example, a part of the error)
REFUSED = {
    "custom-function": (
        linear(lambda model, x: Doubled.apply(model.fc(x))),
        rows,
        "torch.autograd.Function: Doubled",
    ),
    "backward-hook": (linear(plain, with_hook), rows, "module 'fc' has a backward hook"),
    "hook-of-a-parameter": (
        linear(plain, with_parameter_hook), rows, "parameter 'fc.weight' has a hook"
    ),
    "an-operator-of-another-library": (
        linear(lambda model, x: twice(model.fc(x))),
        rows,
        "the model: calls export_test::twice, which no worker runs",
    ),
    "half-precision": (linear(plain, half), rows, "'fc.weight' is bfloat16 [3, 4]"),
    "nothing-to-train": (linear(plain, frozen), rows, "no parameter with requires_grad"),
    "branch-on-values": (
        linear(lambda model, x: model.fc(x) if x.sum() > 0 else -model.fc(x)),
        rows,
        "compute both sides, and choose with torch.where",
    ),
    "numpy-in-forward": (
        linear(lambda model, x: model.fc(torch.from_numpy(x.numpy()))), rows, "calls NumPy"
    ),
    "a-number-out-of-a-tensor": (
        linear(lambda model, x: model.fc(x) / model.fc(x).abs().max().item()),
        rows,
        "the model: takes a number out of a tensor (.item(), float(x))",
    ),
    "a-compiled-model": (
        lambda: torch.compile(nn.Linear(4, 3)), rows, "module '' is made by torch.compile"
    ),
    "branch-on-the-number-of-samples": (
        linear(lambda model, x: model.fc(x) if x.shape[0] > 2 else -model.fc(x)),
        rows,
        "The batch must be free",
    ),
    "a-fixed-number-of-samples": (
        linear(lambda model, x: model.fc(x.view(3, 4))), rows, "The batch must be free"
    ),
    "a-shape-that-depends-on-values": (
        linear(lambda model, x: model.fc(x[x[:, 0] > 0])),
        rows,
        "expected logits, with the number of samples as their first dimension",
    ),
    "several-results": (
        linear(lambda model, x: (model.fc(x), x)), rows, "the model returns tuple of 2"
    ),
    "a-number-as-result": (
        linear(lambda model, x: 3.0), rows, "the model returns float; expected one tensor"
    ),
    "a-parameter-in-place": (
        linear(change_parameter), rows, "changes the parameter 'fc.weight' in place"
    ),
    "a-number-that-python-counts": (Counts, rows, "differs from the model's own"),
    "example-without-samples": (linear(plain), lambda: torch.zeros(()), "'x' is float32 []"),
    "example-that-is-no-tensor": (linear(plain), lambda: [3], "'x' is int; expected a tensor"),
    "example-on-another-device": (
        linear(plain), lambda: torch.zeros(2, 4, device="meta"), "'x' is on meta"
    ),
    "example-without-inputs": (linear(plain), lambda: {}, "expected at least one input"),
    "an-input-that-forward-does-not-have": (
        linear(plain),
        lambda: {"x": torch.rand(2, 4), "y": torch.rand(2, 4)},
        "the model's forward has no y; it has x",
    ),
    "inputs-of-different-numbers-of-samples": (
        linear(plain),
        lambda: {"x": torch.rand(2, 4), "y": torch.rand(3, 4)},
        "the numbers of samples are {'x': 2, 'y': 3}",
    ),
    "an-input-of-a-type-that-no-data-have": (
        linear(plain), lambda: torch.rand(2, 4).double(), "'x' is float64 [2, 4]; expected one of"
    ),
    "example-without-a-sample": (
        linear(plain), lambda: torch.rand(0, 4), "the numbers of samples are {'x': 0}"
    ),
    "a-sum-as-loss": (
        linear(lambda model, x: model.fc(x).pow(2).sum()), rows, "the loss is no mean over samples"
    ),
    "a-loss-of-pairs-of-samples": (
        linear(lambda model, x: (model.fc(x) @ model.fc(x).T).mean()),
        rows,
        "the loss is no mean over samples",
    ),
    "a-loss-for-each-sample": (
        linear(lambda model, x: {"loss": model.fc(x).mean(1)}), rows, "expected a tensor without di"
    ),
    "a-loss-only-in-evaluation": (
        linear(lambda model, x: model.fc(x) if model.training else model.fc(x).mean()),
        rows,
        "the model returns another thing in training (['batch', 3]) than in evaluation ([])",
    ),
    "a-sum-as-loss-only-in-training": (
        linear(
            lambda model, x: (
                model.fc(x).pow(2).sum() if model.training else model.fc(x).pow(2).mean()
            )
        ),
        rows,
        "in training the loss is not the mean that it is in evaluation",
    ),
    "example-of-equal-numbers": (
        linear(plain), lambda: torch.zeros(2, 4), "all numbers are equal"
    ),
    "hook-of-a-tensor": (linear(clipped), rows, "puts a hook on the gradient of a tensor"),
    "another-branch-for-one-sample": (
        linear(lambda model, x: model.fc(x) if x.shape[0] != 1 else -model.fc(x)),
        rows,
        "with 1 samples, the result differs",
    ),
    "statistics-in-evaluation": (
        Statistics, rows, "batch_norm.default changes the buffer 'mean' in place in evaluation"
    ),
    "statistics-that-no-checkpoint-has": (
        lambda: Statistics(persistent=False), rows, "changes the constant 'mean' in place"
    ),
    "a-result-in-double-precision": (
        linear(lambda model, x: model.fc(x).double()), rows, "the model returns float64"
    ),
    "random-in-evaluation": (
        linear(lambda model, x: nn.functional.dropout(model.fc(x), 0.5, training=True)),
        rows,
        "draws random numbers in evaluation",
    ),
}


class Pairs(nn.Module):
    """Has two inputs, and tells apart words that stand in different places."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(11, 5)
        self.fc = nn.Linear(5, 11)
        self.numbers = nn.Linear(3, 5)

    def forward(self, words, numbers):
        return self.fc(self.words(words.view(-1, words.shape[-1])) + self.numbers(numbers)[:, None])


def pair():
    return {"words": torch.tensor([[1, 5, 2, 9, 3, 7], [4, 0, 10, 6, 8, 2]]),
            "numbers": torch.randn(2, 3)}


def cross_entropy(output, labels):
    return nn.functional.cross_entropy(output.flatten(0, 1), labels.flatten())


def shifted(output, labels):
    return cross_entropy(output[:, :-1], labels[:, 1:])


def by_position(output, labels):
    """A mean over samples: the labels that are left out count as 0."""
    return nn.functional.cross_entropy(
        output.flatten(0, 1), labels.flatten(), reduction="none"
    ).view(labels.shape).mean()


def of_every_class(output, labels):
    """A mean weighted by classes."""
    weights = torch.linspace(1, 2, 11)
    return nn.functional.cross_entropy(output.flatten(0, 1), labels.flatten(), weights)


def without_padding(output, labels):
    return nn.functional.cross_entropy(output.flatten(0, 1), labels.flatten(), ignore_index=0)


def masked(output, labels, mask):
    losses = nn.functional.cross_entropy(
        output.flatten(0, 1), labels.flatten(), reduction="none"
    ).view(labels.shape)
    return (losses * mask).sum() / mask.sum()


def with_mask():
    return labels() | {"mask": torch.ones(2, 6, dtype=torch.int64)}


EXTRA = nn.Parameter(torch.ones(()))


def squares(output, wanted):
    return nn.functional.mse_loss(output.mean(1), wanted)


def labels():
    return {"labels": torch.tensor([[5, 2, 9, 3, 7, 1], [0, 10, 6, 8, 2, 4]])}


def wanted():
    return {"wanted": torch.randn(2, 11)}


# name: (the loss, what the example has for it, what the manifest says)
MEANS = {
    "targets": (cross_entropy, labels, {"input": "labels", "first": 0, "ignored": -100}),
    "targets-of-which-the-example-ignores-the-first": (
        cross_entropy,
        lambda: {"labels": labels()["labels"].index_fill(1, torch.arange(5), -100)},
        {"input": "labels", "first": 0, "ignored": -100},
    ),
    "shifted-targets": (shifted, labels, {"input": "labels", "first": 1, "ignored": -100}),
    "all-positions": (by_position, labels, {}),
    "numbers": (squares, wanted, {}),
    # One column, as tables have them.
    "a-column": (
        lambda output, labels: cross_entropy(output[:, :1], labels),
        lambda: {"labels": torch.tensor([[3], [7]])},
        {"input": "labels", "first": 0, "ignored": -100},
    ),
}


@pytest.mark.parametrize("name", MEANS)
def test_the_manifest_says_what_a_loss_is_the_mean_of(tmp_path, name):
    loss, more, expected = MEANS[name]
    muster.export(Pairs(), pair() | more(), tmp_path / "folder", loss=loss)
    manifest = read(tmp_path / "folder", "manifest")
    assert manifest["output"] == {
        "kind": "loss", "dtype": "float32", "shape": [], "terms": expected
    }
    words, numbers, *_ = manifest["inputs"]
    assert words == {"name": "words", "dtype": "int64", "shape": ["batch", 6], "below": 11}
    assert numbers == {"name": "numbers", "dtype": "float32", "shape": ["batch", 3]}


def test_a_last_layer_of_zeros_hides_no_mean(tmp_path):
    model = Pairs()
    nn.init.zeros_(model.fc.weight)
    nn.init.zeros_(model.fc.bias)
    muster.export(model, pair() | labels(), tmp_path / "folder", loss=cross_entropy)
    assert read(tmp_path / "folder", "manifest")["output"]["terms"]["input"] == "labels"
    assert not model.fc.weight.any() and not model.fc.bias.any()


def test_a_loss_that_nobody_can_count_is_refused(tmp_path):
    for loss, expected in (
        (of_every_class, "the loss is no mean over samples, nor over targets that are not -100"),
        (without_padding, "the loss is no mean over samples, nor over targets that are not -100"),
        (masked, "where parts of 'mask' are"),
        (lambda output, labels: cross_entropy(output * EXTRA, labels), "so it would not be train"),
        (lambda output, targets: output.mean(), "the model's output, are targets; expected names"),
        (lambda: 0, "the model's output, are none; expected names of the example"),
        (lambda output, labels: cross_entropy(output, labels) - torch.inf, "no finite number"),
        (lambda output, labels: output, "6, 11]; expected a tensor without dimensions, the mean"),
        (lambda output, labels: cross_entropy(output, labels).sqrt(), "the loss is no mean"),
    ):
        example = pair() | (with_mask() if loss is masked else labels())
        with pytest.raises(NotExportable) as error:
            muster.export(Pairs(), example, tmp_path / "folder", loss=loss)
        assert expected in str(error.value)
    with pytest.raises(NotExportable, match="expected a dictionary, whose names `loss` uses"):
        muster.export(Pairs(), list(pair().values()), tmp_path / "folder", loss=cross_entropy)
    assert list(tmp_path.iterdir()) == []


def of_the_same_type(model, x):
    y = model.fc(x)
    return nn.functional.layer_norm(y, (3,)).to(y.dtype) * model.scale.to(y.dtype)


def with_a_constant_of_the_same_type(model, x):
    y = model.fc(x)
    return y * torch.tensor([1.0, 2.0, 3.0], dtype=y.dtype)


def test_a_folder_holds_for_the_precisions_in_which_the_graphs_are_the_same(tmp_path):
    def build(forward):
        made = Plain(forward, fc=nn.Linear(4, 3))
        made.scale = nn.Parameter(torch.ones(3))
        return made

    def precisions(forward, **options):
        folder = tmp_path / "folder"
        muster.export(build(forward), rows(), folder, overwrite=True, **options)
        return read(folder, "manifest")["precisions"]

    assert precisions(lambda model, x: model.fc(x) * model.scale) == [
        "float32", "bfloat16", "float16"
    ]
    assert precisions(of_the_same_type) == ["float32"]
    assert precisions(with_a_constant_of_the_same_type) == ["float32"]
    assert precisions(of_the_same_type, precision="bfloat16") == ["bfloat16"]
    types = {
        node["args"]["dtype"]["dtype"]
        for node in read(tmp_path / "folder", "train")["units"][0]["nodes"]
        if node.get("op") == "aten.to.dtype"
    }
    assert types == {"bfloat16"}
    with pytest.raises(NotExportable, match="precision: found 'half'; expected one of float32, bf"):
        precisions(of_the_same_type, precision="half")


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_train_wrongly_is_refused_and_nothing_is_written(tmp_path, case):
    build, example, expected = REFUSED[case]
    with pytest.raises(NotExportable) as error:
        muster.export(build(), example(), tmp_path / "folder")
    assert expected in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_units_are_the_elements_of_lists_and_the_modules_beside_them(tmp_path):
    layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(model, x):
        for layer in model.layers:
            x = torch.relu(layer(x))
        return model.head(x)

    model = Plain(forward, layers=layers, head=nn.Linear(4, 2))
    muster.export(model, rows(), tmp_path / "auto")
    assert read(tmp_path / "auto", "manifest")["units"] == [
        "layers.0", "layers.1", "layers.2", "head"
    ]
    muster.export(model, rows(), tmp_path / "chosen", units=["layers.1"])
    manifest = read(tmp_path / "chosen", "manifest")
    assert manifest["units"] == ["layers.1"]
    assert {one["name"]: one["unit"] for one in manifest["parameters"]} == {
        "layers.0.weight": "", "layers.0.bias": "",
        "layers.1.weight": "layers.1", "layers.1.bias": "layers.1",
        "layers.2.weight": "", "layers.2.bias": "",
        "head.weight": "", "head.bias": "",
    }
    with pytest.raises(NotExportable, match="no module matches 'blocks.*'"):
        muster.export(model, rows(), tmp_path / "other", units=["blocks.*"])


def test_a_module_that_runs_twice_belongs_to_the_root(tmp_path, capsys):
    model = Plain(
        lambda model, x: model.head(model.twice(torch.relu(model.twice(x)))),
        twice=nn.Linear(4, 4),
        head=nn.Linear(4, 2),
    )
    muster.export(model, rows(), tmp_path / "folder")
    assert read(tmp_path / "folder", "manifest")["units"] == ["head"]
    assert "'twice' is no unit: its forward does not run in one piece" in capsys.readouterr().err


def test_a_tied_weight_counts_once_and_belongs_to_the_root(tmp_path):
    model = Plain(
        lambda model, x: model.head(model.embed(x)),
        embed=nn.Embedding(11, 6),
        head=nn.Linear(6, 11, bias=False),
    )
    model.head.weight = model.embed.weight
    muster.export(model, torch.arange(10).view(2, 5), tmp_path / "folder")
    manifest = read(tmp_path / "folder", "manifest")
    assert [(one["name"], one["unit"]) for one in manifest["parameters"]] == [("embed.weight", "")]
    assert manifest["ties"] == {"head.weight": "embed.weight"}
    assert list(load_file(tmp_path / "folder" / "model.safetensors")) == ["embed.weight"]


def test_a_change_in_place_across_units_becomes_a_copy(tmp_path):
    model = Plain(
        lambda model, x: model.b(torch.relu_(model.a(x))), a=nn.Linear(4, 4), b=nn.Linear(4, 2)
    )
    muster.export(model, rows(), tmp_path / "folder")
    (root, *_) = read(tmp_path / "folder", "train")["units"]
    assert [node["op"] for node in root["nodes"] if "op" in node] == ["aten.relu.default"]


def test_buffers_ties_and_constants_are_told_apart(tmp_path):
    def forward(model, x):
        if model.training:
            model.calls.add_(1)
        return model.fc(x + model.table) * 2

    model = Plain(forward, fc=nn.Linear(4, 3))
    model.register_buffer("calls", torch.zeros((), dtype=torch.int64))
    model.register_buffer("table", torch.ones(4), persistent=False)
    muster.export(model, rows(), tmp_path / "folder")
    manifest = read(tmp_path / "folder", "manifest")
    assert [one["name"] for one in manifest["buffers"]] == ["calls"]
    assert list(load_file(tmp_path / "folder" / "constants.safetensors")) == ["table"]
    # The export itself leaves the model as it was.
    assert model.calls == 0 and model.training


def test_a_model_in_training_keeps_the_modes_of_its_modules(tmp_path):
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    model[1].eval()
    muster.export(model, rows(), tmp_path / "kept")
    assert "num_batches_tracked" not in json.dumps(read(tmp_path / "kept", "train"))
    model.eval()
    muster.export(model, rows(), tmp_path / "trained")
    assert "num_batches_tracked" in json.dumps(read(tmp_path / "trained", "train"))


def test_scopes_around_the_export_are_not_the_models(tmp_path):
    def forward(model, x):
        with torch.no_grad():
            x = model.back(x)
        return model.head(x)

    model = Plain(forward, back=nn.Linear(4, 4), head=nn.Linear(4, 2))
    with torch.no_grad():
        muster.export(model, rows(), tmp_path / "folder")
    units = {unit["name"]: unit for unit in read(tmp_path / "folder", "train")["units"]}
    assert [node.get("grad") for node in units["back"]["nodes"]] == [False]
    assert [node.get("grad") for node in units["head"]["nodes"]] == [None]


def test_both_modes_keep_their_own_constants(tmp_path):
    model = Plain(
        lambda model, x: model.fc(x)
        + torch.tensor([2.0, 3.0, 4.0] if model.training else [5.0, 6.0, 7.0]),
        fc=nn.Linear(4, 3),
    )
    muster.export(model, rows(), tmp_path / "folder")
    constants = load_file(tmp_path / "folder" / "constants.safetensors")
    assert sorted(map(tuple, (one.tolist() for one in constants.values()))) == [
        (2.0, 3.0, 4.0), (5.0, 6.0, 7.0)
    ]


def test_a_module_that_returns_a_view_of_its_parameter_is_no_unit(tmp_path, capsys):
    class Position(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4))
            self.drop = nn.Dropout(0.1)

        def forward(self):
            return self.drop(self.weight[None])

    model = Plain(
        lambda model, x: model.head(x + model.position()), position=Position(), head=nn.Linear(4, 2)
    )
    muster.export(model, rows(), tmp_path / "folder")
    assert read(tmp_path / "folder", "manifest")["units"] == ["head"]
    assert "a view of its parameter 'position.weight'" in capsys.readouterr().err


def test_a_module_that_changes_a_buffer_of_others_is_no_unit(tmp_path, capsys):
    class Counting(nn.Module):
        def __init__(self, calls, counts):
            super().__init__()
            self.fc = nn.Linear(4, 4)
            self.counts = counts
            self.register_buffer("calls", calls)

        def forward(self, x):
            if self.training and self.counts:
                self.calls.add_(1)
            return self.fc(x) + self.calls

    calls = torch.zeros(())
    model = nn.Sequential(Counting(calls, True), Counting(calls, False), nn.Linear(4, 2))
    muster.export(model, rows(), tmp_path / "folder")
    assert read(tmp_path / "folder", "manifest")["units"] == ["1", "2"]
    assert "changes the buffer '0.calls', which others use" in capsys.readouterr().err


def test_a_folder_is_replaced_only_if_an_export_wrote_it(tmp_path):
    model = Plain(plain, fc=nn.Linear(4, 3))
    muster.export(model, rows(), tmp_path / "folder")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        muster.export(model, rows(), tmp_path / "folder")
    muster.export(model, rows(), tmp_path / "folder", overwrite=True)
    (tmp_path / "own").mkdir()
    with pytest.raises(FileExistsError, match="is not the folder of an export"):
        muster.export(model, rows(), tmp_path / "own", overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "own"]
    # A worker may be another user.
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "folder").iterdir()} == {0o644}


def test_the_command_line_exports_what_a_function_makes(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import torch\n"
        "def make():\n"
        "    return torch.nn.Linear(4, 3), torch.rand(2, 4)\n"
        "def wrong():\n"
        "    return torch.nn.Linear(4, 3).bfloat16(), torch.rand(2, 4)\n"
    )

    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "muster.export", *arguments],
            cwd=tmp_path,
            env={"PYTHONPATH": str(package.folder()), "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )

    made = run("mine:make", "--out", "folder")
    assert made.returncode == 0, made.stderr
    assert read(tmp_path / "folder", "manifest")["output"]["shape"] == ["batch", 3]
    refused = run("mine:wrong", "--out", "other")
    assert refused.returncode == 1 and "'weight' is bfloat16" in refused.stderr
    assert not (tmp_path / "other").exists()
