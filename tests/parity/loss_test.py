"""Losses and what validation measures, against torch.nn.functional.

Training with a loss shows its value and, through the parameters, its gradients. Tolerances as in
training_test: SGD multiplies float32 rounding by its rate and nothing else, so 1e-6."""

import copy
import math

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.parity import checkpoints, cluster, reference, shared_cluster, workloads

STEPS = 20
IGNORED = -100


muster = shared_cluster.with_slots(2)


def relabel(folder, labels):
    """Rewrites the labels of both sets of a workload: labels(old, generator)."""
    for seed, name in enumerate(("train", "validate")):
        path = folder / f"{name}.safetensors"
        tensors = load_file(path)
        generator = torch.Generator().manual_seed(seed)
        tensors["labels"] = labels(tensors["labels"], generator)
        save_file(tensors, path)


def some_ignored(folder):
    def ignore(labels, generator):
        out = labels.clone()
        out[torch.rand(len(labels), generator=generator) < 0.2] = IGNORED
        assert 0 < int((out == IGNORED).sum()) < len(out)
        return out

    relabel(folder, ignore)


def numbers(folder):
    relabel(folder, lambda labels, generator: torch.randn(len(labels), 7, generator=generator))


CASES = {
    "plain": ("mlp", None, None),
    "ignored": ("mlp", {"cross_entropy": {"ignore_index": IGNORED}}, some_ignored),
    "smoothed": ("mlp", {"cross_entropy": {"label_smoothing": 0.2}}, None),
    "both": (
        "mlp",
        {"cross_entropy": {"ignore_index": IGNORED, "label_smoothing": 0.1}},
        some_ignored,
    ),
    "mse": ("mlp", {"mse": {}}, numbers),
    # A token of the vocabulary that is everywhere, as padding is.
    "tokens": ("gpt2", {"cross_entropy": {"ignore_index": 3, "label_smoothing": 0.1}}, None),
}


def job(folder, case, world_size):
    kind, loss, prepare = CASES[case]
    spec = {"gpt2": workloads.gpt2, "mlp": workloads.mlp}[kind](folder)
    if prepare:
        prepare(folder)
    if loss:
        spec["loss"] = copy.deepcopy(loss)
    return spec | {
        "world_size": world_size,
        "optimizer": {"sgd": {"lr": 0.05, "momentum": 0.9}},
        # With 4 rows no micro-batch consists of ignored ones only (PyTorch's mean of that is NaN).
        "batch": {"per_rank": 4, "accumulate": 2, "order": "shuffled", "last": "pad"},
        "stages": [{"fit": {"steps": STEPS}}],
    }


@pytest.mark.parametrize("case", list(CASES))
def test_training_equals_pytorch(muster, tmp_path, case):
    spec = job(tmp_path, case, world_size=2)
    directory = tmp_path / "checkpoints"
    name = f"loss-{case}"
    muster.run(spec | {"checkpoint": {"directory": str(directory), "every_steps": STEPS}}, name)
    expected = reference.train(spec)
    assert all(math.isfinite(loss) for loss in expected.losses)
    found = muster.losses(name)
    assert len(found) == STEPS
    assert max(abs(a - b) for a, b in zip(found, expected.losses)) <= 1e-6
    assert abs(expected.losses[0] - expected.losses[-1]) > 1e-2
    folders = checkpoints.all_steps(directory, name)
    parameters = checkpoints.parameters(folders[STEPS])
    for key, value in expected.parameters[STEPS].items():
        assert (parameters[key] - value).abs().max().item() <= 1e-6, key


@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("case", ["both", "mse", "tokens"])
def test_validation_is_over_the_terms_that_count(muster, tmp_path, case, world_size):
    # 13 samples of tokens, 23 rows: the last round is uneven. One row at a time, so that
    # micro-batches without any term are met too.
    spec = job(tmp_path, case, world_size) | {
        "batch": {"per_rank": 1},
        "stages": [{"validate": {}}],
    }
    found = muster.run(spec, f"validate-{case}-{world_size}")
    loss = reference.validation_loss(spec)
    assert found["validation_loss"] == pytest.approx(loss, abs=1e-6)
    if case == "mse":
        assert "validation_accuracy" not in found and "validation_perplexity" not in found
        return
    assert found["validation_accuracy"] == pytest.approx(
        reference.validation_accuracy(spec), abs=1e-12
    )
    if case == "tokens":
        assert found["validation_perplexity"] == pytest.approx(math.exp(loss), rel=1e-6)
    else:
        assert "validation_perplexity" not in found


def test_a_validation_set_that_is_all_ignored_is_named(muster, tmp_path):
    spec = job(tmp_path, "ignored", 1) | {"stages": [{"validate": {}}]}
    relabel(tmp_path, lambda labels, _: torch.full_like(labels, IGNORED))
    with pytest.raises(cluster.JobFailed, match="every target of the 23 samples is ignored"):
        muster.run(spec, "all-ignored")


def test_mse_on_class_labels_is_named(muster, tmp_path):
    spec = job(tmp_path, "plain", 1) | {"loss": {"mse": {}}}
    with pytest.raises(cluster.JobFailed, match="labels"):
        muster.run(spec, "mse-on-classes")
