"""Tests of problems that a job file and the sizes of its data already show. They are reported
before a slot is taken, or at the start, and not after the training."""

import numpy
import pytest

from tests.process import jobs

ROWS, PIXELS, CLASSES = 33, 4, 3
MLP = {"mlp": {"inputs": 3 * PIXELS * PIXELS, "hidden": [8], "classes": CLASSES}}
# The last of its stages sees images of one pixel.
CONVNET = {
    "convnet": {
        "inputs": [3, PIXELS, PIXELS],
        "widths": [4, 4, 4],
        "blocks": [1, 1, 1],
        "classes": CLASSES,
    }
}


def write_job(folder, name, steps=8, **changes):
    """A job of rows whose epochs end with one row."""
    if not (folder / "inputs.npy").exists():
        source = numpy.random.default_rng(5)
        inputs = source.standard_normal((ROWS, 3, PIXELS, PIXELS), numpy.float32)
        numpy.save(folder / "inputs.npy", inputs)
        numpy.save(folder / "labels.npy", numpy.arange(ROWS) % CLASSES)
    data = {"npy": {"inputs": ["inputs.npy"], "labels": ["labels.npy"]}}
    given = {
        "world_size": 1,
        "model": MLP,
        "data": {"train": data, "validate": data},
        "optimizer": {"sgd": {"lr": 0.01}},
        "schedule": None,
        "batch": {"per_rank": 4},
        "stages": [{"fit": {"steps": steps}}],
        "checkpoint": {"directory": f"checkpoints-{name}"},
        "export": None,
        "clip_grad_norm": None,
    }
    return jobs.write_job(folder, name=f"{name}.yaml", **(given | changes))


def run(muster, path, expect=0, *arguments):
    return muster.cli("run", path, *arguments, expect=expect)


@pytest.fixture
def checkpoint(muster, tmp_path):
    """The directory of a checkpoint of step 8."""
    run(muster, write_job(tmp_path, "first"))
    (found,) = (tmp_path / "checkpoints-first").glob("*/step-8-g1")
    return found


def going_on(folder, name, checkpoint, **changes):
    start = {"checkpoint": str(checkpoint), "what": "everything"}
    return write_job(folder, name, start=start, **changes)


@pytest.mark.parametrize("steps", [8, 5])
def test_a_job_that_goes_on_with_nothing_left_to_train_is_refused(
    muster, checkpoint, tmp_path, steps
):
    """Muster issue 49: `start: everything` with as many or fewer steps than the checkpoint has was
    SUCCEEDED with "12/8 steps", and nothing was trained."""
    path = going_on(tmp_path, "second", checkpoint, steps=steps)
    for command in ("run", "validate"):
        said = muster.cli(command, path, expect=2).err
        assert "start.what" in said and "nothing would be trained" in said, said
        assert "is of step 8" in said and f"have {steps} steps" in said
    # A stage that does not train makes it no better.
    stages = [{"fit": {"steps": steps}}, {"validate": {}}]
    path = going_on(tmp_path, "third", checkpoint, stages=stages)
    assert "nothing would be trained" in run(muster, path, 2).err
    # The requested job is done.
    path = going_on(tmp_path, "fourth", checkpoint, steps=9)
    assert "9/9 steps" in run(muster, path).out
    path = going_on(tmp_path, "fifth", checkpoint, stages=[{"validate": {}}])
    assert "validation loss" in run(muster, path).out


def test_a_coordinator_refuses_it_by_the_name_of_the_job(muster, tmp_path):
    """Muster issue 49: the same, submitted with JOB@STEP: before a slot is taken."""
    daemon = muster.musterd(local_slots=1)
    muster.cli("submit", write_job(tmp_path, "first"), "--id", "first", "--wait")
    for start in ("first", "first@8"):
        path = going_on(tmp_path, "second", start)
        for command in ("submit", "validate"):
            said = muster.cli(command, path, expect=2).err
            assert "start.what" in said and "is of step 8" in said, said
    assert [job["id"] for job in muster.cli("list", "-o", "json").json()["jobs"]] == ["first"]
    muster.stop(daemon)


def test_epochs_that_are_over_are_refused_at_the_start(muster, checkpoint, tmp_path):
    """Muster issue 49: where the stage counts in epochs, only the ranks know its steps."""
    # An epoch is 8 steps.
    path = going_on(tmp_path, "second", checkpoint, stages=[{"fit": {"epochs": 1}}])
    said = run(muster, path, 100).err
    assert "start.checkpoint" in said and "nothing would be trained" in said, said
    assert "generation 2" not in said


def test_a_resume_from_a_checkpoint_beyond_the_end_is_refused(muster, checkpoint, tmp_path):
    """Muster issue 49, the same kind: `resume --from` a checkpoint with more steps than the job."""
    daemon = muster.musterd(local_slots=1)
    bad = write_job(tmp_path, "short", steps=5, optimizer={"sgd": {"lr": 1e30}})
    muster.cli("submit", bad, "--id", "short", "--wait", expect=100)
    muster.cli("resume", "short", "--from", checkpoint)
    muster.cli("wait", "short", expect=100)
    job = muster.cli("get", "short", "-o", "json").json()
    assert "nothing would be trained" in job["state_reason"], job["state_reason"]
    muster.stop(daemon)


BEST = {"path": "best.safetensors", "from": "best"}


@pytest.mark.parametrize(
    "rule, more",
    [("keep_best", {"export": BEST}), ("early_stopping", {})],
    ids=["the best is exported", "early stopping"],
)
def test_a_rule_of_validation_that_is_never_asked_is_refused(muster, tmp_path, rule, more):
    """Muster issue 49: `export: {from: best}` where no validation comes before the last step was
    trained to the end, and FAILED then; early stopping was never asked."""
    stages = [{"fit": {"steps": 8, "validate_every": 9, rule: {}}}]
    path = write_job(tmp_path, "never", stages=stages, **more)
    said = run(muster, path, 2).err
    assert "stages[0].fit.validate_every: found 9" in said, said
    stages = [{"fit": {"epochs": 1, "validate_every": 2, rule: {}}}]
    path = write_job(tmp_path, "epochs", stages=stages, **more)
    assert "stages[0].fit.validate_every: found 2" in run(muster, path, 2).err


def test_no_best_in_the_steps_that_are_left_is_said_at_the_start(muster, checkpoint, tmp_path):
    """Muster issue 49: the only passes come before the step with which the job begins."""
    stages = [{"fit": {"steps": 9, "validate_every": 4, "keep_best": {}}}]
    path = going_on(tmp_path, "second", checkpoint, stages=stages, export=BEST)
    said = run(muster, path, 100).err
    assert "export.from: found best" in said and "between step 8 and" in said, said
    assert not list((tmp_path / "checkpoints-second").glob("*/step-*"))


def test_a_single_row_at_the_end_of_an_epoch_is_said_at_the_start(muster, tmp_path):
    """Muster issue 49 (torch: "Expected more than 1 value per channel when training"): BatchNorm,
    `last: uneven`, and data of which the last batch has one row: known by the sizes."""
    batch = {"per_rank": 4, "last": "uneven"}
    path = write_job(tmp_path, "norm", model=CONVNET, batch=batch, steps=20)
    said = run(muster, path, 100).err
    assert "step 0: batch: found 33 samples" in said and "BatchNorm" in said, said
    # Up to there it trains, and where no row is left alone.
    path = write_job(tmp_path, "shorter", model=CONVNET, batch=batch, steps=8)
    assert "8/8 steps" in run(muster, path).out
    path = write_job(tmp_path, "threes", model=CONVNET, batch=batch | {"per_rank": 3}, steps=20)
    assert "20/20 steps" in run(muster, path).out


def test_a_single_row_of_a_torchscript_model_is_said_at_the_start(muster, tmp_path):
    """Muster issue 49: the same, of a model of which only its own forward tells."""
    torch = pytest.importorskip("torch")
    layers = [torch.nn.Linear(3 * PIXELS * PIXELS, 8), torch.nn.BatchNorm1d(8)]
    script = torch.jit.script(torch.nn.Sequential(*layers, torch.nn.Linear(8, CLASSES)))
    torch.jit.save(script, str(tmp_path / "model.pt"))
    model = {
        "torchscript": {
            "path": "model.pt",
            "inputs": [3 * PIXELS * PIXELS],
            "classes": CLASSES,
        }
    }
    batch = {"per_rank": 4, "last": "uneven"}
    path = write_job(tmp_path, "script", model=model, batch=batch, steps=20)
    said = run(muster, path, 100).err
    assert "step 0: batch: found 33 samples" in said, said
    assert "Expected more than 1 value per channel" in said, said


def test_averages_that_would_never_be_made_are_refused(muster, tmp_path):
    """Muster issue 49, the same kind: `ema.every` beyond the last step: the export "of the
    averages" was that of the weights."""
    export = {"path": "model.safetensors", "from": "ema"}
    path = write_job(tmp_path, "averages", ema={"every": 9}, export=export)
    assert "ema.every: found 9" in run(muster, path, 2).err


def test_a_profile_that_cannot_be_written_is_said(muster, tmp_path):
    """Muster issue 49, the same kind: no trace and no word, where the folder cannot be made."""
    (tmp_path / "file").write_text("")
    profile = {"directory": "file/traces", "steps": [2]}
    path = write_job(tmp_path, "profile", profile=profile)
    assert "profile.directory" in run(muster, path, 2).err
    profile = {"directory": "/proc/traces", "steps": [2]}
    path = write_job(tmp_path, "proc", profile=profile)
    assert "PROFILE_NOT_WRITTEN" in run(muster, path).err


def test_a_failed_end_leaves_a_checkpoint_of_the_last_step(muster, tmp_path):
    """Muster issue 49: what fails after the training (here the export: no pass gave a finite
    number) loses nothing that was trained."""
    stages = [{"fit": {"steps": 8, "validate_every": 4, "keep_best": {}}}]
    path = write_job(
        tmp_path,
        "infinite",
        stages=stages,
        optimizer={"sgd": {"lr": 1e30}},
        on_nan="skip_step",
        export=BEST,
    )
    said = run(muster, path, 100).err
    assert "no best checkpoint" in said, said
    assert list((tmp_path / "checkpoints-infinite").glob("*/step-8-g*"))
