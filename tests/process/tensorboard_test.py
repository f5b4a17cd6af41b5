"""`metrics: {tensorboard: DIR}`: TensorBoard's own readers have every step that counts exactly
once, with the value that the coordinator stores, whatever was killed or rolled back."""

import pytest
from tensorboard.backend.event_processing import event_accumulator, event_multiplexer

from tests.process import event_files, harness
from tests.process.tensorboard_jobs import (
    await_held,
    check,
    cluster,  # noqa: F401
    folder,
    get,
    reasons,
    submit,
)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_every_step_and_every_pass_is_there(cluster, strategy):
    muster = cluster
    stages = [{"fit": {"steps": 20, "validate_every": 5}}, {"validate": {}}, {"test": {}}]
    submit(muster, "job", strategy={strategy: {}}, stages=stages)
    muster.agent("node", slots=2)
    muster.cli("wait", "job")
    found = check(muster, "job")
    assert [step for step, _ in found["train/loss"]] == list(range(1, 21))
    passes = [step for step, _ in found["validation/loss"]]
    assert passes == [5, 10, 15, 20, 20], "of fit, and of the stage behind it"
    assert [step for step, _ in found["test/accuracy"]] == [20]
    assert len(event_files.files(folder(muster, "job"))) == 1, "one rank writes"
    assert [name for name in reasons(muster, "job") if "TENSORBOARD" in name] == []


def test_operations_are_marked_where_they_take_effect(cluster):
    muster = cluster
    submit(muster, "job", stages=[{"fit": {"steps": 12}}])
    for command, step, *arguments in [
        ("freeze", 4, "transformer.h.0.*"),
        ("set-lr", 6, "0.002"),
        ("checkpoint", 7),
        ("pause", 8),
    ]:
        muster.cli(command, "job", *arguments, "--at-step", step)
    muster.agent("node", slots=2)
    await_held(muster, "job", 8)
    for _ in range(2):
        muster.cli("stage", "job", "validate", "--wait")
    muster.cli("set-lr", "job", "0.003", "--wait")
    muster.cli("resume", "job", "--wait")
    muster.cli("wait", "job")
    found = check(muster, "job")
    assert [step for step, _ in found["validation/loss"]] == [8, 8]
    marks = found["marks/operations"]
    texts = {text: step for step, text in marks}
    assert len(texts) == len(marks), "each is there once"
    assert texts["freeze transformer.h.0.* (operation job/1)"] == 4
    assert texts["set-lr 0.002 (operation job/2)"] == 6
    assert texts["checkpoint (operation job/3)"] == 7
    assert texts["pause (operation job/4)"] == 8
    assert texts["stage validate (operation job/5)"] == 8
    assert texts["stage validate (operation job/6)"] == 8
    assert texts["set-lr 0.003 (operation job/7)"] == 8
    changes = [(step, text) for text, step in texts.items() if "trained elements" in text]
    assert len(changes) == 1 and changes[0][0] == 4 and "(operation job/1)" in changes[0][1]
    trained = found["train/trainable_parameters"]
    assert [step for step, _ in trained] == [1, 5] and trained[1][1] < trained[0][1]
    assert dict(found["train/learning_rate"])[12] < dict(found["train/learning_rate"])[9] <= 0.003
    assert [step for step, _ in found["marks/checkpoints"]] == [5, 7, 10, 12]
    assert found["marks/stages"] == [(0, "stage fit begins")]
    assert [step for step, _ in found["marks/generations"]] == [0]


@pytest.mark.parametrize(
    "strategy,whom",
    [("ddp", "rank 0"), ("ddp", "all ranks"), ("fsdp", "rank 0"), ("fsdp", "all ranks")],
)
def test_steps_that_are_rolled_back_are_there_once(cluster, strategy, whom):
    muster = cluster
    stages = [{"fit": {"steps": 20, "validate_every": 4}}, {"validate": {}}]
    submit(muster, "job", strategy={strategy: {}}, stages=stages)
    # There is a checkpoint of step 10, which does not include the first two, and none of step 13.
    for step, rate in [(10, "0.0015"), (11, "0.002")]:
        muster.cli("set-lr", "job", rate, "--at-step", step)
    muster.cli("pause", "job", "--at-step", 13)
    muster.agent("node", slots=2)
    await_held(muster, "job", 13, generation=1)
    before = harness.eventually(
        lambda: (found := event_files.read(folder(muster, "job")))
        and found["train/loss"][-1][0] == 13
        and found,
        "the steps before the fault are in the files",
    )
    assert [step for step, _ in before["validation/loss"]] == [4, 8, 12]
    for process in muster.processes("muster-worker"):
        if whom == "all ranks" or process.option("--rank") == "0":
            harness.kill(process.pid)
    await_held(muster, "job", 10, generation=2)
    muster.cli("resume", "job")
    muster.cli("wait", "job")
    found = check(muster, "job")
    assert [step for step, _ in found["train/loss"]] == list(range(1, 21))
    assert [step for step, _ in found["validation/loss"]] == [4, 8, 12, 16, 20, 20]
    generations = found["marks/generations"]
    assert [step for step, _ in generations] == [0, 10]
    assert generations[1][1].startswith("generation 2 with 2 ranks, rank 0 on node node, begins")
    assert "checkpoints/job/step-10-g1" in generations[1][1]
    assert [(step, text) for step, text in found["marks/operations"] if "set-lr" in text] == [
        (10, "set-lr 0.0015 (operation job/1)"),
        (11, "set-lr 0.002 (operation job/2)"),
    ]
    # An earlier file may end with what was rolled back.
    assert len(event_files.files(folder(muster, "job"))) == 2
    assert [name for name in reasons(muster, "job") if "TENSORBOARD" in name] == []


def test_generations_that_begin_far_back_and_do_no_step(cluster):
    muster = cluster
    checkpoint = {"directory": "checkpoints", "every_steps": 40}
    submit(muster, "job", stages=[{"fit": {"steps": 90}}], checkpoint=checkpoint)
    muster.cli("pause", "job", "--at-step", 75)
    muster.agent("node", slots=2)
    await_held(muster, "job", 75, generation=1)
    harness.eventually(
        lambda: event_files.read(folder(muster, "job"))["train/loss"][-1][0] == 75,
        "the steps before the fault are in the files",
    )
    # The pause holds the job before its first step.
    for generation in (2, 3):
        for process in muster.processes("muster-worker"):
            harness.kill(process.pid)
        await_held(muster, "job", 40, generation=generation)
        shown = harness.eventually(
            lambda: len(event_files.files(folder(muster, "job"))) == generation
            and event_files.read_numbers_fast(folder(muster, "job")),
            "the generation has a file",
        )
        assert [step for step, _ in shown["train/loss"]] == list(range(1, 41))
    muster.cli("resume", "job")
    muster.cli("wait", "job")
    found = check(muster, "job")
    assert [step for step, _ in found["train/loss"]] == list(range(1, 91))
    assert [step for step, _ in found["train/trainable_parameters"]] == [1, 41]
    assert [step for step, _ in found["marks/generations"]] == [0, 40, 40]
    runs = event_multiplexer.EventMultiplexer(size_guidance={event_accumulator.SCALARS: 0})
    runs.AddRunsFromDirectory(str(muster.folder / "logs")).Reload()
    losses = [(event.step, event.value) for event in runs.Scalars("job", "train/loss")]
    assert losses == found["train/loss"], "all jobs of a folder together"
    assert [name for name in reasons(muster, "job") if "TENSORBOARD" in name] == []


def test_a_pass_that_is_not_done_again_is_gone(cluster):
    muster = cluster
    submit(muster, "job", stages=[{"fit": {"steps": 20}}])
    for hold in (13, 16):
        muster.cli("pause", "job", "--at-step", hold)
    muster.agent("node", slots=2)
    await_held(muster, "job", 13, generation=1)
    muster.cli("stage", "job", "validate", "--wait")
    harness.eventually(
        lambda: event_files.read(folder(muster, "job")).get("validation/samples"),
        "the pass is in the files",
    )
    assert event_files.read_numbers_fast(folder(muster, "job"))["validation/loss"][0][0] == 13
    for process in muster.processes("muster-worker"):
        harness.kill(process.pid)
    await_held(muster, "job", 10, generation=2)
    muster.cli("resume", "job", "--wait")
    await_held(muster, "job", 16)
    muster.cli("stage", "job", "validate", "--wait")
    muster.cli("resume", "job", "--wait")
    muster.cli("wait", "job")
    found = check(muster, "job")
    assert [step for step, _ in found["validation/loss"]] == [16]


def test_a_job_that_is_stopped_continues_its_files(cluster):
    muster = cluster
    submit(muster, "job", stages=[{"fit": {"steps": 12, "validate_every": 4}}])
    muster.cli("pause", "job", "--at-step", 7)
    muster.agent("node", slots=2)
    await_held(muster, "job", 7)
    muster.cli("stop", "job", "--wait")
    found = check(muster, "job")
    assert [step for step, _ in found["train/loss"]] == list(range(1, 8)), "nothing is missing"
    muster.cli("resume", "job")
    muster.cli("wait", "job")
    found = check(muster, "job")
    assert [step for step, _ in found["train/loss"]] == list(range(1, 13))
    assert [step for step, _ in found["marks/generations"]] == [0, 7]


def test_a_job_that_failed_and_is_tried_again_continues_its_files(cluster):
    muster = cluster
    submit(muster, "job", stages=[{"fit": {"steps": 12}}], restart={"max_restarts": 0})
    muster.cli("pause", "job", "--at-step", 8)
    muster.agent("node", slots=2)
    await_held(muster, "job", 8)
    harness.eventually(
        lambda: event_files.read(folder(muster, "job"))["train/loss"][-1][0] == 8,
        "the steps before the fault are in the files",
    )
    harness.kill(muster.processes("muster-worker")[0].pid)
    muster.cli("wait", "job", expect=None)
    assert get(muster, "job")["state"] == "FAILED"
    muster.cli("retry", "job")
    muster.cli("wait", "job")
    found = check(muster, "job")
    assert [step for step, _ in found["train/loss"]] == list(range(1, 13))
    assert [step for step, _ in found["marks/generations"]] == [0, 5]


def test_a_job_that_begins_again_takes_the_place_of_what_it_wrote(cluster):
    muster = cluster
    stages = [{"validate": {}}, {"fit": {"steps": 12, "validate_every": 4}}]
    submit(muster, "job", stages=stages)
    muster.cli("pause", "job", "--at-step", 7)
    muster.agent("node", slots=2)
    await_held(muster, "job", 7)
    muster.cli("stop", "job", "--wait")
    assert event_files.read(folder(muster, "job"))["train/loss"][-1][0] == 7
    muster.cli("resume", "job", "--from-scratch")
    muster.cli("wait", "job")
    found = check(muster, "job")
    assert [step for step, _ in found["train/loss"]] == list(range(1, 13))
    assert [step for step, _ in found["validation/loss"]] == [0, 4, 8, 12]
    assert [step for step, _ in found["marks/generations"]] == [0]


def test_a_job_that_continues_another_one_with_another_world_size(cluster):
    muster = cluster
    muster.agent("node", slots=2)
    submit(muster, "first", stages=[{"fit": {"steps": 10}}])
    muster.cli("wait", "first")
    submit(
        muster,
        "second",
        world_size=1,
        stages=[{"fit": {"steps": 16, "validate_every": 5}}],
        start={"checkpoint": "first", "what": "everything"},
    )
    muster.cli("wait", "second")
    found = check(muster, "second")
    assert [step for step, _ in found["train/loss"]] == list(range(11, 17))
    assert found["marks/generations"][0][0] == 10
    # Its folder has nothing of the steps before, and nothing is missing there.
    assert [name for name in reasons(muster, "second") if "TENSORBOARD" in name] == []
    check(muster, "first")
