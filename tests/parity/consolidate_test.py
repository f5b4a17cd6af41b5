"""`consolidate`, of a running job and of a checkpoint: transformers opens the folder, and finds the
parameters of the step to the bit. `checkpoints reshard` and `diff`: other files, the same state."""

import json
import os
import subprocess

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests import bazel, cases
from tests.parity import checkpoints, sessions, workloads

STRATEGIES = {
    "ddp": {"ddp": {"bucket_mb": 0.01}},
    "sharded_ddp": {"sharded_ddp": {"bucket_mb": 0.01}},
    "fsdp": {"fsdp": {}},
}
STEPS, TAKEN = 6, 4
FROZEN = "transformer.wpe.weight"
TOKENIZER = {"tokenizer.json": '{"version": "1.0"}', "merges.txt": "#version: 0.2\n"}


def job(folder, strategy, world_size, make=workloads.gpt2, **changes):
    return make(folder) | {
        "strategy": STRATEGIES[strategy],
        "world_size": world_size,
        "optimizer": {"adamw": {"lr": 1e-3, "eps": 1e-5}},
        "batch": {"per_rank": 12 // world_size},
        "stages": [{"fit": {"steps": STEPS}}],
    } | changes


def consolidate(path, at_step=TAKEN, **folder):
    return {"at_step": at_step, "consolidate": {"folder": {"path": str(path), **folder}}}


def muster(*arguments, expect=0):
    done = subprocess.run(
        [bazel.runfile("client/cli/muster"), *map(str, arguments)],
        capture_output=True,
        text=True,
        env={key: value for key, value in os.environ.items() if key != "MUSTER_ADDRESS"},
    )
    assert done.returncode == expect, done.stdout + done.stderr
    return done.stdout + done.stderr


def assert_holds(folder, checkpoint, dtype=torch.float32):
    """transformers finds the checkpoint's parameters, in this type."""
    opened, told = AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True, dtype="auto"
    )
    assert not told["missing_keys"] and not told["unexpected_keys"], told
    assert opened.dtype == dtype
    expected = checkpoints.parameters(checkpoint)
    found = dict(opened.named_parameters())
    assert found.keys() == expected.keys()
    for name in expected:
        assert torch.equal(found[name], expected[name].to(dtype)), name
    return opened


CASES = cases.every_value(STRATEGIES, [1, 2, 3, 4], ["gpt2", "llama"])


@pytest.mark.parametrize("strategy, world_size, kind", CASES)
def test_transformers_opens_what_a_running_job_writes(strategy, world_size, kind, tmp_path):
    whole, narrow = tmp_path / "out/whole", tmp_path / "out/narrow"
    spec = job(
        tmp_path,
        strategy,
        world_size,
        make=getattr(workloads, kind),
        trainable={"rules": [{"freeze": FROZEN}]} if kind == "gpt2" else {},
    )
    spec["batch"]["per_rank"] = 12 // world_size
    steps = sessions.run(
        spec,
        tmp_path / "run",
        commands=[
            consolidate(whole),
            consolidate(narrow, dtype="BFLOAT16", max_shard_bytes=10000, hold=True),
        ],
    )
    assert_holds(whole, steps[TAKEN])
    assert_holds(narrow, steps[TAKEN], torch.bfloat16)
    assert len(list(narrow.glob("model-*-of-*.safetensors"))) >= 3
    assert {path.name for path in whole.iterdir()} == {"model.safetensors", "config.json"}
    assert {path.name for path in whole.parent.iterdir()} == {"whole", "narrow"}

    # The same from the checkpoint, without a coordinator: to the byte.
    for name, options in {
        "whole": [],
        "narrow": ["--dtype", "bfloat16", "--max-shard-size", "10KB"],
    }.items():
        out = tmp_path / "offline" / name
        muster("consolidate", steps[TAKEN], "--out", out, *options)
        live = whole.parent / name
        assert {path.name for path in out.iterdir()} == {path.name for path in live.iterdir()}
        for path in out.iterdir():
            assert path.read_bytes() == (live / path.name).read_bytes(), path.name


def test_the_tokenizer_and_special_tokens_of_the_source_are_kept(tmp_path):
    spec = job(tmp_path, "fsdp", 2)
    source = tmp_path / "source"
    source.mkdir()
    (tmp_path / "weights.safetensors").rename(source / "model.safetensors")
    spec["model"]["weights"] = str(source / "model.safetensors")
    config = json.loads((tmp_path / "initial/config.json").read_text())
    config |= {"eos_token_id": 7, "task_specific_params": {"text-generation": {"top_k": 3}}}
    (source / "config.json").write_text(json.dumps(config))
    for name, text in TOKENIZER.items():
        (source / name).write_text(text)
    live = tmp_path / "live"
    steps = sessions.run(spec, tmp_path / "run", commands=[consolidate(live)])
    offline = tmp_path / "offline"
    muster("consolidate", steps[TAKEN], "--out", offline)
    for folder in (live, offline):
        for name, text in TOKENIZER.items():
            assert (folder / name).read_text() == text
        written = json.loads((folder / "config.json").read_text())
        assert written["eos_token_id"] == 7
        assert written["task_specific_params"] == config["task_specific_params"]
        assert written["n_layer"] == spec["model"]["gpt2"]["layers"]
        assert_holds(folder, steps[TAKEN])
    # A job that begins with this checkpoint has no weights file of its own.
    child = job(tmp_path, "ddp", 1, start={"checkpoint": str(steps[TAKEN]), "what": "weights"})
    del child["model"]["weights"]
    third = tmp_path / "third"
    steps = sessions.run(child, tmp_path / "child", commands=[consolidate(third, at_step=1)])
    assert_holds(third, steps[1])
    assert (third / "tokenizer.json").read_text() == TOKENIZER["tokenizer.json"]


def test_what_may_not_be_replaced_stays(tmp_path):
    spec = job(tmp_path, "sharded_ddp", 2)
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.txt").write_text("mine")
    errors = sessions.errors_of(
        spec,
        tmp_path / "run",
        [consolidate(out, 2), consolidate(out, 3, overwrite=True), consolidate("/proc/no", 4)],
    )
    assert len(errors) == 3, errors
    assert "the folder exists and is not empty (it contains 'thesis.txt')" in errors[0]
    assert "contains 'thesis.txt', which is no file of a model" in errors[1]
    assert "/proc" in errors[2]
    assert [path.name for path in out.iterdir()] == ["thesis.txt"]
    checkpoint = checkpoints.all_steps(tmp_path / "run/checkpoints", "job")[TAKEN]
    told = muster("consolidate", checkpoint, "--out", out, "--overwrite", expect=1)
    assert "contains 'thesis.txt', which is no file of a model" in told
    (out / "thesis.txt").unlink()
    muster("consolidate", checkpoint, "--out", out)
    assert "--overwrite" in muster("consolidate", checkpoint, "--out", out, expect=1)
    muster("consolidate", checkpoint, "--out", out, "--overwrite", "--dtype", "float16")
    assert_holds(out, checkpoint, torch.float16)
    assert not list(tmp_path.glob(".out*"))
    told = muster("consolidate", checkpoint.parent, "--out", tmp_path / "x", expect=1)
    assert f"the newest checkpoint in this folder is {checkpoint.parent}/step-{STEPS}-g" in told
    assert "--out is empty" in muster("consolidate", checkpoint, "--out", "", expect=2)


def test_a_damaged_block_is_found_and_nothing_is_left(tmp_path):
    steps = sessions.run(job(tmp_path, "fsdp", 2), tmp_path / "run")
    file = steps[TAKEN] / "rank-1.safetensors"
    contents = bytearray(file.read_bytes())
    contents[-1] ^= 1
    file.write_bytes(contents)
    for command in (
        ["consolidate", steps[TAKEN], "--out", tmp_path / "out"],
        ["checkpoints", "reshard", steps[TAKEN], "--out", tmp_path / "out"],
        ["checkpoints", "diff", steps[TAKEN], steps[TAKEN - 1]],
    ):
        told = muster(*command, expect=1)
        assert f"{file}: bytes 0 to {len(contents)}: expected the hash" in told
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".out*"))


def test_weights_are_exported_during_training(tmp_path):
    exported = tmp_path / "out/model.safetensors"
    spec = job(tmp_path, "fsdp", 2, export={"path": str(exported), "every_steps": 2})
    # The job is stopped after step 5, so there is no export at the end.
    sessions.errors_of(spec, tmp_path / "run", [{"at_step": 5, "stop": {}}])
    steps = checkpoints.all_steps(tmp_path / "run/checkpoints", "job")
    assert max(steps) == 5
    assert_holds(exported.parent, steps[4])
    assert {path.name for path in exported.parent.iterdir()} == {
        "model.safetensors",
        "config.json",
    }


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_another_number_of_files_is_the_same_checkpoint(strategy, tmp_path):
    spec = job(tmp_path, strategy, 3)
    steps = sessions.run(spec, tmp_path / "run")
    for files in (1, 2, 5):
        out = tmp_path / f"out-{files}"
        muster("checkpoints", "reshard", steps[TAKEN], "--out", f"{out}/", "--files", files)
        muster("checkpoints", "verify", out)
        assert len(list(out.glob("rank-*.safetensors"))) == files
        assert "0 have different values" in muster("checkpoints", "diff", steps[TAKEN], out)
        expected = checkpoints.read(steps[TAKEN])
        found = checkpoints.read(out)
        assert found.keys() == expected.keys()
        for name in expected:
            assert torch.equal(found[name], expected[name]), name
    # A job goes on from it as from the original.
    start = {"checkpoint": str(tmp_path / "out-2"), "what": "everything"}
    del spec["model"]["weights"]
    on = sessions.run(spec | {"start": start}, tmp_path / "on")
    expected = checkpoints.read(steps[STEPS])
    found = checkpoints.read(on[STEPS])
    for name in expected:
        assert torch.equal(found[name], expected[name]), name
    again = muster("checkpoints", "reshard", out, "--out", tmp_path / "out-1", expect=1)
    assert "exists and is no empty folder" in again


def test_diff_says_what_differs(tmp_path):
    spec = job(tmp_path, "fsdp", 2, trainable={"rules": [{"freeze": FROZEN}]})
    unfreeze = {5: [{"unfreeze": FROZEN}]}
    steps = sessions.run(spec, tmp_path / "run", unfreeze)
    told = json.loads(
        muster("checkpoints", "diff", steps[5], steps[6], "-o", "json", expect=1)
    )
    assert not told["same"] and not told["shapes"] and not told["only_in_a"]
    assert {"name": "step", "a": "5", "b": "6"} in told["training"]
    assert f"exp_avg/{FROZEN}" in told["only_in_b"]
    a, b = checkpoints.read(steps[5]), checkpoints.read(steps[6])
    changed = {name for name in a if name in b and not torch.equal(a[name], b[name])}
    assert {value["tensor"] for value in told["values"]} == changed
    for value in told["values"]:
        name = value["tensor"]
        assert value["elements"] == a[name].numel()
        assert value["different"] == int((a[name] != b[name]).sum())
        largest = (a[name].double() - b[name].double()).abs().max().item()
        assert value["largest"] == largest, name
    assert "step" in muster("checkpoints", "diff", steps[5], steps[6], expect=1)
    assert json.loads(muster("checkpoints", "diff", steps[5], steps[5], "-o", "json"))["same"]
