"""`muster run`: a private coordinator, of which no process and no file is left."""

import json
import os
import shutil
import signal

import pytest

from tests.process import harness, jobs


def test_run_trains_and_leaves_only_what_was_asked_for(muster):
    job_file = jobs.write_job(muster.folder)
    result = muster.cli("run", job_file)
    muster.assert_no_process(at_once=True)
    assert "20/20" in (result.out + result.err), result.err
    expected = {
        "checkpoints",
        "config.json",
        "job.yaml",
        "model.safetensors",
        "programs.log",
        "train.bin",
    }
    assert set(muster.files(".")) == expected


def test_a_failed_run_is_100(muster):
    job_file = jobs.write_job(muster.folder)
    jobs.write_tokens(muster.folder / "train.bin", 4096, vocabulary=300)
    result = muster.cli("run", job_file, expect=100)
    assert "train.bin" in result.err and "256" in result.err, result.err
    muster.assert_no_process(at_once=True)


@pytest.mark.parametrize("moment", ["at once", "while training"])
def test_ctrl_c_stops_everything(muster, moment):
    job_file = jobs.write_job(muster.folder, stages=[{"fit": {"steps": 1000000}}])
    run = muster.spawn("muster", "run", job_file)
    if moment == "while training":
        harness.eventually(
            lambda: list(muster.folder.glob("checkpoints/*/step-*[0-9]")), "a checkpoint is there"
        )
    else:
        harness.eventually(lambda: muster.processes("musterd"), "run starts its coordinator")
    # To the whole foreground group, as a terminal does.
    os.killpg(run.pid, signal.SIGINT)
    muster.wait(run, expect=130)
    muster.assert_no_process(at_once=True)


def test_a_coordinator_that_cannot_start_its_agent_says_why(muster, tmp_path):
    without_agent = tmp_path / "bin"
    shutil.copytree(
        muster.programs, without_agent, ignore=shutil.ignore_patterns("muster-agent")
    )
    muster.programs = without_agent
    result = muster.cli("run", jobs.write_job(muster.folder), expect=None)
    assert result.code not in (0, 100), result.err
    assert "muster-agent does not exist or cannot be executed" in result.err, result.err
    muster.assert_no_process(at_once=True)


def test_a_second_run_with_the_state_of_a_running_one_leaves_the_first_alone(muster):
    job_file = jobs.write_job(muster.folder, stages=[{"fit": {"steps": 1000000}}])
    state = muster.folder / "run"
    run = muster.spawn("muster", "run", job_file, "--state", state)
    harness.eventually(
        lambda: list(muster.folder.glob("checkpoints/*/step-*[0-9]")), "a checkpoint is there"
    )
    refused = muster.cli("run", job_file, "--state", state, expect=1)
    assert "is in use by another run or musterd" in refused.err, refused.err
    with muster.variables({"MUSTER_ADDRESS": str(state)}):
        listed = json.loads(muster.cli("list", "-o", "json").out)["jobs"]
    assert [(job["state"], job["generation"]) for job in listed] == [("RUNNING", "1")]
    os.killpg(run.pid, signal.SIGINT)
    muster.wait(run, expect=130)
    muster.assert_no_process(at_once=True)


def test_a_job_on_gpus_is_refused_on_a_machine_without(muster):
    job_file = jobs.write_job(muster.folder, device="cuda")
    result = muster.cli("run", job_file, expect=2)
    assert "device: found cuda with world_size 2, which needs as many GPUs" in result.err
    assert "this machine offers 0" in result.err, result.err
    muster.assert_no_process(at_once=True)
