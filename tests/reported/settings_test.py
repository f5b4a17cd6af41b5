"""Tests of the rule for each setting of a job that continues from another job's checkpoint.
Settings in the job's file count; settings that the file leaves out come from the checkpoint."""

import json

import pytest

from tests.process import jobs

SGD = {"sgd": {"lr": 0.001, "momentum": 0.9}}


def write_job(folder, name, steps, **changes):
    given = {
        "world_size": 1,
        "optimizer": SGD,
        "schedule": None,
        "clip_grad_norm": None,
        "export": None,
        "stages": [{"fit": {"steps": steps}}],
    }
    return jobs.write_job(folder, name=f"{name}.yaml", **(given | changes))


def going_on(folder, name, steps, what="everything", **changes):
    start = {"checkpoint": "first", "what": what}
    return write_job(folder, name, steps, start=start, **changes)


def finish(muster, path, job, **options):
    muster.cli("submit", path, "--id", job, "--wait", **options)
    return muster.cli("get", job, "-o", "json").json()


@pytest.fixture
def cluster(muster):
    daemon = muster.musterd(local_slots=1)
    yield muster
    muster.stop(daemon)


def first(muster, folder, **changes):
    """The job `first`: 8 steps; its rate is 0.5 from step 4 on, and some layers are frozen then."""
    path = write_job(folder, "first", 8, **changes)
    muster.cli("submit", path, "--id", "first")
    muster.cli("set-lr", "first", "0.5", "--at-step", "4", expect=None)
    muster.cli("freeze", "first", "*wpe*", "--at-step", "4", expect=None)
    muster.cli("wait", "first")
    operations = muster.cli("operations", "first", "-o", "json").json()["operations"]
    assert [one["applied_at_step"] for one in operations] == ["4", "4"], operations


def rates(muster, job):
    lines = muster.cli("metrics", job, "-o", "json").out.splitlines()
    return {round(json.loads(line)["learning_rate"], 9) for line in lines}


def texts(job, reason):
    return [event["message"] for event in job["events"] if event["reason"] == reason]


def manifest(job):
    path = job["checkpoints"][-1]["path"]
    with open(f"{path}/MANIFEST.json", encoding="utf-8") as file:
        return json.load(file)


def test_the_rate_of_the_new_file_counts(cluster, tmp_path):
    """Muster issue 49: after `set-lr 0.5` in the old job, a new one from its checkpoint with `lr:
    0.002` trained with 0.5, without a word."""
    first(cluster, tmp_path)
    file = going_on(tmp_path, "second", 12, optimizer={"sgd": {"lr": 0.002}})
    second = finish(cluster, file, "second")
    assert rates(cluster, "second") == {0.002}
    (said,) = texts(second, "SETTING_DIFFERS")
    assert "optimizer.sgd.lr: 0.002 in the job file, 0.5 in the checkpoint" in said
    # The momentum is not in the file.
    assert second["spec"]["optimizer"]["sgd"]["momentum"] == 0.9
    (said,) = texts(second, "SETTING_FROM_CHECKPOINT")
    assert "optimizer.sgd.momentum 0.9" in said
    assert manifest(second)["optimizer"]["groups"] == [
        {"lr": 0.002, "momentum": 0.9, "weight_decay": 0.0, "nesterov": 0.0}
    ]


def test_what_the_new_file_leaves_out_is_that_of_the_old_job(cluster, tmp_path):
    """Muster issue 49: what a file leaves out had its default in the new job, whatever the old one
    had; only the rate and what was frozen followed the old one."""
    first(cluster, tmp_path, clip_grad_norm=0.25, on_nan="skip_step")
    path = going_on(tmp_path, "second", 12, optimizer=None, seed=None, batch={"per_rank": 2})
    second = finish(cluster, path, "second")
    spec = second["spec"]
    assert spec["seed"] == "7" and spec["clip_grad_norm"] == 0.25
    assert spec["on_nan"] == "SKIP_STEP" and spec["batch"]["accumulate"] == 2
    assert spec["optimizer"]["sgd"]["lr"] == 0.5 and rates(cluster, "second") == {0.5}
    frozen = {p["name"] for p in manifest(second)["parameters"] if not p["trainable"]}
    assert frozen == {"transformer.wpe.weight"}
    assert texts(second, "SETTING_FROM_CHECKPOINT") and not texts(second, "SETTING_DIFFERS")


def test_rules_of_the_new_file_replace_what_was_frozen(cluster, tmp_path):
    """Muster issue 49: the live trainable mask counts only where the file has no rules."""
    first(cluster, tmp_path)
    rules = [{"freeze": "*wte*"}]
    path = going_on(tmp_path, "second", 12, trainable={"rules": rules})
    second = finish(cluster, path, "second")
    frozen = {p["name"] for p in manifest(second)["parameters"] if not p["trainable"]}
    assert frozen == {"transformer.wte.weight"}
    (said,) = texts(second, "SETTING_DIFFERS")
    assert '"*wte*" in the job file, "*wpe*" in the checkpoint' in said


def test_weights_and_optimizer_take_no_setting(cluster, tmp_path):
    """Muster issue 49: the other kinds of start have one rule, too: all settings are the file's."""
    first(cluster, tmp_path, clip_grad_norm=0.25)
    for what in ("weights", "weights+optimizer"):
        job = "from-" + what.replace("+", "-")
        path = going_on(tmp_path, job, 4, what=what, optimizer={"sgd": {"lr": 0.002}})
        taken = finish(cluster, path, job)
        assert rates(cluster, job) == {0.002}
        assert "clip_grad_norm" not in taken["spec"]
        assert taken["spec"]["optimizer"]["sgd"]["momentum"] == 0
        assert all(parameter["trainable"] for parameter in manifest(taken)["parameters"])


