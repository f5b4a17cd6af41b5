"""Tests that whole jobs with fsdp are bitwise those of ddp: losses, norms, validation passes over
uneven shards, every tensor of every checkpoint, and exported weights. Activation checkpointing
changes no bit, either. tests/parity/fsdp has all combinations of settings, without workers."""

import json

import pytest
import torch
from safetensors.torch import load_file

from tests.parity import checkpoints, shared_cluster, workloads
from tests.parity.checkpoints import assert_bitwise_equal, with_checkpoints

STEPS = 6

muster = shared_cluster.with_slots(4)


def run(muster, tmp_path, kind, name, strategy, **more):
    folder = tmp_path / name
    folder.mkdir()
    options = {"tied": True} if kind == "llama" else {"dropout": 0.1}
    exported = folder / "out" / "model.safetensors"
    spec = getattr(workloads, kind)(folder, layers=3, **options) | {
        "optimizer": {"adamw": {"lr": 1e-3, "eps": 1e-5}},
        "batch": {"per_rank": 2, "accumulate": 2},
        "clip_grad_norm": 0.5,
        # 13 samples: the last round of a pass has none for some rank.
        "stages": [{"fit": {"steps": STEPS, "validate_every": 3}}],
        "export": {"path": str(exported)},
        "strategy": strategy,
        **more,
    }
    job = muster.run(with_checkpoints(spec, folder), f"{kind}-{name}")
    steps = checkpoints.all_steps(folder / "checkpoints", f"{kind}-{name}")
    return {
        "metrics": [(step["loss"], step["grad_norm"]) for step in muster.metrics(f"{kind}-{name}")],
        "validation": job["validation_loss"],
        "states": {step: checkpoints.read(path) for step, path in steps.items()},
        "exported": load_file(exported),
    }


@pytest.mark.parametrize("kind, world_size", [("gpt2", 3)])
def test_fsdp_jobs_are_ddp_jobs(muster, tmp_path, kind, world_size):
    expected = run(muster, tmp_path, kind, f"ddp-{world_size}", {"ddp": {}}, world_size=world_size)
    assert list(expected["states"]) == list(range(1, STEPS + 1))
    settings = {
        "fsdp": {
            "strategy": {"fsdp": {}},
            "profile": {"directory": str(tmp_path / "traces"), "steps": [2, 5]},
        },
        "keep": {
            "strategy": {"fsdp": {"reshard_after_forward": False}},
            "activation_checkpointing": {},
        },
        "sharded": {"strategy": {"sharded_ddp": {}}, "activation_checkpointing": {}},
    }
    for name, setting in settings.items():
        found = run(
            muster, tmp_path, kind, f"{name}-{world_size}", world_size=world_size, **setting
        )
        assert found["metrics"] == expected["metrics"]
        assert found["validation"] == expected["validation"]
        assert found["states"].keys() == expected["states"].keys()
        for step in expected["states"]:
            assert_bitwise_equal(found["states"][step], expected["states"][step])
        assert_bitwise_equal(found["exported"], expected["exported"])
    assert sorted(path.name for path in (tmp_path / "traces").iterdir()) == [
        f"{kind}-fsdp-{world_size}-step-2.json",
        f"{kind}-fsdp-{world_size}-step-5.json",
    ]
    check_trace(tmp_path / "traces" / f"{kind}-fsdp-{world_size}-step-5.json", world_size)


def test_what_the_rules_freeze_stays_and_has_no_moments(muster, tmp_path):
    rules = {
        "rules": [
            {"freeze": "transformer.h.*"},
            {"unfreeze": "*bias"},
            {"freeze": "transformer.h.1.*"},
        ]
    }
    settings = {"frozen-ddp": {"ddp": {}}, "frozen-fsdp": {"fsdp": {"frozen": "resident"}}}
    runs = {
        name: run(muster, tmp_path, "gpt2", name, strategy, world_size=2, trainable=rules)
        for name, strategy in settings.items()
    }
    expected, found = runs["frozen-ddp"], runs["frozen-fsdp"]
    assert found["metrics"] == expected["metrics"]
    assert_bitwise_equal(found["states"][STEPS], expected["states"][STEPS])
    initial = load_file(tmp_path / "frozen-fsdp" / "weights.safetensors")
    for name, tensor in found["exported"].items():
        frozen = ".h." in name and (".h.1." in name or not name.endswith("bias"))
        assert torch.equal(tensor, initial[name]) == frozen, name
        assert (f"exp_avg/{name}" in found["states"][STEPS]) != frozen, name


def test_validation_alone_needs_no_whole_model_either(muster, tmp_path):
    losses = {}
    for strategy in ("ddp", "fsdp"):
        folder = tmp_path / strategy
        folder.mkdir()
        spec = workloads.llama(folder, layers=3) | {
            "world_size": 3,
            "strategy": {strategy: {}},
            "batch": {"per_rank": 2},
            "stages": [{"validate": {}}],
        }
        losses[strategy] = muster.run(spec, f"validate-{strategy}")["validation_loss"]
    assert losses["fsdp"] == losses["ddp"]


def check_trace(path, world_size):
    """Each rank's phases, units in the order in which they are gathered and freed, and collectives
    that begin and end."""
    events = json.loads(path.read_text())["traceEvents"]
    for rank in range(world_size):
        own = [event for event in events if event["pid"] == rank]
        phases = [event["name"] for event in own if event["ph"] == "X"]
        assert phases.count("forward") == phases.count("backward") == 2  # micro-batches
        assert phases.count("optimizer") == 1
        begun, ended = ([event["id"] for event in own if event["ph"] == kind] for kind in "be")
        assert begun == ended == list(range(len(begun)))
        units = [
            event["name"]
            for event in own
            if event["ph"] == "i" and "transformer.h.1" in event["name"]
        ]
        forward = ["gather transformer.h.1", "forward of transformer.h.1", "free transformer.h.1"]
        backward = ["gather", "backward of", "after backward of", "free"]
        assert units == 2 * (forward + [f"{what} transformer.h.1" for what in backward])
        whole = [event["args"]["bytes"] for event in own if event["ph"] == "C"]
        # Nothing is whole during the update; then the root and the first unit are gathered.
        assert max(whole) > whole[-1] > 0 and min(whole) == 0
