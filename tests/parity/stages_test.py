"""Tests of stages without training, from checkpoints of each strategy at other world sizes, against
PyTorch on the exported weights and the same samples. Counts are equal. Losses agree within 1e-6,
because the order of their float32 sums differs."""

import itertools

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.parity import reference, shared_cluster, workloads

muster = shared_cluster.with_slots(3)

STRATEGIES = {
    "ddp": {"ddp": {}},
    "sharded": {"sharded_ddp": {"bucket_mb": 0.005}},
    "fsdp": {"fsdp": {}},
}
# Each strategy is trained at one world size, and tested by each at another one.
TRAINED = {"ddp": 2, "sharded": 3, "fsdp": 1}
TESTED = {"ddp": 3, "sharded": 1, "fsdp": 2}


def judged(spec):
    """Logits and targets of all samples of data.test, a row for each target."""
    model = reference.build(spec).eval()
    data = reference.open_data(spec, "test")
    with torch.no_grad():
        pairs = [data[[sample]] for sample in range(len(data))]
        logits = [reference.logits_of(model, inputs) for inputs, _ in pairs]
    flat = [one.reshape(-1, one.shape[-1]) for one in logits]
    return torch.cat(flat), torch.cat([targets.reshape(-1) for _, targets in pairs])


def assert_equal_pytorch(found, spec, classifier):
    logits, targets = judged(spec)
    terms, classes = logits.shape
    loss = torch.nn.functional.cross_entropy(logits.double(), targets).item()
    predicted = logits.argmax(-1)
    assert found["loss"] == pytest.approx(loss, abs=1e-6)
    assert int(found["terms"]) == terms
    assert found["accuracy"] == int((predicted == targets).sum()) / terms
    assert ("perplexity" in found) != classifier
    assert ("classes" in found) == classifier
    if not classifier:
        assert found["perplexity"] == pytest.approx(torch.tensor(loss).exp().item(), rel=1e-5)
        return
    top = (logits.topk(5).indices == targets[:, None]).any(-1)
    assert found["top_k"] == 5
    assert found["top_k_accuracy"] == int(top.sum()) / terms
    counts = {name: list(map(int, values)) for name, values in found["classes"].items()}
    hits = predicted[predicted == targets]
    assert counts["targets"] == targets.bincount(minlength=classes).tolist()
    assert counts["predicted"] == predicted.bincount(minlength=classes).tolist()
    assert counts["correct"] == hits.bincount(minlength=classes).tolist()
    pairs = (targets * classes + predicted).bincount(minlength=classes**2)
    assert counts["confusion"] == pairs.tolist()


@pytest.mark.parametrize("kind", ["mlp", "gpt2"])
def test_tests_of_any_checkpoint_equal_pytorch(muster, tmp_path, kind):
    workload = {"mlp": workloads.mlp, "gpt2": workloads.gpt2}[kind](tmp_path)
    workload["data"]["test"] = workload["data"]["validate"]
    for strategy, world_size in TRAINED.items():
        weights = tmp_path / f"{strategy}.safetensors"
        name = f"{kind}-{strategy}"
        trained = workload | {
            "world_size": world_size,
            "strategy": STRATEGIES[strategy],
            "optimizer": {"adamw": {"lr": 1e-2}},
            "batch": {"per_rank": 3},
            "stages": [{"fit": {"steps": 6}}, {"test": {}}],
            "checkpoint": {"directory": str(tmp_path / "checkpoints")},
            "export": {"path": str(weights)},
        }
        muster.run(trained, name)
        # What the reference computes with.
        expected = workload | {"model": workload["model"] | {"weights": str(weights)}}
        own = [entry["test"] for entry in muster.entries(name) if "test" in entry]
        assert_equal_pytorch(own[0], expected, kind == "mlp")
        for other, ranks in TESTED.items():
            tested = {key: value for key, value in workload.items() if key != "model"} | {
                "model": {kind: workload["model"][kind]},
                "world_size": ranks,
                "strategy": STRATEGIES[other],
                "batch": {"per_rank": 4},
                "stages": [{"test": {}}, {"validate": {}}],
                "start": {"checkpoint": name},
            }
            job = muster.run(tested, f"{name}-by-{other}")
            assert "optimizer" not in tested and int(job.get("total_steps", 0)) == 0
            (entry,) = [one for one in muster.entries(f"{name}-by-{other}") if "test" in one]
            assert int(entry.get("step", 0)) == 0
            assert_equal_pytorch(entry["test"], expected, kind == "mlp")
            # GetJob has both, without the counts by class.
            assert job["test"]["loss"] == job["validation"]["loss"] == job["validation_loss"]
            assert "classes" not in job["test"]


def test_training_is_bitwise_the_same_with_tests_in_between(muster, tmp_path):
    spec = workloads.gpt2(tmp_path, dropout=0.1) | {
        "world_size": 2,
        "optimizer": {"adamw": {"lr": 1e-3}},
        "precision": "float16",
        "batch": {"per_rank": 3, "accumulate": 2, "last": "uneven"},
    }
    spec["data"]["test"] = spec["data"]["validate"]
    staged = [{"fit": {"steps": 4}}, {"test": {}}, {"fit": {"steps": 3, "validate_every": 1}}]
    staged += [{"validate": {}}, {"test": {}}, {"fit": {"steps": 5}}, {"test": {}}]
    for strategy, stages in itertools.product(STRATEGIES, ([{"fit": {"steps": 12}}], staged)):
        job = spec | {"strategy": STRATEGIES[strategy], "stages": stages}
        muster.run(job, f"bits-{strategy}-{len(stages)}")
    plain = muster.losses("bits-ddp-1")
    assert len(plain) == 12
    for strategy in STRATEGIES:
        for count in (1, len(staged)):
            assert muster.losses(f"bits-{strategy}-{count}") == plain, (strategy, count)


def image_files(folder, name, sizes):
    """A file of images and classes for each rank."""
    generator = torch.Generator().manual_seed(len(name))
    paths = [str(folder / f"{name}{rank}.safetensors") for rank in range(len(sizes))]
    for path, size in zip(paths, sizes):
        images = torch.randn(size, 1, 8, 8, generator=generator)
        labels = torch.randint(4, (size,), generator=generator)
        save_file({"inputs": images, "labels": labels}, path)
    return {"safetensors": {}, "per_rank": paths}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_training_with_batch_norm_and_own_files_is_bitwise_the_same_with_evaluation_in_between(
    muster, tmp_path, strategy
):
    """One rank runs out of input before the other, in training and in each evaluation. The export
    has the running means and variances."""
    spec = {
        "name": "batch-norm",
        "seed": 3,
        "world_size": 2,
        "model": {
            "convnet": {"inputs": [1, 8, 8], "widths": [4, 8], "blocks": [1, 1], "classes": 4}
        },
        "data": {
            "train": image_files(tmp_path, "train", [17, 9]),
            "validate": image_files(tmp_path, "validate", [3, 10]),
            "test": image_files(tmp_path, "test", [6, 0]),
        },
        "strategy": STRATEGIES[strategy],
        "optimizer": {"sgd": {"lr": 0.05, "momentum": 0.9}},
        "batch": {"per_rank": 2, "accumulate": 2, "last": "uneven"},
        "uneven_inputs": {"join": {}},
    }
    plain = [{"fit": {"steps": 12}}]
    staged = [{"test": {}}, {"fit": {"steps": 4, "validate_every": 1}}, {"test": {}}]
    staged += [{"validate": {}}, {"fit": {"steps": 8, "validate_every": 3}}, {"test": {}}]
    losses, weights = [], []
    for name, stages in ("plain", plain), ("staged", staged):
        path = tmp_path / f"{name}.safetensors"
        job = f"norm-{strategy}-{name}"
        muster.run(spec | {"stages": stages, "export": {"path": str(path)}}, job)
        losses.append(muster.losses(job))
        weights.append(load_file(path))
    passes = [entry for entry in muster.entries(job) if "validation" in entry or "test" in entry]
    assert len(passes) >= 6
    assert losses[0] == losses[1] and len(losses[0]) == 12
    assert any("running_var" in key for key in weights[0])
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])
