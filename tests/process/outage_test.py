"""musterd is down for longer than a lease, on a host that answers: training continues, and nothing
is lost."""

import select

import pytest

from tests import cases
from tests.process import api, harness, paced_job

# Long enough for a lease of 3 s to be over, three times.
LEASES = 3.3
# Many steps fall into each outage.
PACE_MS = 100


def pause(seconds):
    """Waits for a time that must really pass, because the length of an outage is tested."""
    select.select([], [], [], seconds)


def kill_daemon(daemon):
    harness.kill(daemon.pid)
    daemon.wait(timeout=harness.BOUND)


def start(muster, local):
    daemon = muster.musterd(local_slots=2 if local else None)
    return daemon, [] if local else [muster.agent("node-1"), muster.agent("node-2")]


def steps_of(client):
    return [step.step for step in client.metrics("job")]


@pytest.mark.parametrize("local", [True, False], ids=["local-agent", "two-agents"])
def test_four_outages_of_three_leases_disturb_nobody(muster, local):
    job_file = paced_job.write_job(
        muster.folder,
        PACE_MS,
        stages=[{"fit": {"steps": 100000}}],
        checkpoint={"directory": "checkpoints", "every_steps": 20, "keep": 3},
        export=None,
        restart={"max_restarts": 0},
    )
    daemon, agents = start(muster, local)
    client = api.Jobs(muster.address)
    muster.cli("submit", job_file, "--id", "job")
    lease = float(muster.lease.removesuffix("s"))
    step = 0
    for outage in range(4):
        harness.eventually(
            lambda: client.get("job").step > step,
            f"it trains before outage {outage}\n{muster.log()}",
        )
        workers = muster.processes("muster-worker")
        assert len(workers) == 2
        kill_daemon(daemon)
        pause(LEASES * lease)
        assert muster.processes("muster-worker") == workers, muster.log()
        before = step
        daemon = muster.musterd(local_slots=2 if local else None)
        job = harness.eventually(
            lambda: (now := client.get("job")).state == api.Job.RUNNING
            and now.step > before + 1
            and now,
            f"the job is taken over after outage {outage}\n{muster.log()}",
        )
        assert (job.generation, job.restarts) == (1, 0), job.state_reason
        step = job.step
    muster.cli("stop", "job")
    muster.cli("wait", "job", expect=None)
    job = client.get("job")
    assert job.state == api.Job.CANCELLED
    assert (job.generation, job.restarts) == (1, 0)
    assert steps_of(client) == list(range(1, job.step + 1)), "each step was told, and once"
    assert [checkpoint.step for checkpoint in job.checkpoints][-1] == job.step
    assert muster.files("checkpoints/job") == sorted(
        c.path.rsplit("/", 1)[1] for c in job.checkpoints
    )
    client.close()
    muster.stop(*agents, daemon)


@pytest.mark.parametrize("local, killed", cases.every_value([True, False], ["nobody", "agents"]))
def test_a_job_that_ends_while_musterd_is_away_is_told_of_later(muster, local, killed):
    job_file = paced_job.write_job(
        muster.folder,
        PACE_MS / 5,
        stages=[{"fit": {"steps": 300}}],
        checkpoint={"directory": "checkpoints", "every_steps": 50, "keep": 3},
        export=None,
        restart={"max_restarts": 0},
    )
    daemon, agents = start(muster, local)
    client = api.Jobs(muster.address)
    muster.cli("submit", job_file, "--id", "job")
    step = harness.eventually(lambda: (now := client.get("job").step) >= 5 and now, "it trains")
    kill_daemon(daemon)
    assert step < 200, "most of the job is without musterd"
    harness.eventually(
        lambda: not muster.processes("muster-worker"),
        f"the workers end without musterd\n{muster.log()}",
    )
    if killed == "agents":
        for agent in muster.processes("muster-agent"):
            harness.kill(agent.pid)
        for agent in agents:
            agent.wait(timeout=harness.BOUND)
        if not local:
            agents = [muster.agent("node-1"), muster.agent("node-2")]
    daemon = muster.musterd(local_slots=2 if local else None)
    muster.cli("wait", "job")
    job = client.get("job")
    assert job.state == api.Job.SUCCEEDED
    assert (job.generation, job.restarts, job.step) == (1, 0, 300)
    assert steps_of(client) == list(range(1, 301))
    assert [checkpoint.step for checkpoint in job.checkpoints] == [200, 250, 300]
    assert muster.files("checkpoints/job") == sorted(
        c.path.rsplit("/", 1)[1] for c in job.checkpoints
    )
    client.close()
    muster.stop(*agents, daemon)


def test_without_autonomy_all_end_within_the_lease(muster):
    """A case as with `muster run`, whose coordinator is not started again."""
    # No checkpoints, because no later process would clean up a save that their end interrupted.
    job_file = paced_job.write_job(
        muster.folder,
        PACE_MS,
        stages=[{"fit": {"steps": 100000}}],
        export=None,
        checkpoint=None,
    )
    daemon = muster.musterd(local_slots=2, more=["--autonomy", "0s"])
    client = api.Jobs(muster.address)
    muster.cli("submit", job_file, "--id", "job")
    harness.eventually(lambda: client.get("job").step > 0, "it trains")
    client.close()
    kill_daemon(daemon)
    muster.assert_no_process()
