"""TorchScript files as Python writes them: trained as PyTorch trains the module, exported, resumed,
and refused.

Tolerances as in training_test.py: 1e-6 where both sides run the same kernels in float32 and only
add in another order (gradients of micro-batches over ranks)."""

import json
import os
import re
import subprocess
import zipfile
from typing import List, Tuple

import pytest
import torch
from safetensors.torch import load_file, save_file

from examples import spirals
from examples.torchscript import make
from tests import bazel, exports
from tests.parity import cluster, logits, shared_cluster, torchscript_zoo, twin, workloads

SGD = {"sgd": {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01}}
ADAMW = {"adamw": {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-5, "weight_decay": 0.1}}


muster = shared_cluster.with_slots(2)


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


class Language(torch.nn.Module):
    """Predicts tokens from the mean of those before, with an output layer tied to the embedding."""

    def __init__(self, vocab_size, width):
        super().__init__()
        self.embed = torch.nn.Embedding(vocab_size, width)
        self.mix = torch.nn.Linear(2 * width, width)
        self.head = torch.nn.Linear(width, vocab_size)
        self.head.weight = self.embed.weight
        self.register_buffer("scale", torch.ones(1, dtype=torch.float64))  # a constant

    def forward(self, tokens):
        x = self.embed(tokens)
        before = x.cumsum(1) / torch.arange(1, x.shape[1] + 1, device=x.device).view(1, -1, 1)
        return self.head(torch.tanh(self.mix(torch.cat([x, before], 2)))) * self.scale.to(x.dtype)


def language_model():
    torch.manual_seed(3)
    return Language(37, 12)


def convolutional_model():
    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.Unflatten(1, (1, 1, 2)),
        torch.nn.Conv2d(1, 6, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(12, 3),
    )


def script(path, model):
    torch.jit.script(model).save(str(path))


def trace(path, model):
    torch.jit.trace(model.eval(), torch.randn(2, 2)).save(str(path))


def rows_job(folder, **more):
    spirals.write(folder, train=220, validate=40)
    return {
        "name": "script-rows",
        "seed": 13,
        "world_size": 2,
        "model": {"torchscript": {"path": str(folder / "model.pt"), "inputs": [2], "classes": 3}},
        "data": {
            name: {
                "npy": {
                    "inputs": str(folder / f"{name}-inputs.npy"),
                    "labels": str(folder / f"{name}-labels.npy"),
                }
            }
            for name in ("train", "validate")
        },
        "batch": {"per_rank": 5, "accumulate": 2},
        "optimizer": SGD,
        "stages": [{"fit": {"steps": 20}}],
        "export": {"path": str(folder / "out" / "model.safetensors")},
        **more,
    }


def tokens_job(folder, **more):
    workloads.write_tokens(folder / "train.bin", 37, 1000, seed=1)
    return rows_job(folder) | {
        "model": {
            "torchscript": {"path": str(folder / "model.pt"), "vocab_size": 37, "context": 11}
        },
        "data": {"train": {"tokens": {"path": str(folder / "train.bin")}}},
        **more,
    }


CASES = {
    "scripted-sequence": (make.model, script, rows_job, SGD),
    "traced-sequence": (convolutional_model, trace, rows_job, ADAMW),
    "scripted-module-with-tied-weights": (language_model, script, tokens_job, ADAMW),
}


@pytest.mark.parametrize("case", CASES)
def test_twenty_steps_and_the_export_equal_pytorch(muster, tmp_path, case):
    build, save, job, optimizer = CASES[case]
    save(tmp_path / "model.pt", build())
    spec = job(tmp_path, optimizer=optimizer)
    muster.run(spec, f"equal-{case}")
    model = build()
    start = {name: tensor.clone() for name, tensor in model.named_parameters()}
    expected = twin.train(spec, model, context=11)
    assert (
        max((tensor - start[name]).abs().max() for name, tensor in model.named_parameters()) > 1e-2
    )

    twin.assert_close(muster.losses(f"equal-{case}"), expected.losses, 1e-6)
    exported = load_file(tmp_path / "out" / "model.safetensors")
    # The file's names: each parameter once, and no constants.
    wanted = {name: expected.tensors[name] for name, _ in model.named_parameters()}
    twin.assert_close(exported, wanted, 1e-6)
    assert os.listdir(tmp_path / "out") == ["model.safetensors"]  # no config.json
    # Python takes it back.
    missing, unexpected = build().load_state_dict(exported, strict=False)
    assert not unexpected and set(missing) <= {"head.weight", "scale"}


class Checked(torch.nn.Module):
    """Reads its values as numbers, not by an operator."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(3, 2))

    def forward(self, x):
        rows: List[List[float]] = self.weight.tolist()
        for row in rows:
            assert row[0] == row[0]
        return torch.nn.functional.linear(x, self.weight)


def checked_model():
    torch.manual_seed(3)
    return Checked()


def compressed(path, model):
    script(path, model)
    with zipfile.ZipFile(path) as file:
        records = {name: file.read(name) for name in file.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in records.items():
            file.writestr(name, data)


def normalized_model(width=16, dropout=0.3):
    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.Linear(2, width),
        torch.nn.BatchNorm1d(width),
        torch.nn.ReLU(),
        torch.nn.Dropout(dropout),
        torch.nn.Linear(width, width),
        torch.nn.Dropout(dropout),
        torch.nn.Linear(width, 3),
    )


# The ways in which a rank of fsdp gets its slices, and other tensors, from the file.
SHARDED_CASES = CASES | {
    "compressed-sequence": (make.model, compressed, rows_job, SGD),
    "module-that-reads-its-values": (checked_model, script, rows_job, SGD),
    "sequence-with-buffers": (normalized_model, script, rows_job, ADAMW),
}


@pytest.mark.parametrize("case", SHARDED_CASES)
def test_with_fsdp_it_is_bitwise_the_model_of_ddp(muster, tmp_path, case):
    build, save, job, optimizer = SHARDED_CASES[case]
    save(tmp_path / "model.pt", build())
    unit = {"unit": ["*"]} if "sequence" in case else {}
    ends = []
    for strategy in ({"ddp": {}}, {"fsdp": unit}):
        job_id = f"{case}-{next(iter(strategy))}"
        muster.run(job(tmp_path, optimizer=optimizer, strategy=strategy), job_id)
        export = tmp_path / "out" / "model.safetensors"
        ends.append((muster.losses(job_id), exports.contents(export)))
        export.unlink()
    said = "is made whole on every rank" in muster.log(job_id)
    assert said == (case == "module-that-reads-its-values"), muster.log(job_id)
    assert len(ends[0][0]) == 20
    assert ends[0] == ends[1]


@pytest.mark.parametrize("precision", twin.HALF_PRECISION)
def test_it_trains_in_half_precision_as_pytorch_does(muster, tmp_path, precision):
    script(tmp_path / "model.pt", make.model())
    spec = rows_job(tmp_path, precision=precision)
    muster.run(spec, precision)
    twin.assert_trained_in_half_precision(muster.losses(precision), spec, make.model)


def test_buffers_are_trained_and_exported(muster, tmp_path):
    # Alone: the ranks of a larger job have statistics of their own samples.
    script(tmp_path / "model.pt", normalized_model(dropout=0.0))
    spec = rows_job(tmp_path, world_size=1)
    muster.run(spec, "buffers")
    expected = twin.train(spec, normalized_model(dropout=0.0))
    exported = load_file(tmp_path / "out" / "model.safetensors")
    assert exported["1.num_batches_tracked"] == 40
    twin.assert_close(exported, expected.tensors, 1e-6)


def test_a_killed_and_resumed_run_equals_an_undisturbed_one(muster, tmp_path):
    # Wide, so that the kill after the first checkpoint comes long before the end.
    script(tmp_path / "model.pt", normalized_model(width=700))
    ends = []
    for disturb in (False, True):
        job_id = "disturbed" if disturb else "undisturbed"
        spec = rows_job(
            tmp_path,
            batch={"per_rank": 40},
            optimizer=ADAMW,
            stages=[{"fit": {"steps": 40}}],
            checkpoint={"directory": str(tmp_path / "checkpoints"), "every_steps": 4, "keep": 100},
        )
        muster.submit(spec, job_id)
        if disturb:
            folder = tmp_path / "checkpoints" / job_id
            cluster.kill_a_worker_after_the_first_checkpoint(muster, folder)
        job = muster.wait(job_id)
        assert int(job.get("restarts", 0)) == (1 if disturb else 0), job
        ends.append(
            (muster.losses(job_id), exports.contents(tmp_path / "out" / "model.safetensors"))
        )
    assert len(ends[0][0]) == 40
    assert ends[0] == ends[1]


def options(folder, name="model.pt", **more):
    return {"path": str(folder / name), "inputs": [2], "classes": 3, **more}


def probe(*arguments):
    """muster-logits, which makes the model as a worker does; returns what it says."""
    done = subprocess.run(
        [
            bazel.runfile("tests/parity/muster-logits"),
            "--model",
            "torchscript",
            *map(str, arguments),
        ],
        capture_output=True,
        text=True,
        env=cluster.environment(),
    )
    assert done.returncode in (0, 1), done.stderr  # no crash
    return done.stderr


def test_a_weights_file_goes_on_top_by_its_names(tmp_path):
    script(tmp_path / "model.pt", language_model())
    shape = {"path": str(tmp_path / "model.pt"), "vocab_size": 37, "context": 11}
    other = logits.random_values(language_model())
    tensors = {
        name: tensor.clone() for name, tensor in other.state_dict().items()
    }  # both names of the tied weight
    save_file(tensors, tmp_path / "weights.safetensors")
    tokens = logits.random_tokens(shape)
    found = logits.of_muster(
        tmp_path, "torchscript", shape, tmp_path / "weights.safetensors", tokens
    )
    with torch.no_grad():
        torch.testing.assert_close(found, other(tokens), rtol=0, atol=1e-6)


def write_unknown_operator(path):
    torch.library.define("muster_test::twice", "(Tensor x) -> Tensor")
    torch.library.impl("muster_test::twice", "cpu", lambda x: 2 * x)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.head = torch.nn.Linear(2, 3)

        def forward(self, x):
            return torch.ops.muster_test.twice(self.head(x))

    script(path, Model())


def write_custom_class(path):
    """As a library that is not here would: an attribute of a class of its own."""
    make.write(path, make.model())
    with zipfile.ZipFile(path) as archive:
        entries = {entry: archive.read(entry) for entry in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in entries.items():
            if name.endswith(".py") and b"class Sequential" in data:
                data = data.replace(
                    b"training : bool", b"training : bool\n  s : __torch__.torch.classes.mine.Stack"
                )
            archive.writestr(name, data)


def write_state_dict(path):
    torch.save(make.model().state_dict(), path)


def write_pickled_module(path):
    torch.save(make.model(), path)


def write_frozen(path):
    torch.jit.freeze(torch.jit.script(make.model().eval())).save(str(path))


def write_half(path):
    script(path, make.model().half())


def write_traced_while_training(path):
    torch.jit.trace(normalized_model().train(), torch.randn(4, 2), check_trace=False).save(
        str(path)
    )


def write_two_outputs(path):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.head = torch.nn.Linear(2, 3)

        def forward(self, x):
            return self.head(x), x

    script(path, Model())


def write_safetensors(path):
    save_file(make.model().state_dict(), path)


def edited(path, model, change):
    """Saves the model's script with its code changed by change(text)."""
    script(path, model)
    with zipfile.ZipFile(path) as archive:
        entries = {entry: archive.read(entry) for entry in archive.namelist()}
    new = {
        name: change(data.decode()).encode() if name.endswith(".py") else data
        for name, data in entries.items()
    }
    assert new != entries
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in new.items():
            archive.writestr(name, data)


def writes(path):
    """An expression of TorchScript: a tensor in a file beside `path`, which is made or replaced."""
    return f'torch.from_file("{path.parent}/written", True, 10)'


class Linear(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(2, 3)

    def forward(self, x):
        return self.head(x)


def write_that_saves(path):
    to = str(path.parent / "written")

    class Model(Linear):
        def forward(self, x):
            torch.ops.aten.save(x, self.to)
            return self.head(x)

    model = Model()
    model.to = to
    script(path, model)


def write_that_maps_a_file(path):
    class Model(Linear):
        def forward(self, x):
            return self.head(x) + torch.from_file(self.to, shared=True, size=3)

    model = Model()
    model.to = str(path.parent / "written")
    script(path, model)


def write_that_maps_a_file_when_traced(path):
    to = str(path.parent / "written")

    class Model(Linear):
        def forward(self, x):
            return self.head(x) + torch.from_file(to, shared=True, size=3)

    torch.jit.trace(Model(), torch.randn(4, 2), check_trace=False).save(str(path))
    (path.parent / "written").unlink()


def a_function_that_writes(x, to: str):
    return x + torch.from_file(to, shared=True, size=3)


def write_that_calls_a_function(path):
    class Model(Linear):
        def forward(self, x):
            return a_function_that_writes(self.head(x), self.to)

    model = Model()
    model.to = str(path.parent / "written")
    script(path, model)


@torch.jit.interface
class Harmless(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pass


class Writing(torch.nn.Module):
    def __init__(self, to):
        super().__init__()
        self.to = to

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.from_file(self.to, shared=True, size=3)


class Interfaced(Linear):
    inner: Harmless

    def __init__(self, to):
        super().__init__()
        self.inner = Writing(to)

    def forward(self, x):
        return self.inner.forward(self.head(x))


def write_that_calls_an_interface(path):
    script(path, Interfaced(str(path.parent / "written")))


def write_that_forks(path):
    class Model(Linear):
        def forward(self, x):
            return torch.jit.wait(torch.jit.fork(torch.relu, self.head(x)))

    script(path, Model())


def write_computed_default(path):
    class Model(Linear):
        def forward(self, x, more: int = 3):
            return self.head(x)

    edited(
        path, Model(), lambda code: code.replace("more: int=3", f"more: Tensor={writes(path)}")
    )


def write_computed_constant(path):
    edited(
        path,
        Linear(),
        lambda code: re.sub(
            r"in_features : Final\[int\] = 2", f"in_features : Final[Tensor] = {writes(path)}", code
        ),
    )


class WithState(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(3, 2))

    @torch.jit.export
    def __getstate__(self):
        return self.weight, self.training

    @torch.jit.export
    def __setstate__(self, state: Tuple[torch.Tensor, bool]):
        self.weight = state[0]
        self.training = state[1]

    def forward(self, x):
        return torch.nn.functional.linear(x, self.weight)


def write_set_state(path):
    script(path, WithState())


BAD_FILES = {
    write_that_saves: ["Model.forward calls aten::save (line ", "expected only operators"],
    write_that_maps_a_file: ["Model.forward calls aten::from_file (line "],
    write_that_maps_a_file_when_traced: ["Model.forward calls aten::from_file"],
    write_that_calls_a_function: ["a_function_that_writes calls aten::from_file (line "],
    write_that_calls_an_interface: ["Writing.forward calls aten::from_file (line "],
    write_that_forks: ["Model.forward calls prim::fork"],
    write_computed_default: ["the default of the argument 'more' is no plain value"],
    write_computed_constant: ["a constant of class Linear is no plain value"],
    write_set_state: ["class WithState has a __setstate__", "which runs while the file is loaded"],
    write_unknown_operator: ["cannot be loaded by LibTorch", "muster_test::twice"],
    write_custom_class: ["cannot be loaded by LibTorch", "mine.Stack"],
    write_state_dict: [
        "expected a TorchScript file (torch.jit.save), found an archive without code"
    ],
    write_pickled_module: [
        "expected a TorchScript file (torch.jit.save), found an archive without code"
    ],
    write_frozen: ["expected parameters to train, found none"],
    write_half: ["parameter '0.weight': expected Float, found Half"],
    write_traced_while_training: ["in evaluation too", "script it instead"],
    write_two_outputs: ["expected a tensor, found Tuple"],
    write_safetensors: ["expected a TorchScript file (torch.jit.save), found a safetensors file"],
}


@pytest.mark.parametrize(
    "write", BAD_FILES, ids=lambda write: write.__name__.removeprefix("write_")
)
def test_what_cannot_be_trained_is_refused(tmp_path, write):
    write(tmp_path / "model.pt")
    said = probe("--options", json.dumps(options(tmp_path)))
    print(said)
    for part in ["torchscript " + str(tmp_path / "model.pt"), *BAD_FILES[write]]:
        assert part in said
    assert os.listdir(tmp_path) == ["model.pt"]  # nothing of it has run


def test_modules_as_people_write_them_are_accepted(tmp_path):
    zoo = torchscript_zoo
    images = {"inputs": zoo.IMAGE, "classes": zoo.CLASSES}
    tokens = {"vocab_size": zoo.VOCABULARY, "context": zoo.CONTEXT}
    models = [(name, make_one, images) for name, make_one in zoo.IMAGES.items()]
    models += [(name, make_one, tokens) for name, make_one in zoo.TOKENS.items()]
    for name, make_one, shape in models:
        path = tmp_path / f"{name}.pt"
        torch.manual_seed(1)
        make_one().save(str(path))
        said = probe("--options", json.dumps({"path": str(path), **shape}))
        assert "muster-logits:" not in said, f"{name}: {said}"  # LibTorch may warn
