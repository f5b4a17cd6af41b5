"""A job that begins with another job's checkpoint (`start:`), of another strategy and world size.

`everything` continues like the other job. Before the first step it has every bit of the other job's
checkpoint. After each step it has the state that the other job had then. That takes the same
samples and rates, so the losses are the same too. `weights+optimizer` is what a job does that is
given the other one's weights (`model.weights`) and the state of its optimizer (`optimizer.state`,
which optimizer_state_test compares with Python). `weights` is what `model.weights` does. Equal is:
to the bit, for the same world size; every strategy adds in the same order, however its buckets or
units are cut.
"""

import itertools
import json
import random

import pytest
from safetensors.torch import save_file

from tests import cases
from tests.parity import checkpoints, sessions, workloads

STRATEGIES = {
    "ddp": {"ddp": {"bucket_mb": 0.01}},
    "sharded_ddp": {"sharded_ddp": {"bucket_mb": 0.01}},
    "fsdp": {"fsdp": {}},
}
OTHER = {"ddp": "fsdp", "sharded_ddp": "ddp", "fsdp": "sharded_ddp"}
LATE = "transformer.h.0.mlp.c_fc.weight"
NEVER = "transformer.wpe.weight"
ONE_LAYER = "transformer.h.1.*"
STEPS, TAKEN = 8, 5
# Other world sizes sum gradients in another order.
TOLERANCE = 1e-6


def job(folder, strategy, world_size, **changes):
    return workloads.gpt2(folder) | {
        "strategy": STRATEGIES[strategy],
        "world_size": world_size,
        "optimizer": {
            "adamw": {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-5, "weight_decay": 0.1}
        },
        "schedule": {"warmup_cosine": {"warmup_steps": 3, "min_ratio": 0.1}},
        "trainable": {"rules": [{"freeze": LATE}, {"freeze": NEVER}]},
        "batch": {"per_rank": 12 // world_size},
        "stages": [{"fit": {"steps": STEPS}}],
        "model": {"gpt2": workloads.gpt2(folder)["model"]["gpt2"]},
    } | changes


@pytest.fixture
def source(tmp_path):
    """The checkpoints of a job whose parameter LATE is trained from step 3 on."""
    made = {}

    def make(strategy, world_size):
        folder = tmp_path / f"{strategy}-{world_size}"
        gather = {
            "at_step": TAKEN,
            "gather_optimizer_state": {"file": {"path": str(folder / "state.pt"), "key": "NAME"}},
        }
        made["steps"] = sessions.run(
            job(tmp_path, strategy, world_size),
            folder,
            {3: [{"unfreeze": LATE}]},
            commands=[gather],
        )
        made["state"] = folder / "state.pt"
        return made

    return make


def save_weights(checkpoint, path):
    save_file(checkpoints.parameters(checkpoint) | checkpoints.buffers(checkpoint), path)


def assert_equal(found, expected, tolerance):
    assert found.keys() == expected.keys()
    for name in expected:
        difference = (found[name].double() - expected[name].double()).abs().max().item()
        assert difference <= tolerance, (name, difference)


# The same strategies, with what is reduced or gathered together cut otherwise.
CUT_OTHERWISE = {
    "ddp": {"ddp": {"bucket_mb": 0.003}},
    "sharded_ddp": {"sharded_ddp": {"bucket_mb": 0.003}},
    "fsdp": {"fsdp": {"unit": ["transformer.wte", "*.h.1"], "replicate": ["*ln_*"]}},
}
# The rules that freeze and unfreeze: {steps done: rules}. All but one layer is frozen when the
# checkpoint is made that the new job begins with, and freed a step later.
TRAINED = {
    "most": {3: [{"unfreeze": LATE}]},
    "one layer": {3: [{"freeze": "*"}, {"unfreeze": ONE_LAYER}], 6: [{"unfreeze": "*"}]},
}
WORLDS = [1, 2, 3, 4]
FROM = list(itertools.product(STRATEGIES, WORLDS))
# The order of strategies, so that few pairs have each strategy together with each.
TO = random.Random(1).sample(FROM, len(FROM))
HOW = {
    "as it was": ("most", STRATEGIES),
    "one layer": ("one layer", STRATEGIES),
    "cut otherwise": ("most", CUT_OTHERWISE),
}

if cases.all_are_run():
    GOES_ON = [
        ((strategy, before), (own, after), how)
        for strategy, before, own, after, how in cases.every_value(
            STRATEGIES, WORLDS, STRATEGIES, WORLDS, HOW
        )
    ]
else:
    GOES_ON = cases.every_value(FROM, TO, HOW)


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """The checkpoints of jobs, each of which is run once."""
    made = {}

    def get(strategy, world_size, trained):
        if (strategy, world_size, trained) not in made:
            folder = tmp_path_factory.mktemp("source")
            made[strategy, world_size, trained] = sessions.run(
                job(folder, strategy, world_size), folder / "run", TRAINED[trained]
            )
        return made[strategy, world_size, trained]

    return get


def name_of(value):
    return value if isinstance(value, str) else "-".join(map(str, value))


@pytest.mark.parametrize("one, other, how", GOES_ON, ids=name_of)
def test_everything_goes_on_as_the_other_job(tmp_path, sources, one, other, how):
    (strategy, before), (own_strategy, after), (trained, cut) = one, other, HOW[how]
    expected = sources(strategy, before, trained)
    spec = job(tmp_path, own_strategy, after) | {"strategy": cut[own_strategy]}
    spec["start"] = {"checkpoint": str(expected[TAKEN]), "what": "everything"}
    del spec["trainable"]  # what is trained is what the other job trains then
    later = {done: rules for done, rules in TRAINED[trained].items() if done > TAKEN}
    save = {"at_step": TAKEN, "save_checkpoint": {}}
    found = sessions.run(spec, tmp_path / "own", later, commands=[save], job_id="own")
    # The taken state has the same bits before the first step.
    checkpoints.assert_bitwise_equal(
        checkpoints.read(found.pop(TAKEN)), checkpoints.read(expected[TAKEN])
    )
    assert list(found) == list(range(TAKEN + 1, STEPS + 1))
    for step in found:
        assert_equal(
            checkpoints.read(found[step]),
            checkpoints.read(expected[step]),
            0 if before == after else TOLERANCE,
        )


CASES = cases.every_value(STRATEGIES, [1, 2, 3], [1, 2, 4])


@pytest.mark.parametrize("strategy, before, after", CASES)
def test_weights_and_optimizer_are_what_their_files_are(
    tmp_path, source, strategy, before, after
):
    made = source(strategy, before)
    weights = tmp_path / "taken.safetensors"
    save_weights(made["steps"][TAKEN], weights)
    by_file = job(tmp_path, OTHER[strategy], after)
    by_file["model"] = by_file["model"] | {"weights": str(weights)}
    by_file["optimizer"] = by_file["optimizer"] | {"state": str(made["state"])}
    by_start = job(tmp_path, OTHER[strategy], after)
    by_start["start"] = {
        "checkpoint": str(made["steps"][TAKEN]),
        "what": "weights+optimizer",
    }
    slots = ("param", "exp_avg", "exp_avg_sq", "step")
    changes = {2: [{"unfreeze": LATE}]}
    expected = sessions.run(by_file, tmp_path / "by_file", changes)
    found = sessions.run(by_start, tmp_path / "by_start", changes)
    for step in (1, STEPS):
        checkpoints.assert_bitwise_equal(
            checkpoints.read(found[step], slots), checkpoints.read(expected[step], slots)
        )


def test_weights_alone_are_a_new_job_with_these_weights(tmp_path, source):
    made = source("fsdp", 2)
    weights = tmp_path / "taken.safetensors"
    save_weights(made["steps"][TAKEN], weights)
    sgd = {"sgd": {"lr": 0.05, "momentum": 0.9}}  # the other job has AdamW
    by_file = job(tmp_path, "ddp", 2, optimizer=sgd)
    by_file["model"] = by_file["model"] | {"weights": str(weights)}
    by_start = job(tmp_path, "ddp", 2, optimizer=sgd)
    by_start["start"] = {"checkpoint": str(made["steps"][TAKEN])}
    expected = sessions.run(by_file, tmp_path / "by_file")
    found = sessions.run(by_start, tmp_path / "by_start")
    slots = ("param", "momentum_buffer")
    checkpoints.assert_bitwise_equal(
        checkpoints.read(found[STEPS], slots), checkpoints.read(expected[STEPS], slots)
    )


def test_what_does_not_fit_is_refused_by_name(tmp_path, source):
    checkpoint = source("ddp", 1)["steps"][TAKEN]

    def refused(what, **changes):
        folder = tmp_path / f"refused-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        start = {"checkpoint": str(checkpoint), "what": what}
        return sessions.failure_of(job(tmp_path, "ddp", 1, start=start, **changes), folder)

    said = refused("weights+optimizer", optimizer={"sgd": {"lr": 0.1}})
    assert "start.checkpoint" in said and "found the state of adamw" in said
    assert "but its optimizer in the job is sgd" in said
    model = json.loads(json.dumps(job(tmp_path, "ddp", 1)["model"]))
    model["gpt2"]["width"] *= 2
    said = refused("weights", model=model)
    assert "param/transformer.wte.weight: expected" in said and str(checkpoint) in said


def test_a_rank_of_its_own_data_keeps_its_place_only_among_as_many_ranks(tmp_path):
    def own_data(world_size, **changes):
        spec = job(tmp_path, "ddp", world_size, **changes)
        path = spec["data"]["train"]["tokens"].pop("path")
        spec["data"]["train"]["per_rank"] = [path] * world_size
        return spec

    steps = sessions.run(own_data(2), tmp_path / "source")
    start = {"checkpoint": str(steps[TAKEN]), "what": "everything"}
    (tmp_path / "refused").mkdir()
    said = sessions.failure_of(own_data(1, start=start), tmp_path / "refused")
    assert "data.train.per_rank: the checkpoint was written by 2 ranks, and the job has 1" in said
    start["what"] = "weights+optimizer"
    assert sorted(sessions.run(own_data(1, start=start), tmp_path / "anew")) == list(
        range(1, STEPS + 1)
    )
