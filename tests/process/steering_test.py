"""Tests of commands that change a running job while its real programs are killed. Each command
takes effect once, at one step. The weights have the same bits as in a run without kills."""

import pathlib

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.bazel import runfile
from tests import exports
from tests.process import harness, jobs

LAST = 14
FREEZE, UNFREEZE = "transformer.h.0.*", "transformer.h.0.mlp.*"


def write_job(muster, **changes):
    # No export before the end: the job's own name for it.
    return jobs.write_job(
        muster.folder,
        **{
            "stages": [{"fit": {"steps": LAST}}],
            "checkpoint": {"directory": "checkpoints", "every_steps": 5},
        }
        | changes,
    )


def queue(muster, job_id, commands, **changes):
    """Submits the job while there is no slot for it, and requests changes at given steps, so that
    the commands arrive before these steps."""
    muster.cli(
        "submit",
        write_job(muster, export={"path": f"{job_id}.safetensors"}, **changes),
        "--id",
        job_id,
    )
    names = [
        muster.cli(command, job_id, *arguments, "--at-step", step, "-o", "json").json()["name"]
        for command, step, *arguments in commands
    ]
    assert names == [f"{job_id}/{number}" for number in range(1, len(commands) + 1)]


COMMANDS = [("freeze", 6, FREEZE), ("set-lr", 7, "0.002"), ("unfreeze", 11, UNFREEZE)]


def weights(muster, job_id):
    return exports.contents(muster.folder / f"{job_id}.safetensors")


def operation(muster, name):
    return muster.cli("operation", name, "-o", "json").json()


def applied(muster, name):
    return harness.eventually(
        lambda: (found := operation(muster, name)).get("applied_at_step") is not None and found,
        f"{name} takes effect",
    )


def state(muster, job_id):
    return muster.cli("get", job_id, "-o", "json").json()["state"]


def await_state(muster, job_id, wanted):
    harness.eventually(lambda: state(muster, job_id) == wanted, f"{job_id} is {wanted}")


def kill_a_worker(muster):
    harness.kill(muster.processes("muster-worker")[-1].pid)


@pytest.fixture
def cluster(muster):
    muster.musterd()
    yield muster
    muster.stop(*(child for child in muster._children if child.poll() is None))
    muster.assert_no_process()


def undisturbed(muster, strategy):
    queue(muster, "calm", COMMANDS, strategy=strategy)
    muster.agent("node", slots=2)
    muster.cli("wait", "calm")
    return weights(muster, "calm")


@pytest.mark.parametrize("strategy", ["ddp", "sharded_ddp", "fsdp"])
def test_kills_between_commands_change_nothing(cluster, strategy):
    muster = cluster
    expected = undisturbed(muster, {strategy: {}})

    # Halted after step 8, three steps after the checkpoint of step 5: the freeze has taken effect,
    # and the rollback undoes it.
    queue(muster, "job", COMMANDS + [("pause", 8)], strategy={strategy: {}})
    await_state(muster, "job", "PAUSED")
    frozen = operation(muster, "job/1")
    assert frozen["applied_at_step"] == "6" and frozen["done"], frozen
    kill_a_worker(muster)
    harness.eventually(
        lambda: (job := muster.cli("get", "job", "-o", "json").json())["generation"] == "2"
        and job["state"] == "PAUSED",
        "it is halted again",
    )
    # The coordinator dies between the acceptance of a command and its acknowledgement.
    muster.cli("checkpoint", "job", "--at-step", "9")
    daemon = muster.processes("musterd")[0]
    harness.kill(daemon.pid)
    muster._children[0].wait(timeout=harness.BOUND)
    muster.musterd()
    muster.cli("resume", "job", "--wait")
    muster.cli("wait", "job")

    assert weights(muster, "job") == expected
    done = {
        op["name"]: op for op in muster.cli("operations", "job", "-o", "json").json()["operations"]
    }
    steps = {name: op.get("applied_at_step") for name, op in done.items()}
    assert [steps[f"job/{n}"] for n in (1, 2, 3, 4)] == ["6", "7", "11", "8"], steps
    assert (
        done["job/5"]["kind"] == "SAVE_CHECKPOINT"
        and "step-9-" in done["job/5"]["result"]["checkpoint"]["path"]
    )
    assert all(op["done"] and "error" not in op for op in done.values()), done
    job = muster.cli("get", "job", "-o", "json").json()
    assert job["restarts"] == 1
    history = job["trainability"]["history"]
    assert [(change["version"], change["step"]) for change in history] == [("2", "6"), ("3", "11")]
    assert all("@" in change["requested_by"] for change in history)
    assert history[0]["frozen_count"] == "12" and history[1]["unfrozen_count"] == "4"


def test_what_is_asked_of_a_job(cluster):
    muster = cluster
    muster.agent("node", slots=2)
    muster.cli("submit", write_job(muster, stages=[{"fit": {"steps": 100000}}]), "--id", "job")
    await_state(muster, "job", "RUNNING")

    refused = muster.cli("freeze", "job", "transfomer.h.0.*", expect=2)
    assert (
        "no parameter has a name that matches 'transfomer.h.0.*'; did you mean 'transformer.h.0.*'?"
        in refused.err
    )
    plan = muster.cli("freeze", "job", FREEZE, "--dry-run", "-o", "json").json()["result"][
        "trainability_plan"
    ]
    assert plan["change"]["frozen_count"] == "12" and len(plan["ranks"]) == 2
    assert int(plan["ranks"][0]["state_bytes"]) < int(plan["ranks"][0]["state_bytes_before"])
    before = muster.cli("get", "job", "-o", "json").json()["trainability"]
    assert before["version"] == "1" and before["frozen_params"] == "0"
    frozen = muster.cli("freeze", "job", FREEZE, "--wait", "-o", "json").json()
    assert (
        frozen["result"]["trainability"]["trainable_params"] == plan["change"]["trainable_params"]
    )
    text = muster.cli("trainability", "job").out
    assert "freeze transformer.h.0.*" in text and "froze 12 parameters" in text

    late = muster.cli("freeze", "job", "*", "--at-step", "99999", "-o", "json").json()["name"]
    assert "before it took effect" in muster.cli("operation", late, "--cancel", "--wait").out
    muster.cli("operation", frozen["name"], "--cancel", expect=1)

    muster.cli("pause", "job", "--wait")
    await_state(muster, "job", "PAUSED")
    muster.cli("pause", "job", expect=1)
    saved = muster.cli("checkpoint", "job", "--wait", "-o", "json").json()
    assert pathlib.Path(saved["result"]["checkpoint"]["path"]).is_dir()
    rate = muster.cli("set-lr", "job", "0.5", "--wait", "-o", "json").json()["result"][
        "learning_rate"
    ]
    assert rate["new_rate"] == 0.5
    assert "expected a finite number" in muster.cli("set-lr", "job", "nan", expect=2).err
    muster.cli("resume", "job", "--wait")
    muster.cli("resume", "job", expect=1)

    # The command takes effect long after the job has been stopped.
    never = muster.cli("unfreeze", "job", "*", "--at-step", "99999", "-o", "json").json()["name"]
    now = int(muster.cli("get", "job", "-o", "json").json()["step"])
    muster.cli("stop", "job", "--at-step", now + 40)
    muster.cli("wait", "job", expect=103)
    ended = muster.cli("get", "job", "-o", "json").json()
    assert ended["state"] == "CANCELLED" and int(ended["step"]) >= now
    error = operation(muster, never)["error"]
    assert (error["code"], error["reason"]) == ("FAILED_PRECONDITION", "JOB_ENDED")
    assert "CANCELLED" in error["message"]
    muster.cli("freeze", "job", "*", expect=1)
    muster.cli("operation", "job/999", expect=102)
    muster.cli("operation", "nonsense", expect=2)


def test_the_optimizers_state_in_python(cluster):
    muster = cluster
    muster.agent("node", slots=2)
    job_file = write_job(
        muster, stages=[{"fit": {"steps": 100000}}], strategy={"fsdp": {}}, export=None
    )
    muster.cli("submit", job_file, "--id", "job")
    await_state(muster, "job", "RUNNING")
    muster.cli("pause", "job", "--wait")
    path = muster.folder / "new/state.pt"
    gather = ("gather-optimizer-state", "job", "--out", path, "--wait", "-o", "json")
    done = muster.cli(*gather).json()
    result = done["result"]["gathered_optimizer_state"]
    assert result["path"] == str(path) and int(result["bytes"]) == path.stat().st_size
    assert result["step"] == done["applied_at_step"]
    state = torch.load(path, weights_only=True)
    assert state["state"][0]["step"].item() == int(result["step"])
    names = state["param_groups"][0]["param_names"]
    assert len(state["state"]) == len(names)

    again = muster.cli(*gather, expect=1).json()
    assert again["error"]["code"] == "ALREADY_EXISTS"
    assert "there is such a file" in again["error"]["message"]
    muster.cli(*gather, "--overwrite", "--key", "name")
    assert list(torch.load(path, weights_only=True)["state"]) == names
    assert [found.name for found in path.parent.iterdir()] == [path.name]

    # Killed while the operation is under way or before: the next generation carries it out.
    other = muster.folder / "new/other.pt"
    left = muster.cli("gather-optimizer-state", "job", "--out", other, "-o", "json").json()
    kill_a_worker(muster)
    harness.eventually(lambda: operation(muster, left["name"])["done"], "it is done")
    assert "error" not in operation(muster, left["name"])
    assert torch.load(other, weights_only=True)["state"]
    assert sorted(found.name for found in path.parent.iterdir()) == ["other.pt", "state.pt"]
    refused = muster.cli("gather-optimizer-state", "job", "--out", "/", expect=2).err
    assert "expected the absolute path of a file" in refused
    muster.cli("stop", "job", "--wait")


def test_the_model_as_a_folder(cluster):
    """While the job runs, and from its checkpoint when it has ended."""
    muster = cluster
    muster.agent("node", slots=2)
    job_file = write_job(
        muster, stages=[{"fit": {"steps": 100000}}], strategy={"fsdp": {}}, export=None
    )
    muster.cli("submit", job_file, "--id", "job")
    await_state(muster, "job", "RUNNING")
    folder = muster.folder / "new/model"
    command = ("consolidate", "job", "--out", folder)
    done = muster.cli(*command, "--wait", "-o", "json").json()
    model = done["result"]["consolidated_model"]
    assert model["path"] == str(folder) and model["step"] == done["applied_at_step"]
    assert sorted(model["files"]) == ["config.json", "model.safetensors"]
    assert int(model["bytes"]) == (folder / "model.safetensors").stat().st_size
    assert len(load_file(folder / "model.safetensors")) > 10
    again = muster.cli(*command, "--wait", expect=1).out
    assert "the folder exists and is not empty" in again
    text = muster.cli(*command, "--overwrite", "--dtype", "bfloat16", "--wait").out
    assert "in 2 files" in text and "training waited" in text
    tensors = load_file(folder / "model.safetensors")
    assert {tensor.dtype for tensor in tensors.values()} == {torch.bfloat16}
    assert [found.name for found in folder.parent.iterdir()] == ["model"]

    # Killed while the operation is under way or before: the next generation carries it out.
    other = muster.folder / "new/other"
    left = muster.cli("consolidate", "job", "--out", other, "-o", "json").json()
    kill_a_worker(muster)
    harness.eventually(lambda: operation(muster, left["name"])["done"], "it is done")
    assert "error" not in operation(muster, left["name"])
    assert sorted(found.name for found in other.parent.iterdir()) == ["model", "other"]
    # A kill after the end of the operation may come before the next generation has begun. Until
    # then files of the killed generation may stay.
    harness.eventually(
        lambda: (job := muster.cli("get", "job", "-o", "json").json())["generation"] == "2"
        and job["state"] == "RUNNING",
        "the next generation trains",
    )

    assert "absolute path" in muster.cli("consolidate", "job", "--out", "/", expect=2).err
    muster.cli("stop", "job", "--wait")
    muster.cli("wait", "job", expect=103)
    late = muster.cli("consolidate", "job", "--out", muster.folder / "late", expect=1).err
    checkpoint = late.split("`muster consolidate ")[1].split(" --out")[0]
    muster.cli("consolidate", checkpoint, "--out", muster.folder / "late")
    assert (muster.folder / "late/model.safetensors").exists()
    wrong = muster.cli("consolidate", checkpoint, "--out", "x", "--hold", expect=2).err
    assert "--hold and --wait are for a running job" in wrong


def test_masks_that_differ_end_the_job_by_name(cluster):
    """The plug-in's step hook freezes its weight on one rank only, before step 3."""
    muster = cluster
    save_file(
        {"inputs": torch.randn(24, 3), "labels": torch.arange(24) % 2},
        muster.folder / "rows.safetensors",
    )
    options = {"fault": "steers-one-rank", "path": str(muster.folder / "first")}
    job_file = write_job(
        muster,
        model={
            "plugin": {
                "path": str(runfile("worker/models/plugin/plugin_faults.so")),
                "name": "faulty",
                "options": options,
            }
        },
        data={"train": {"safetensors": {"path": "rows.safetensors"}}},
        checkpoint=None,
    )
    muster.agent("node", slots=2)
    muster.cli("submit", job_file, "--id", "job")
    muster.cli("wait", "job", expect=100)
    job = muster.cli("get", "job", "-o", "json").json()
    assert job["restarts"] == 0
    assert (
        "roll call of step 3: the ranks differ in which parameters are trained: 'weight' was "
        "frozen or unfrozen on rank" in (job["failure"]["reason"])
    )
