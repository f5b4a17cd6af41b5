"""Ranks with different amounts of input: every strategy against a single process, step by step,
over two epochs.

The model has BatchNorm and parameters that nothing uses. Most ranks' last micro-batch is short.
Each step is saved, and a save compares parameters and buffers of all ranks bitwise (join_step_test
has the optimizer's state). Tolerance: training_test's, 1e-6 with AdamW at eps 1e-5; between
strategies there is none.
"""

import itertools

import pytest
import torch
from safetensors.torch import save_file

from tests import cases
from tests.parity import checkpoints, join_model, join_reference, sampler, sessions, workloads

INPUTS, CLASSES = join_model.INPUTS, join_model.CLASSES
PER_RANK = 8
STRATEGIES = {
    "ddp": {"ddp": {"bucket_mb": 0.0005}},
    "sharded_ddp": {"sharded_ddp": {"bucket_mb": 0.0005}},
    "fsdp": {"fsdp": {}},
}
OPTIMIZERS = {
    "adamw": {"adamw": {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-5, "weight_decay": 0.1}},
    "sgd": {"sgd": {"lr": 0.02, "momentum": 0.9, "weight_decay": 0.05}},
}
DIVIDE_BY = ["initial", "active", "samples"]
# Micro-batches of each rank in an epoch.
PATTERNS = [(5, 5), (3, 5), (0, 5), (1, 4, 2), (7, 0, 0, 2)]
TOLERANCE = 1e-6


CASES = cases.every_value(DIVIDE_BY, PATTERNS, [1, 2], OPTIMIZERS)


def parts(sizes):
    random = torch.Generator().manual_seed(8)
    return [
        (
            torch.randn(size, INPUTS, generator=random),
            torch.randint(CLASSES, (size,), generator=random),
        )
        for size in sizes
    ]


def sizes_of(pattern):
    """Samples of each rank: the last micro-batch of every rank but the first is one short."""
    return [max(count * PER_RANK - (rank > 0), 0) for rank, count in enumerate(pattern)]


def job(folder, pattern, accumulate, divide_by, optimizer, **more):
    torch.jit.script(join_model.build()).save(str(folder / "model.pt"))
    paths = []
    for rank, (inputs, labels) in enumerate(parts(sizes_of(pattern))):
        paths.append(str(folder / f"{rank}.safetensors"))
        save_file({"inputs": inputs, "labels": labels}, paths[-1])
    return {
        "name": "join",
        "seed": 21,
        "world_size": len(pattern),
        "model": {
            "torchscript": {
                "path": str(folder / "model.pt"),
                "inputs": [INPUTS],
                "classes": CLASSES,
            }
        },
        "data": {"train": {"safetensors": {}, "per_rank": paths}},
        "batch": {"per_rank": PER_RANK, "accumulate": accumulate, "last": "uneven"},
        "uneven_inputs": {"join": {"divide_by": divide_by}},
        "optimizer": OPTIMIZERS[optimizer],
        "stages": [{"fit": {"steps": 2 * join_reference.steps_of_an_epoch(pattern, accumulate)}}],
        **more,
    }


def run(*arguments, **more):
    """Returns the contents of the checkpoints, by step."""
    return {step: checkpoints.read(path) for step, path in sessions.run(*arguments, **more).items()}


def reference_of(spec, data, steps, changes=None):
    (stage,) = spec["stages"]
    steps = itertools.islice(steps, stage["fit"]["steps"])
    return list(join_reference.train(spec, join_model.build(), data, steps, changes or {}))


def own_reference(spec, pattern, changes=None):
    sizes = sizes_of(pattern)
    return reference_of(spec, parts(sizes), join_reference.own_steps(spec, sizes), changes)


def assert_close(found, expected, what):
    expected = join_reference.with_zeros(expected, found)
    assert found.keys() == expected.keys(), what
    difference = {name: (found[name] - expected[name]).abs().max().item() for name in expected}
    worst = max(difference, key=difference.get)
    assert difference[worst] <= TOLERANCE, f"{what}: {worst} is off by {difference[worst]}"


def check(spec, expected, folder, changes=None):
    first = None
    for name, strategy in STRATEGIES.items():
        found = run(spec | {"strategy": strategy}, folder / name, changes=changes)
        assert list(found) == list(range(1, len(expected) + 1))
        for step, wanted in enumerate(expected, 1):
            assert_close(found[step], wanted.state, f"{name}, step {step}")
        first = first or found
        for step in found:
            checkpoints.assert_bitwise_equal(found[step], first[step])
    return first


@pytest.mark.parametrize("divide_by, pattern, accumulate, optimizer", CASES)
def test_every_strategy_is_the_single_process(tmp_path, divide_by, pattern, accumulate, optimizer):
    spec = job(tmp_path, pattern, accumulate, divide_by, optimizer)
    check(spec, own_reference(spec, pattern), tmp_path)


@pytest.mark.parametrize("strategy", ["sharded_ddp", "fsdp"])
def test_reduced_in_every_micro_batch(tmp_path, strategy):
    """Windows end short on ranks 1 and 2; sums are taken in another order."""
    pattern = (7, 3, 1)
    spec = job(tmp_path, pattern, 3, "active", "sgd") | {
        "strategy": {strategy: {"reduce_every": "micro_batch"}}
    }
    found = run(spec, tmp_path / "run")
    for step, wanted in enumerate(own_reference(spec, pattern), 1):
        assert_close(found[step], wanted.state, f"step {step}")


# {steps done: new rules}, for changes while ranks 1 and 2 have joined.
CHANGES = {
    2: [{"freeze": "0.*"}],
    3: [{"freeze": "*"}],
    5: [{"unfreeze": "1.*"}, {"unfreeze": "2.*"}],
    7: [{"unfreeze": "*"}],
}


@pytest.mark.parametrize("divide_by, optimizer", cases.every_value(DIVIDE_BY, OPTIMIZERS))
def test_with_clipping_recomputation_and_freezes_while_ranks_have_joined(
    tmp_path, divide_by, optimizer
):
    pattern = (7, 0, 1)
    more = {"clip_grad_norm": 0.3, "activation_checkpointing": {}}
    spec = job(tmp_path, pattern, 2, divide_by, optimizer, **more)
    expected = own_reference(spec, pattern, CHANGES)
    assert [step.joined.keys() for step in expected] == ([{1}] + 3 * [{1, 2}]) * 2
    check(spec, expected, tmp_path, CHANGES)


@pytest.mark.parametrize(
    "order, count", cases.every_value(["shuffled", "shuffled_v2", "sequential"], [67, 50, 7])
)
def test_the_first_ranks_get_the_rest_of_a_common_data_set(tmp_path, order, count):
    """A step has 48 samples. The cases: a rest for two ranks, a rest of two samples, and data that
    fill no step."""
    spec = job(tmp_path, (1, 1, 1), 2, "active", "sgd")
    ((inputs, labels),) = parts([count])
    save_file({"inputs": inputs, "labels": labels}, tmp_path / "common.safetensors")
    spec["data"] = {"train": {"safetensors": {"path": str(tmp_path / "common.safetensors")}}}
    spec["batch"]["order"] = order
    spec["stages"] = [{"fit": {"steps": 5}}]
    steps = sampler.steps(count, spec["seed"], 3, PER_RANK, 2, order, "uneven")
    check(spec, reference_of(spec, 3 * [(inputs, labels)], steps), tmp_path)


# {name: (strategy, what computes in bfloat16, what is reduced in bfloat16)}
ROUNDED = {
    "sharded_ddp": (
        {"sharded_ddp": {"bucket_mb": 0.0005, "reduce_dtype": "bfloat16"}},
        False,
        True,
    ),
    "fsdp": ({"fsdp": {"reduce_dtype": "bfloat16"}}, False, True),
    "fsdp_parameters": ({"fsdp": {"param_dtype": "bfloat16"}}, True, False),
    "fsdp_both": (
        {"fsdp": {"param_dtype": "bfloat16", "reduce_dtype": "bfloat16"}},
        True,
        True,
    ),
}


@pytest.mark.parametrize("name, divide_by", cases.every_value(ROUNDED, DIVIDE_BY))
def test_with_gradients_or_parameters_in_bfloat16(tmp_path, name, divide_by):
    """With SGD, whose steps are proportional to gradients. Found: at most 6e-8 off; a reference
    that rounds something else, or nothing, is off by more than 1e-4."""
    strategy, computes, reduces = ROUNDED[name]
    pattern = (7, 0, 1)
    spec = job(tmp_path, pattern, 2, divide_by, "sgd") | {"strategy": strategy}
    # Without BatchNorm, because bfloat16 parameters cannot be combined with float32 buffers.
    model = join_model.build_plain()
    torch.jit.script(model).save(str(tmp_path / "model.pt"))
    sizes = sizes_of(pattern)
    types = {True: torch.bfloat16, False: torch.float32}
    (stage,) = spec["stages"]
    steps = itertools.islice(join_reference.own_steps(spec, sizes), stage["fit"]["steps"])
    expected = list(
        join_reference.train(spec, model, parts(sizes), steps, {}, types[computes], types[reduces])
    )
    found = run(spec, tmp_path / "run")
    assert list(found) == list(range(1, len(expected) + 1))
    for step, wanted in enumerate(expected, 1):
        assert_close(found[step], wanted.state, f"{name}, step {step}")


def language_job(folder):
    """Everything that could carry hidden state: dropout, float16 with its loss scale, accumulation,
    clipping, recomputation."""
    spec = workloads.gpt2(folder, dropout=0.2)
    paths = []
    for rank, tokens in enumerate([40 * 17 + 1, 5 * 17 + 1, 0]):
        paths.append(str(folder / f"{rank}.bin"))
        workloads.write_tokens(paths[-1], 37, max(tokens, 1), seed=rank)
    return spec | {
        "world_size": 3,
        "data": {"train": {"tokens": {}, "per_rank": paths}},
        "batch": {"per_rank": 4, "accumulate": 2},
        "uneven_inputs": {"join": {"divide_by": "samples"}},
        "precision": "float16",
        "loss_scale": {"initial": 2.0**18, "growth_interval": 3},
        "clip_grad_norm": 0.5,
        "activation_checkpointing": {},
        "optimizer": OPTIMIZERS["adamw"],
        "stages": [{"fit": {"steps": 12}}],
    }


def test_a_run_resumed_while_ranks_have_joined_is_the_undisturbed_one_in_any_strategy(tmp_path):
    spec = language_job(tmp_path)
    calm = sessions.run(spec | {"strategy": STRATEGIES["ddp"]}, tmp_path / "calm")
    assert list(calm) == list(range(1, 13))
    for name, start in [
        ("sharded_ddp", None),
        ("fsdp", None),
        ("ddp", 3),
        ("sharded_ddp", 4),
        ("fsdp", 8),
    ]:
        found = sessions.run(
            spec | {"strategy": STRATEGIES[name]},
            tmp_path / f"{name}-{start}",
            start=start and calm[start],
        )
        assert list(found) == list(range(start or 1, 13))
        for step, folder in found.items():
            checkpoints.assert_bitwise_equal(checkpoints.read(folder), checkpoints.read(calm[step]))
    first, last = (checkpoints.parameters(calm[step]) for step in (1, 12))
    assert all(not torch.equal(first[name], last[name]) for name in first)


@pytest.mark.parametrize("pattern", cases.first_ones([(1, 4, 2), (0, 5), (3, 5)], 1))
def test_the_last_step_has_the_parameters_of_pytorchs_own_join(tmp_path, pattern):
    plain = {"lr": 0.02}  # join() leaves a joined rank's momentum behind
    more = {"optimizer": {"sgd": plain}, "stages": [{"fit": {"steps": max(pattern)}}]}
    data = parts(sizes_of(pattern))
    spec = job(tmp_path, pattern, 1, "initial", "sgd") | more
    steps = list(itertools.islice(join_reference.own_steps(spec, sizes_of(pattern)), max(pattern)))
    epochs = [
        [tuple(part[samples] for part in data[rank]) for step in steps for samples in step[rank]]
        for rank in range(len(pattern))
    ]
    ends = join_model.train_with_ddp(tmp_path, epochs, plain)
    for name, divide_by in itertools.product(STRATEGIES, ends):
        join = {"strategy": STRATEGIES[name], "uneven_inputs": {"join": {"divide_by": divide_by}}}
        found = run(spec | join, tmp_path / f"{name}-{divide_by}")[max(pattern)]
        assert_close(
            {key: found[f"param/{key}"] for key in ends[divide_by]},
            ends[divide_by],
            f"{name}, {divide_by}",
        )
