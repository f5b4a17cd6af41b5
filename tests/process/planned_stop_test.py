"""Agents and nodes that are stopped on purpose: no failure of a job, no restart used, and where
there are checkpoints no step computed twice. With real programs; weights are compared to the
bit."""

import shutil
import signal

import pytest

from tests import exports
from tests.process import api, harness
from tests.process.small_job import STEPS, await_node, await_step, get, submit


def weights(muster, job_id):
    return exports.contents(muster.folder / f"{job_id}.safetensors")


def metrics(muster, job_id):
    client = api.Jobs(muster.address)
    steps = [(step.step, step.generation, step.loss) for step in client.metrics(job_id)]
    client.close()
    return steps


def assert_went_on(muster, job_id):
    """Checks that the job succeeded in its second generation, without a restart, with each step
    done once."""
    job = get(muster, job_id)
    assert (job["state"], int(job["generation"]), int(job.get("restarts", 0))) == (
        "SUCCEEDED",
        2,
        0,
    ), job
    assert "failure" not in job, job
    steps = metrics(muster, job_id)
    assert [step for step, _, _ in steps] == list(range(1, STEPS + 1))
    first = [step for step, generation, _ in steps if generation == 1]
    assert first, "nothing was done before"
    # A checkpoint was written where the first generation ended: the second one begins with the next
    # step. What it had computed and not kept would show here as a row of the second generation.
    generations = [int(checkpoint["generation"]) for checkpoint in job["checkpoints"]]
    assert generations == [1, 2], job["checkpoints"]
    assert int(job["checkpoints"][0]["step"]) == first[-1]
    return job


@pytest.fixture(scope="module")
def undisturbed(programs, tmp_path_factory):
    """The weights of the same job, of which nothing was stopped."""
    muster = harness.Muster(programs, tmp_path_factory.mktemp("undisturbed"))
    try:
        muster.musterd(local_slots=2)
        submit(muster, "job")
        muster.cli("wait", "job")
        return weights(muster, "job")
    finally:
        muster.close()


@pytest.fixture
def cluster(muster):
    """musterd without nodes."""
    muster.daemon = muster.musterd()
    yield muster
    muster.stop(*(child for child in muster._children if child.poll() is None))
    muster.assert_no_process()


def test_an_agent_that_is_stopped_has_its_jobs_go_on_elsewhere(cluster, undisturbed):
    former = cluster.agent("a", slots=1)
    await_node(cluster, "a")
    other = cluster.agent("b", slots=1)
    await_node(cluster, "b")
    submit(cluster, "job")
    await_step(cluster, "job", 20)
    third = cluster.agent("c", slots=1)
    await_node(cluster, "c")
    cluster.stop(former)
    cluster.cli("wait", "job")
    job = assert_went_on(cluster, "job")
    assert sorted(rank["node"] for rank in job["ranks"]) == ["b", "c"]
    assert weights(cluster, "job") == undisturbed
    cluster.stop(other, third)


def test_an_agent_that_is_stopped_and_started_again_loses_nothing(cluster, undisturbed):
    agent = cluster.agent("a", slots=2)
    submit(cluster, "job")
    await_step(cluster, "job", 20)
    cluster.stop(agent)
    job = get(cluster, "job")
    assert job["state"] == "RECOVERING" and "failure" not in job, job
    cluster.agent("a", slots=2)
    cluster.cli("wait", "job")
    assert_went_on(cluster, "job")
    assert weights(cluster, "job") == undisturbed


def test_a_halted_job_obeys_and_halts_again_elsewhere(cluster, undisturbed):
    agent = cluster.agent("a", slots=2)
    submit(cluster, "job")
    await_step(cluster, "job", 20)
    cluster.cli("pause", "job", "--wait")
    cluster.stop(agent)
    cluster.agent("b", slots=2)
    harness.eventually(
        lambda: (job := get(cluster, "job"))["state"] == "PAUSED" and int(job["generation"]) == 2,
        "it is halted again",
    )
    cluster.cli("resume", "job")
    cluster.cli("wait", "job")
    assert_went_on(cluster, "job")
    assert weights(cluster, "job") == undisturbed


def test_drain_empties_a_node_and_uncordon_opens_it_again(cluster, undisturbed):
    cluster.agent("a", slots=2)
    submit(cluster, "job")
    await_step(cluster, "job", 20)
    cluster.cli("drain", "a", "--wait")
    await_node(cluster, "a", "DRAINING")
    assert cluster.processes("muster-worker") == []
    job = get(cluster, "job")
    assert job["state"] == "RECOVERING", job
    assert "node 'a' is drained" in job["state_reason"], job
    cluster.cli("uncordon", "a")
    cluster.cli("wait", "job")
    assert_went_on(cluster, "job")
    assert weights(cluster, "job") == undisturbed


def test_drain_names_the_jobs_that_start_from_step_0_and_keeps_its_deadline(cluster, undisturbed):
    cluster.agent("a", slots=2)
    submit(cluster, "job", checkpoint=None)
    await_step(cluster, "job", 20)
    refused = cluster.cli("drain", "a", "--deadline", "0s", expect=None)
    assert refused.code != 0 and "more than 0s" in refused.err, refused
    drained = cluster.cli("drain", "a", "--deadline", "1m", "--wait")
    assert (
        "job job writes no checkpoints: it starts again from step 0 on another node" in drained.err
    ), drained
    events = [event for event in get(cluster, "job")["events"] if event["reason"] == "PREEMPTED"]
    assert len(events) == 1 and "it starts again from step 0" in events[0]["message"], events
    cluster.cli("uncordon", "a")
    cluster.cli("wait", "job")
    assert weights(cluster, "job") == undisturbed


def halt_at_a_directory_that_is_not_there(cluster):
    """Lets a stopped job continue from a missing directory. Returns that directory, and the newest
    checkpoint that counted before."""
    cluster.agent("a", slots=2)
    submit(cluster, "job")
    await_step(cluster, "job", 20)
    cluster.cli("stop", "job", "--wait")
    newest = get(cluster, "job")["checkpoints"][-1]["path"]
    directory = cluster.folder / "copy"
    cluster.cli("resume", "job", "--from", directory)
    job = harness.eventually(
        lambda: (found := get(cluster, "job"))["state"] == "PAUSED" and found,
        "it cannot start there",
    )
    assert job["reason"] == "CHECKPOINTS_UNREADABLE", job
    assert f"`muster resume job --from {newest}`" in job["state_reason"], job
    return directory, newest


def assert_began_where_it_had_stopped(cluster, last, undisturbed):
    steps = metrics(cluster, "job")
    assert [step for step, _, _ in steps] == list(range(1, STEPS + 1))
    assert {generation for _, generation, _ in steps} == {1, last}
    assert weights(cluster, "job") == undisturbed


def test_a_directory_that_is_not_mounted_yet_is_looked_at_again_by_a_plain_resume(
    cluster, undisturbed
):
    directory, newest = halt_at_a_directory_that_is_not_there(cluster)
    shutil.copytree(newest, directory)
    cluster.cli("resume", "job")
    cluster.cli("wait", "job")
    assert_began_where_it_had_stopped(cluster, 3, undisturbed)


def test_after_a_wrong_directory_the_reason_names_how_to_return_to_the_checkpoint_before(
    cluster, undisturbed
):
    _, newest = halt_at_a_directory_that_is_not_there(cluster)
    cluster.cli("resume", "job")
    harness.eventually(
        lambda: (job := get(cluster, "job"))["state"] == "PAUSED" and int(job["generation"]) == 3,
        "it halts again",
    )
    cluster.cli("resume", "job", "--from", newest)
    cluster.cli("wait", "job")
    assert_began_where_it_had_stopped(cluster, 4, undisturbed)


def test_cordon_keeps_what_runs_and_starts_nothing_more(cluster):
    cluster.agent("a", slots=2)
    submit(cluster, "job")
    await_step(cluster, "job", 20)
    cluster.cli("cordon", "a")
    submit(cluster, "other")
    cluster.cli("wait", "job")
    assert int(get(cluster, "job")["generation"]) == 1
    assert get(cluster, "other")["state"] == "QUEUED"
    cluster.cli("uncordon", "a")
    cluster.cli("wait", "other")
    assert cluster.cli("drain", "nowhere", expect=None).code != 0


def test_a_coordinator_that_is_stopped_has_its_own_jobs_save_first(cluster, undisturbed):
    cluster.stop(cluster.daemon)
    daemon = cluster.musterd(local_slots=2)
    submit(cluster, "job")
    await_step(cluster, "job", 20)
    cluster.stop(daemon)
    cluster.assert_no_process(at_once=True)
    cluster.musterd(local_slots=2)
    cluster.cli("wait", "job")
    assert_went_on(cluster, "job")
    assert weights(cluster, "job") == undisturbed


def test_a_killed_agent_gets_its_name_back_at_once_and_another_one_does_not(cluster, undisturbed):
    agent = cluster.agent("a", slots=2)
    submit(cluster, "job")
    await_step(cluster, "job", 20)
    state = cluster.state / "muster"
    arguments = ["--coordinator", cluster.address, "--slots", 2, "--node", "a"]
    # The same state directory is in use; another one is another agent.
    cluster.wait(cluster.spawn("muster-agent", *arguments), expect=1)
    cluster.wait(cluster.spawn("muster-agent", *arguments, "--state", state / "other"), expect=1)
    log = cluster.log(400)
    assert "another agent uses the state directory" in log
    assert "another agent has the name 'a'" in log
    assert int(get(cluster, "job")["generation"]) == 1, "nobody was evicted"
    agent.send_signal(signal.SIGKILL)
    agent.wait()
    cluster.agent("a", slots=2)
    cluster.cli("wait", "job")
    job = get(cluster, "job")
    assert (job["state"], int(job.get("restarts", 0))) == ("SUCCEEDED", 0), job
    assert weights(cluster, "job") == undisturbed


def test_a_stopped_job_goes_on_under_its_id_and_who_waited_keeps_that_answer(cluster, undisturbed):
    cluster.agent("a", slots=2)
    submit(cluster, "job")
    await_step(cluster, "job", 20)
    waiting = cluster.spawn("muster", "wait", "job")
    # The client follows the job once it has connected. The job is paused first, so that this client
    # does not first hear of the end by chance.
    cluster.cli("pause", "job", "--wait")
    cluster.cli("stop", "job", "--wait")
    stopped = get(cluster, "job")
    cluster.cli("resume", "job")
    cluster.wait(waiting, expect=103)
    cluster.cli("wait", "job")
    job = assert_went_on(cluster, "job")
    assert (int(job["attempt"]), len(job["ended_attempts"])) == (2, 1), job
    assert job["ended_attempts"][0]["state"] == "CANCELLED"
    assert job["ended_attempts"][0]["step"] == stopped["step"]
    assert [operation["name"] for operation in job["operations"]] == ["job/1", "job/2", "job/3"]
    assert weights(cluster, "job") == undisturbed
    again = cluster.cli("retry", "job", expect=None)
    assert again.code == 1 and "SUCCEEDED" in again.err, again
