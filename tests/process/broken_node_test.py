"""Nodes that cannot start workers, and a slot whose process cannot be killed: no job uses a
restart. With real programs."""

import pathlib
import signal
import subprocess

import pytest

from tests.process.small_job import await_node, get, submit


@pytest.fixture
def cluster(muster):
    """musterd without nodes."""
    muster.daemon = muster.musterd()
    yield muster
    muster.stop(*(child for child in muster._children if child.poll() is None))
    muster.assert_no_process()


def test_a_node_whose_worker_program_is_missing_costs_no_restart(cluster):
    programs = cluster.folder / "broken"
    programs.mkdir()
    worker = programs / "muster-worker"
    worker.write_text("#!/bin/sh\nexit 0\n")
    worker.chmod(0o755)
    arguments = [
        "--coordinator",
        cluster.address,
        "--node",
        "bad",
        "--slots",
        4,
        "--worker",
        worker,
    ]
    cluster.spawn("muster-agent", *arguments)
    await_node(cluster, "bad")
    # A script whose interpreter is missing cannot be started.
    worker.write_text("#!/no/such/interpreter\n")
    cluster.agent("good", slots=2)
    await_node(cluster, "good")
    submit(cluster, "job")
    cluster.cli("wait", "job")
    job = get(cluster, "job")
    assert (job["state"], int(job.get("restarts", 0))) == ("SUCCEEDED", 0), job
    assert {rank["node"] for rank in job["ranks"]} == {"good"}
    assert int(job["generation"]) <= 3, job


def test_a_worker_of_another_version_than_its_agent_ends_and_says_so(cluster):
    worker = cluster.folder / "muster-worker"
    worker.write_text(
        f"#!/bin/sh\nMUSTER_AGENT_VERSION=0.0.1 exec {cluster.programs / 'muster-worker'} \"$@\"\n"
    )
    worker.chmod(0o755)
    arguments = ["--coordinator", cluster.address, "--node", "bad", "--slots", 2]
    cluster.spawn("muster-agent", *arguments, "--worker", worker)
    submit(cluster, "job")
    await_node(cluster, "bad", "LEFT_OUT")
    job = get(cluster, "job")
    assert (job["state"], int(job.get("restarts", 0))) == ("FAILED", 0)
    logs = cluster.cli("logs", "job").out
    assert "the muster-agent that has started it is of version 0.0.1" in logs, logs


def test_where_no_worker_starts_the_job_fails_and_says_why(cluster):
    worker = cluster.folder / "muster-worker"
    worker.write_text("#!/bin/sh\nexit 7\n")
    worker.chmod(0o755)
    cluster.spawn(
        "muster-agent",
        "--coordinator",
        cluster.address,
        "--node",
        "bad",
        "--slots",
        2,
        "--worker",
        worker,
    )
    submit(cluster, "job")
    await_node(cluster, "bad", "LEFT_OUT")
    job = get(cluster, "job")
    assert (job["state"], int(job.get("restarts", 0)), int(job["generation"])) == (
        "FAILED",
        0,
        3,
    ), job
    assert (
        "exited with code 7, before it attached to the coordinator"
        in job["state_reason"]
    ), job


def test_a_restarted_agent_keeps_the_slot_of_a_process_that_cannot_be_killed_out_of_use(cluster):
    # No process can be made to hang in the kernel here. This one is left alone, and noted as the
    # former agent would have done it.
    hanging = subprocess.Popen(["sleep", "1000"])
    stat = pathlib.Path(f"/proc/{hanging.pid}/stat").read_text()
    start_time = stat[stat.rindex(")") + 2 :].split()[19]
    state = cluster.folder / "agent-state"
    state.mkdir()
    note = state / "quarantine"
    fields = [1, hanging.pid, start_time, 3, 0, "incarnation", "former"]
    note.write_text("\t".join(map(str, fields)) + "\ndamaged\n")
    arguments = ["--coordinator", cluster.address, "--slots", 2, "--node", "a", "--state", state]

    def quarantined():
        nodes = cluster.cli("nodes", "-o", "json").json().get("nodes", [])
        return sum(int(node.get("slots_quarantined", 0)) for node in nodes if node["name"] == "a")

    try:
        for _ in range(2):
            agent = cluster.spawn("muster-agent", *arguments)
            await_node(cluster, "a")
            assert quarantined() == 1
            agent.send_signal(signal.SIGKILL)
            agent.wait()
        cluster.spawn("muster-agent", *arguments)
        await_node(cluster, "a")
        # It has two ranks.
        submit(cluster, "job")
        job = get(cluster, "job")
        assert job["state"] == "QUEUED" and int(job.get("generation", 0)) == 0, job
        # The process is a zombie until this test waits for its end.
        hanging.kill()
        cluster.cli("wait", "job")
        assert get(cluster, "job")["state"] == "SUCCEEDED"
        assert quarantined() == 0 and not note.exists()
    finally:
        hanging.kill()
        hanging.wait()
