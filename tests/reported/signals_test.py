"""Signals from schedulers, service managers, containers and terminals: a checkpoint first, then the
end; and the same command goes on."""

import json
import os
import shlex
import signal
import subprocess

import pytest

from tests.process import disks, harness, jobs, paced_job

PACE_MS = 250
# More than any test waits for.
ENDLESS = [{"fit": {"steps": 1_000_000}}]


def write_job(muster, **changes):
    """A job that saves only when it is told to, or at its end."""
    checkpoint = {"directory": "checkpoints", "every_steps": 1_000_000, "keep": 3}
    given = {"world_size": 1, "stages": ENDLESS, "checkpoint": checkpoint}
    given |= {"export": None, "schedule": None}
    return paced_job.write_job(muster.folder, PACE_MS, **(given | changes))


def start(muster, *arguments, **options):
    return muster.spawn("muster", "run", *arguments, **options)


def private_state(muster):
    """The directory of the coordinator that a run without --state has made."""
    return harness.eventually(
        lambda: next(muster.temporary.glob("**/muster-run-*"), None), "run makes its directory"
    )


def newest_job(muster, state):
    listed = muster.cli("list", "-o", "json", "--address", state, expect=None)
    found = json.loads(listed.out).get("jobs", []) if listed.code == 0 else []
    return found[0] if found else {}


def await_step(muster, state, step=1):
    def reached():
        job = newest_job(muster, state)
        return int(job.get("step", 0)) >= step and job["state"] == "RUNNING" and job

    return harness.eventually(reached, f"step {step} is done")


def checkpoints(muster):
    """The steps of all whole checkpoints."""
    names = [path.name for path in muster.folder.glob("checkpoints/*/step-*")]
    return sorted(int(name.split("-")[1]) for name in names if not name.endswith(".tmp"))


def signal_all(muster, number, *first):
    """To every process of the run, as a control group's or a container's stop: to these programs
    first, then to the others."""
    processes = muster.processes()
    assert {"muster", "musterd", "muster-agent", "muster-worker"} <= {p.program for p in processes}
    for process in sorted(processes, key=lambda process: process.program not in first):
        harness.kill(process.pid, number)


def end(child, code):
    """The standard error of a child that ends with this exit code."""
    _, err = child.communicate(timeout=harness.BOUND)
    assert child.returncode == code, err
    return err


@pytest.mark.parametrize("first", ["muster", "muster-worker"])
def test_sigterm_to_every_process_saves_and_the_last_line_is_the_command_that_goes_on(
    muster, first
):
    """scancel, systemd's control groups, `docker stop`: the workers died at once, and the job was
    "CANCELLED: stopped as asked" without a checkpoint. Muster issue 49."""
    run = start(muster, write_job(muster, world_size=2), stderr=subprocess.PIPE, text=True)
    await_step(muster, private_state(muster))
    signal_all(muster, signal.SIGTERM, first)
    err = end(run, 105)
    muster.assert_no_process(at_once=True)
    [step] = checkpoints(muster)
    assert step >= 1
    command = err.splitlines()[-1]
    more = ["--set", f"stages[0].fit.steps={step + 2}", "-o", "json"]
    done = subprocess.run(
        [*shlex.split(command), *more],
        capture_output=True,
        text=True,
        cwd=muster.folder,
        env=muster.environment(),
        timeout=harness.BOUND,
    )
    assert done.returncode == 0, done.stderr
    job = json.loads(done.stdout)
    assert (job["step"], job["spec"]["start"]["what"]) == (str(step + 2), "EVERYTHING"), job
    assert f"/step-{step}-g1" in job["spec"]["start"]["checkpoint"], job


def test_a_batch_script_that_is_started_again_goes_on_with_its_job(muster):
    """A scheduler's warning signal (SIGUSR1), its SIGTERM, a terminal that is closed: each began
    the job again at step 0. Muster issue 49."""
    state = muster.folder / "state"
    command = [write_job(muster), "--state", state]
    ids, reached = set(), 0
    for number in (signal.SIGUSR1, signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
        run = start(muster, *command, stderr=subprocess.PIPE, text=True)
        job = await_step(muster, state, reached + 1)
        assert int(job.get("restarts", 0)) == 0, job
        ids.add(job["id"])
        run.send_signal(number)
        err = end(run, 130 if number == signal.SIGINT else 105)
        muster.assert_no_process(at_once=True)
        assert reached == 0 or f"it had reached step {reached}\n" in err, err
        reached = checkpoints(muster)[-1]
    assert len(ids) == 1
    assert [event["reason"] for event in job["events"]].count("PREEMPTED") == 3, job["events"]
    # Ctrl-C has stopped it: the next job of this file is a new one.
    run = start(muster, *command, stderr=subprocess.PIPE, text=True)
    job = harness.eventually(
        lambda: (job := newest_job(muster, state)) and job["id"] not in ids and job,
        "another job begins",
    )
    assert job["job_file"] == str(command[0]), job
    run.send_signal(signal.SIGTERM)
    end(run, 105)


def test_the_same_command_refuses_a_changed_file_and_new_begins_another_job(muster):
    """Muster issue 49."""
    state = muster.folder / "state"
    job = write_job(muster)
    run = start(muster, job, "--state", state, stderr=subprocess.PIPE, text=True)
    await_step(muster, state)
    run.send_signal(signal.SIGUSR2)
    end(run, 105)
    job = write_job(muster, stages=[{"fit": {"steps": 1}}])
    refused = muster.cli("run", job, "--state", state, expect=2)
    assert "stages[0].fit.steps: 1000000 -> 1" in refused.err and "--new" in refused.err, refused
    done = muster.cli("run", job, "--state", state, "--new", "-o", "json").json()
    assert (done["state"], done["step"]) == ("SUCCEEDED", "1"), done


def test_the_same_command_after_a_time_limit_begins_the_next_attempt(muster):
    """Muster issue 49."""
    state = muster.folder / "state"
    # Without checkpoints: a worker that is killed while it claims their folder leaves a file.
    command = [write_job(muster, time_limit="2s", checkpoint=None), "--state", state]
    late = muster.cli("run", *command, expect=100)
    assert "time_limit" in late.err, late.err
    run = start(muster, *command, stderr=subprocess.PIPE, text=True)
    job = harness.eventually(
        lambda: (job := newest_job(muster, state)).get("attempt", 1) == 2 and job,
        "the next attempt begins",
    )
    run.send_signal(signal.SIGINT)
    err = end(run, 130)
    assert f"job {job['id']}: it has run for its time_limit, 2s; attempt 2" in err, err


def test_the_same_command_after_a_failure_names_the_command_that_retries(muster):
    """Muster issue 49."""
    state = muster.folder / "state"
    job = jobs.write_job(muster.folder, world_size=1)
    jobs.write_tokens(muster.folder / "train.bin", 4096, vocabulary=300)
    muster.cli("run", job, "--state", state, expect=100)
    again = muster.cli("run", job, "--state", state, expect=100)
    assert f"run {job} --state {state} --retry" in again.err, again.err
    jobs.write_tokens(muster.folder / "train.bin", 4096)
    done = muster.cli("run", job, "--state", state, "--retry", "-o", "json").json()
    assert (done["state"], done["attempt"]) == ("SUCCEEDED", 2), done


def test_sigquit_is_a_second_ctrl_c(muster):
    """Muster issue 49."""
    # Without checkpoints: one that is being written would be left behind.
    run = start(muster, write_job(muster, checkpoint=None))
    await_step(muster, private_state(muster))
    run.send_signal(signal.SIGQUIT)
    muster.wait(run, expect=130)
    muster.assert_no_process(at_once=True)


def test_under_nohup_a_closed_terminal_disturbs_nobody(muster):
    """Muster issue 49."""
    run = start(muster, write_job(muster), prefix=["nohup"])
    state = private_state(muster)
    step = int(await_step(muster, state)["step"])
    signal_all(muster, signal.SIGHUP)
    await_step(muster, state, step + 2)
    run.send_signal(signal.SIGTERM)
    muster.wait(run, expect=105)


@pytest.mark.parametrize("number, code", [(signal.SIGTERM, 105), (signal.SIGINT, 130)])
def test_a_full_disk_of_the_state_does_not_keep_a_run_from_saving(muster, number, code):
    """The stop had no effect: "ended without waiting", without a checkpoint. Muster issue 49."""
    folder = muster.runtime / "disk"
    try:
        disk = disks.Disk(folder, "24m")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no tmpfs can be mounted here: {error.stderr.decode().strip()}")
    try:
        with muster.variables({"TMPDIR": str(folder)}):
            run = start(muster, write_job(muster), stderr=subprocess.PIPE, text=True)
        state = harness.eventually(
            lambda: next(folder.glob("muster-run-*"), None), "run makes its directory"
        )
        await_step(muster, state)
        disk.fill()

        def trouble():
            nodes = muster.cli("nodes", "-o", "json", "--address", state).json()
            return "full" in nodes.get("store_trouble", {}).get("message", "")

        harness.eventually(trouble, "the coordinator cannot write its store")
        assert checkpoints(muster) == []
        run.send_signal(number)
        err = end(run, code)
        [step] = checkpoints(muster)
        assert f"step-{step}-g1" in err.splitlines()[-1], err
        muster.assert_no_process(at_once=True)
        disk.free()
    finally:
        disk.unmount()


def test_sigterm_to_a_whole_service_has_its_job_save_first(muster):
    """systemd's default KillMode sends SIGTERM to musterd, its agent and the workers at once: the
    workers died. Muster issue 49."""
    daemon = muster.musterd(local_slots=1)
    muster.cli("submit", write_job(muster), "--id", "job")
    await_step(muster, muster.address)
    for process in muster.processes():
        os.kill(process.pid, signal.SIGTERM)
    muster.wait(daemon)
    muster.assert_no_process()
    [step] = checkpoints(muster)
    daemon = muster.musterd(local_slots=1)
    job = await_step(muster, muster.address, step + 1)
    assert (job.get("restarts", 0), checkpoints(muster)) == (0, [step]), job
    muster.cli("stop", "job", "--wait")
    muster.stop(daemon)
