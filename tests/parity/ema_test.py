"""The averages of a job's weights (`ema:`) against torch.optim.swa_utils.AveragedModel.

AveragedModel is fed with the parameters of a run of plain PyTorch, which freezes and unfreezes on
the way as the job does. The averages of all steps are read from the job's checkpoints. The
tolerance is training_test's, 1e-6: an average of numbers that differ by so much differs by no
more. Among strategies, and over a restart with the same world size, they are equal to the bit.
"""

import json
import os
import signal
import subprocess
import time

import pytest
import torch
from torch.optim import swa_utils

from tests import bazel, cases
from tests.parity import checkpoints, reference, refresh_test, sessions, shared_cluster, workloads

muster = shared_cluster.with_slots(2)

DECAY = 0.9
TOLERANCE = 1e-6
STRATEGIES = refresh_test.STRATEGIES
CASES = cases.every_value([1, 3], ["sgd", "adamw"])


def averages_of(spec, parameters, every):
    """{step: {name: tensor}} of AveragedModel, whose model takes these parameters after each
    step."""
    model = reference.build(spec)
    averaged = swa_utils.AveragedModel(model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(DECAY))
    found = {}
    for step, values in sorted(parameters.items()):
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(values[name])
        if step % every == 0:
            averaged.update_parameters(model)
        if step >= every:
            found[step] = {
                name: parameter.detach().clone()
                for name, parameter in averaged.module.named_parameters()
            }
    return found


def averages_in(folder):
    return {
        name.removeprefix("ema/"): tensor
        for name, tensor in checkpoints.read(folder, {"ema"}).items()
    }


def job(folder, every, optimizer="sgd", world_size=2):
    return refresh_test.job(folder, world_size, 1, None, optimizer) | {
        "ema": {"decay": DECAY, "every": every},
        "batch": {"per_rank": 4 // world_size},
    }


def assert_near(found, expected, what):
    difference = refresh_test.largest_difference(found, expected, what)
    assert difference <= TOLERANCE, (what, difference)


@pytest.mark.parametrize("every, optimizer", CASES)
def test_each_step_is_that_of_averaged_model(tmp_path, every, optimizer):
    spec = job(tmp_path, every, optimizer)
    plain = {key: value for key, value in spec.items() if key != "ema"}
    trained = reference.train(plain, before_step=refresh_test.set_flags)
    expected = averages_of(plain, trained.parameters, every)
    found = {}
    for name, strategy in STRATEGIES.items():
        steps = sessions.run(
            spec | {"strategy": strategy}, tmp_path / name, refresh_test.CHANGES
        )
        found[name] = {step: averages_in(folder) for step, folder in steps.items()}
        assert list(steps) == list(range(1, refresh_test.STEPS + 1))
        for step in steps:
            if step < every:
                assert found[name][step] == {}, "before the first update there are none"
                continue
            assert_near(found[name][step], expected[step], (name, step))
            checkpoints.assert_bitwise_equal(found[name][step], found["ddp"][step])
    # They lag behind the parameters.
    last = refresh_test.STEPS
    behind = refresh_test.largest_difference(
        found["ddp"][last], trained.parameters[last], "behind"
    )
    assert behind > 100 * TOLERANCE


@pytest.mark.parametrize("strategy, other", [("fsdp", "ddp"), ("ddp", "sharded_ddp")])
def test_a_job_goes_on_with_them(tmp_path, strategy, other):
    spec = job(tmp_path, every=3) | {"strategy": STRATEGIES[strategy]}
    undisturbed = sessions.run(spec, tmp_path / "undisturbed", refresh_test.CHANGES)
    for stopped in (2, 7, 12):
        resumed = sessions.run(
            spec, tmp_path / f"resumed-{stopped}", refresh_test.CHANGES, start=undisturbed[stopped]
        )
        for step in (stopped + 1, refresh_test.STEPS):
            checkpoints.assert_bitwise_equal(
                checkpoints.read(resumed[step]), checkpoints.read(undisturbed[step])
            )
    # Another job, with another strategy and world size.
    start = {"checkpoint": str(undisturbed[7]), "what": "everything"}
    moved = job(tmp_path, every=3, world_size=4) | {
        "strategy": STRATEGIES[other],
        "model": {"gpt2": spec["model"]["gpt2"]},
        "start": start,
    }
    moved.pop("trainable", None)  # what is trained is what the other job trains then
    changes = {done: rules for done, rules in refresh_test.CHANGES.items() if done > 7}
    found = sessions.run(moved, tmp_path / "moved", changes, job_id="moved")
    for step in (8, 9, refresh_test.STEPS):
        assert_near(averages_in(found[step]), averages_in(undisturbed[step]), step)


def test_validation_and_export_are_those_of_the_averages(muster, tmp_path):
    plain = workloads.gpt2(tmp_path) | {
        "world_size": 2,
        "optimizer": {"sgd": {"lr": 0.05, "momentum": 0.9}},
        "batch": {"per_rank": 2},
        "stages": [{"fit": {"steps": 6, "validate_every": 3}}, {"validate": {}}],
    }
    trained = reference.train(plain | {"stages": [{"fit": {"steps": 6}}]})
    expected = averages_of(plain, trained.parameters, 1)[6]
    muster.run(plain, "plain")
    for name, strategy in STRATEGIES.items():
        weights = tmp_path / f"{name}.safetensors"
        spec = plain | {
            "strategy": strategy,
            "ema": {"decay": DECAY, "evaluate": True},
            "export": {"path": str(weights), "from": "ema"},
            "checkpoint": {"directory": str(tmp_path / "checkpoints")},
        }
        job_id = "ema-" + name.replace("_", "-")
        done = muster.run(spec, job_id)
        assert muster.losses(job_id) == muster.losses("plain"), "training is the same"
        assert_near(reference.load_weights(weights), expected, name)
        averaged = plain | {"model": plain["model"] | {"weights": str(weights)}}
        loss = reference.validation_loss(averaged)
        assert done["validation_loss"] == pytest.approx(loss, abs=TOLERANCE)
        assert muster.job("plain")["validation_loss"] != pytest.approx(loss, abs=1e-3)
        treat_as_any_slot(tmp_path, job_id, expected)


def test_a_killed_worker_costs_no_average(muster, tmp_path):
    spec = workloads.gpt2(tmp_path) | {
        "world_size": 2,
        "strategy": STRATEGIES["fsdp"],
        "optimizer": {"sgd": {"lr": 0.05, "momentum": 0.9}},
        "batch": {"per_rank": 2},
        "stages": [{"fit": {"steps": 400}}, {"validate": {}}],
        "ema": {"decay": DECAY, "every": 3, "evaluate": True},
        "restart": {"max_restarts": 1},
    }
    found = {}
    for job_id in ("undisturbed", "killed"):
        weights = tmp_path / f"{job_id}.safetensors"
        directory = tmp_path / "checkpoints"
        muster.submit(
            spec
            | {
                "export": {"path": str(weights), "from": "ema"},
                "checkpoint": {"directory": str(directory), "every_steps": 7},
            },
            job_id,
        )
        if job_id == "killed":
            deadline = time.monotonic() + bazel.bound(30)
            while not checkpoints.all_steps(directory, job_id):
                assert time.monotonic() < deadline, muster.log(job_id)
                time.sleep(0.01)
            os.kill(muster.workers()[0], signal.SIGKILL)
        done = muster.wait(job_id)
        assert int(done["generation"]) == (2 if job_id == "killed" else 1)
        found[job_id] = reference.load_weights(weights), done["validation_loss"]
    checkpoints.assert_bitwise_equal(found["killed"][0], found["undisturbed"][0])
    assert found["killed"][1] == found["undisturbed"][1]


def treat_as_any_slot(folder, job_id, expected):
    """The commands for checkpoints."""
    (checkpoint,) = checkpoints.all_steps(folder / "checkpoints", job_id).values()
    command = [bazel.runfile("client/cli/muster"), "checkpoints"]
    resharded = folder / f"{job_id}-resharded"
    for arguments in (
        ["verify", checkpoint],
        ["reshard", checkpoint, "--files", "3", "--out", resharded],
        ["diff", checkpoint, resharded],
    ):
        done = subprocess.run([*command, *arguments], capture_output=True, text=True)
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
    assert_near(averages_in(resharded), expected, "resharded")
    manifest = json.loads((resharded / "MANIFEST.json").read_text())
    assert "ema" in {piece["slot"] for piece in manifest["pieces"]}
