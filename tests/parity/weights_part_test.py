"""A job takes a part of another model's weights (`weights: {file, take, rename, missing}`): a
backbone that transformers made, under a head that is new.

The truth is PyTorch, which begins with the same values: those of the file where they are taken, and
elsewhere the initial ones, which muster-logits writes for the same seed. The strategies are equal
to the bit."""

import json
import subprocess

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests import bazel
from tests.parity import checkpoints, cluster, logits, reference, sessions, workloads

STRATEGIES = {
    "ddp": {"ddp": {"bucket_mb": 0.01}},
    "sharded_ddp": {"sharded_ddp": {"bucket_mb": 0.01}},
    "fsdp": {"fsdp": {}},
}
STEPS = 6
# Sums of gradients in another order than PyTorch's.
TOLERANCE = 1e-6
OPTIONS = {
    "vocab_size": 37,
    "context": 17,
    "layers": 2,
    "heads": 3,
    "width": 27,
    "inner": 70,
    "tied": False,
}
BLOCKS = [f"transformer.h.{layer}.*" for layer in range(2)]

# name: (options of the model in the file, its type, the prefix of its names, what the job takes,
# which of the job's tensors that gives)
CASES = {
    "another-vocabulary-and-more-layers": (
        OPTIONS | {"vocab_size": 61, "layers": 3},
        torch.float32,
        "",
        {"take": [*BLOCKS, "transformer.wpe.weight", "transformer.ln_f.*"], "missing": "initial"},
        lambda name: not name.startswith(("transformer.wte", "lm_head")),
    ),
    "fewer-layers": (
        OPTIONS | {"layers": 1},
        torch.bfloat16,
        "",
        {"missing": "initial"},
        lambda name: not name.startswith("transformer.h.1."),
    ),
    "a-new-head": (
        OPTIONS,
        torch.float64,
        "",
        {"take": "transformer.*", "missing": "initial"},
        lambda name: name != "lm_head.weight",
    ),
    "a-prefix": (
        OPTIONS,
        torch.float16,
        "backbone.",
        {"take": "*", "rename": {"backbone.*": "*", "backbone-head": "lm_head.weight"}},
        lambda name: True,
    ),
    "a-prefix-and-a-new-head": (
        OPTIONS,
        torch.float32,
        "encoder.",
        {
            "take": "encoder.transformer.*",
            "rename": {"encoder.transformer.*": "transformer.*"},
            "missing": "initial",
        },
        lambda name: name != "lm_head.weight",
    ),
}


def job(folder, strategy, weights, world_size=3):
    spec = workloads.gpt2(folder, **OPTIONS)
    return spec | {
        "seed": 0,
        "world_size": world_size,
        "strategy": STRATEGIES[strategy],
        "optimizer": {"sgd": {"lr": 0.05, "momentum": 0.9}},
        "batch": {"per_rank": 2},
        "stages": [{"fit": {"steps": STEPS}}],
        "model": {"gpt2": OPTIONS, "weights": weights},
    }


def initial_values(folder):
    """The initial values of a job with the seed 0."""
    path = folder / "initial.safetensors"
    command = [
        bazel.runfile("tests/parity/muster-logits"),
        *("--model", "gpt2", "--options", json.dumps(OPTIONS), "--export", path),
    ]
    subprocess.run(command, check=True, env=cluster.environment())
    return load_file(path)


def backbone(folder, options, dtype, prefix):
    """Saves a model of transformers: its values as they are in the file."""
    model = logits.random_values(reference.GPT2LMHeadModel(reference.gpt2_config(options)))
    values = {name: value.to(dtype).clone() for name, value in model.state_dict().items()}
    # An old file's mask, which is no weight.
    values["transformer.h.0.attn.bias"] = torch.ones(1, 1, 17, 17, dtype=torch.uint8)
    renamed = {prefix + name: value for name, value in values.items()}
    if prefix == "backbone.":
        renamed["backbone-head"] = renamed.pop("backbone.lm_head.weight")
    save_file(renamed, folder / "backbone.safetensors")
    return values


@pytest.mark.parametrize("case", CASES)
def test_training_is_that_of_pytorch_from_the_same_values(tmp_path, case):
    options, dtype, prefix, choice, is_taken = CASES[case]
    values = backbone(tmp_path, options, dtype, prefix)
    weights = {"file": str(tmp_path / "backbone.safetensors")} | choice
    begin = initial_values(tmp_path)
    taken = {name for name in begin if is_taken(name)}
    assert taken and (taken != begin.keys() or case == "a-prefix")
    begin |= {name: values[name].float() for name in taken}
    save_file(begin, tmp_path / "whole.safetensors")

    found = {
        strategy: sessions.run(job(tmp_path, strategy, weights), tmp_path / strategy)
        for strategy in STRATEGIES
    }
    for step in (1, STEPS):
        expected = checkpoints.read(found["ddp"][step], ("param", "momentum_buffer"))
        for strategy in ("sharded_ddp", "fsdp"):
            checkpoints.assert_bitwise_equal(
                checkpoints.read(found[strategy][step], ("param", "momentum_buffer")), expected
            )
    whole = job(tmp_path, "ddp", str(tmp_path / "whole.safetensors"))
    trained = reference.train(whole)
    for step in (1, STEPS):
        parameters = checkpoints.parameters(found["fsdp"][step])
        assert parameters.keys() == trained.parameters[step].keys()
        for name, value in parameters.items():
            torch.testing.assert_close(
                value, trained.parameters[step][name], rtol=0, atol=TOLERANCE, msg=name
            )


MISTAKES = {
    "a-pattern-of-nothing": (
        {"take": ["transfomer.*"], "missing": "initial"},
        "take: 'transfomer.*' matches no tensor of the file; did you mean 'transformer.*'?",
    ),
    "a-rename-of-nothing": (
        {"rename": {"lm_haed.weight": "lm_head.weight"}},
        "rename: 'lm_haed.weight' matches no tensor that is taken; did you mean 'lm_head.weight'?",
    ),
    "two-sources": (
        {"rename": {"transformer.h.0.*": "transformer.h.1.*"}},
        "would be 'transformer.h.1.",
    ),
    "missing": ({"take": ["transformer.*"]}, "missing 'lm_head.weight'"),
    "unexpected": (
        {"take": "lm_head.*", "rename": {"lm_head.*": "score.*"}, "missing": "initial"},
        "unexpected 'lm_head.weight', now 'score.weight'",
    ),
    "another-shape": (
        {"rename": {"lm_head.weight": "transformer.ln_f.weight"}, "take": "lm_head.weight"},
        "'lm_head.weight', now 'transformer.ln_f.weight': expected the shape [27], "
        "found [37, 27]",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(tmp_path, mistake):
    backbone(tmp_path, OPTIONS, torch.float32, "")
    choice, expected = MISTAKES[mistake]
    weights = {"file": str(tmp_path / "backbone.safetensors")} | choice
    said = sessions.failure_of(job(tmp_path, "fsdp", weights), tmp_path)
    assert f"model.weights: {tmp_path}/backbone.safetensors: " in said
    assert expected in said


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_values_are_checked_where_they_are_taken(tmp_path, strategy):
    values = backbone(tmp_path, OPTIONS, torch.float32, "")
    values["transformer.h.1.mlp.c_fc.weight"][20, 3] = float("nan")
    values["lm_head.weight"][0, 0] = float("inf")
    save_file(values, tmp_path / "backbone.safetensors")
    weights = {
        "file": str(tmp_path / "backbone.safetensors"),
        "take": ["transformer.*"],
        "missing": "initial",
    }
    said = sessions.failure_of(job(tmp_path, strategy, weights), tmp_path)
    assert (
        "'transformer.h.1.mlp.c_fc.weight': expected finite numbers, found nan as number 1403"
        in said
    )
    assert "lm_head" not in said
    weights["take"] = ["transformer.h.0.*", "transformer.w*", "transformer.ln_f.*"]
    sessions.run(job(tmp_path, strategy, weights), tmp_path / "good")


def test_eight_bit_numbers_are_refused_by_name(tmp_path):
    values = backbone(tmp_path, OPTIONS, torch.float32, "")
    values["transformer.ln_f.bias"] = values["transformer.ln_f.bias"].to(torch.float8_e4m3fn)
    save_file(values, tmp_path / "backbone.safetensors")
    weights = {"file": str(tmp_path / "backbone.safetensors")}
    said = sessions.failure_of(job(tmp_path, "ddp", weights), tmp_path)
    assert (
        "'transformer.ln_f.bias': expected F64, F32, F16 or BF16, found F8_E4M3" in said
    ), said
