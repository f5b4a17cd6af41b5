"""Jobs that would wait for ever: each of them ends by name, or says what it waits for and what to
do."""

import os
import pty
import resource
import select
import shutil
import subprocess

import pytest

from tests.process import harness, jobs, paced_job
from tests.process.remote_host import RemoteHost, available
from tests.process.small_job import await_node, get, submit

needs_network = pytest.mark.skipif(
    not available(), reason="network namespaces need root and iproute2"
)


@pytest.fixture
def cluster(muster):
    """Processes that a test has started are stopped after the test."""
    yield muster
    muster.stop(*(child for child in muster._children if child.poll() is None))
    muster.assert_no_process()


def with_worker(muster, script):
    """A folder with the programs, in which muster-worker is this shell script."""
    folder = muster.folder / "programs"
    folder.mkdir()
    # Each finds the others beside itself, where a link leads.
    for program in ("muster", "musterd", "muster-agent"):
        shutil.copy(muster.programs / program, folder)
    worker = folder / "muster-worker"
    worker.write_text(f"#!/bin/sh\n{script}\n")
    worker.chmod(0o755)
    return worker


def run(muster, *arguments, expect, programs=None):
    programs = programs or muster.programs
    with muster.variables({"MUSTER_BIN_DIR": str(programs)}):
        done = subprocess.run(
            [str(programs / "muster"), "run", *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=harness.BOUND,
            cwd=muster.folder,
            env=muster.environment(),
        )
    assert done.returncode == expect, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stderr


# ---- Workers that do not start


def test_a_worker_that_lacks_a_library_ends_the_run_with_its_last_lines(muster):
    """Muster issue 49: generation 9 after five minutes, for ever, 0 restarts used."""
    lines = "echo 'libtorch.so: cannot open shared object file' >&2; exit 127"
    worker = with_worker(muster, lines)
    said = run(muster, jobs.write_job(muster.folder), expect=100, programs=worker.parent)
    assert "libtorch.so: cannot open shared object file" in said, said
    assert "generation 3" in said and "generation 4" not in said, said


def test_where_another_node_starts_workers_the_job_does_not_fail(cluster):
    """Muster issue 49: only where no other node could do better."""
    cluster.musterd()
    worker = with_worker(cluster, "exit 7")
    # This node has more room, so the job tries it first.
    cluster.spawn(
        *("muster-agent", "--coordinator", cluster.address, "--node", "bad"),
        *("--slots", 4, "--worker", worker),
    )
    await_node(cluster, "bad")
    cluster.agent("good", slots=2)
    await_node(cluster, "good")
    submit(cluster, "job", stages=[{"fit": {"steps": 3}}], schedule=None)
    cluster.cli("wait", "job")
    assert int(get(cluster, "job")["generation"]) > 1, "the bad node was never tried"


def test_a_cluster_without_a_node_that_starts_the_worker_fails_the_job(cluster):
    """Muster issue 49: RECOVERING for ever."""
    cluster.musterd()
    worker = with_worker(cluster, "exit 7")
    cluster.spawn(
        *("muster-agent", "--coordinator", cluster.address, "--node", "bad"),
        *("--slots", 2, "--worker", worker),
    )
    submit(cluster, "job")
    assert cluster.cli("wait", "job", expect=None).code == 100
    job = get(cluster, "job")
    assert (job["reason"], int(job.get("restarts", 0))) == ("WORKER_DID_NOT_START", 0), job


# ---- A run waits for nobody


def halted(cluster, pace_ms=10):
    """A run that was killed, and whose checkpoints are gone."""
    steps = [{"fit": {"steps": 30}}]
    checkpoint = {"directory": "checkpoints", "every_steps": 5}
    job = paced_job.write_job(
        cluster.folder, pace_ms, world_size=1, stages=steps, checkpoint=checkpoint
    )
    child = cluster.spawn("muster", "run", "--state", cluster.folder / "kept", job)
    checkpoints = cluster.folder / "checkpoints"
    # Checkpoints that only lie in the folder do not count: a job without a checkpoint starts anew.
    harness.eventually(lambda: "step 5: checkpoint" in cluster.log(), "a checkpoint counts")
    for process in cluster.processes():
        harness.kill(process.pid)
    child.wait(timeout=harness.BOUND)
    cluster.assert_no_process()
    shutil.rmtree(checkpoints)
    return job


def test_a_run_whose_checkpoints_are_gone_ends_by_name_without_a_terminal(muster):
    """Muster issue 49: PAUSED for ever."""
    job = halted(muster)
    said = run(muster, "--state", "kept", job, expect=1)
    assert "none of the job's checkpoints can be read" in said, said
    assert "--from-scratch" in said, said
    said = run(muster, "--state", "kept", "--from-scratch", job, expect=0)
    assert "starts again from step 0" in said, said


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_a_run_whose_checkpoints_are_gone_asks_on_a_terminal(cluster, term):
    """Muster issue 49: PAUSED for ever. A terminal that cannot erase has a person, too."""
    job = halted(cluster)
    near, far = pty.openpty()
    try:
        child = subprocess.Popen(
            [str(cluster.programs / "muster"), "run", "--state", "kept", str(job)],
            stdin=far,
            stdout=far,
            stderr=far,
            cwd=cluster.folder,
            env=cluster.environment() | {"TERM": term},
            start_new_session=True,
        )
        text = b""
        while b"start again from step 0 (s)" not in text:
            assert select.select([near], [], [], harness.BOUND)[0], text.decode()
            text += os.read(near, 4096)
        os.write(near, b"s\n")
        while child.poll() is None:
            if select.select([near], [], [], 0.01)[0]:
                text += os.read(near, 4096)
        assert child.returncode == 0, text
    finally:
        os.close(near)
        os.close(far)
    cluster.assert_no_process()


# ---- Ranks that do not reach each other


@pytest.fixture
def remote_host():
    remote_host = RemoteHost()
    yield remote_host
    remote_host.close()


def reason_of(cluster, word):
    def found():
        job = get(cluster, "job")
        return word in job.get("state_reason", "") and job

    return harness.eventually(found, f"the job's reason says {word}")


def two_hosts(cluster, remote_host, *more_far, near=("--host", "{near}")):
    """musterd and node a here, node b on another host."""
    cluster.musterd(listen=f"{remote_host.near}:0")
    near = [word.format(near=remote_host.near) for word in near]
    for node, prefix, more in (
        ("a", (), near),
        ("b", ("ip", "netns", "exec", remote_host.name), more_far),
    ):
        cluster.spawn(
            *("muster-agent", "--coordinator", cluster.address, "--node", node),
            *("--slots", 1, *more),
            prefix=prefix,
        )
        await_node(cluster, node)


@needs_network
def test_two_hosts_without_host_say_the_rank_its_address_and_the_remedy(cluster, remote_host):
    """Muster issue 49: STARTING, "0 of 2 ranks are ready", for ever, no reason."""
    two_hosts(cluster, remote_host, near=())
    submit(cluster, "job")
    job = reason_of(cluster, "muster-agent --host ADDRESS")
    assert job["state"] == "STARTING" and job["reason"] == "RANKS_CANNOT_MEET", job
    assert "cannot reach rank 0 at 127.0.0.1:" in job["state_reason"], job
    assert "cannot reach rank 0 at 127.0.0.1:" in cluster.log(lines=200)
    cluster.cli("stop", "job", "--wait", expect=None)


@needs_network
def test_one_host_without_host_is_found_in_the_connections_between_the_ranks(cluster, remote_host):
    """Muster issue 49: the store is reached, and Gloo is not."""
    two_hosts(cluster, remote_host)
    submit(cluster, "job")
    job = reason_of(cluster, "muster-agent --host ADDRESS")
    assert "cannot reach rank 1 at 127.0.0.1:" in job["state_reason"], job
    cluster.cli("stop", "job", "--wait", expect=None)


@needs_network
def test_loopback_that_is_down_is_named(cluster, remote_host):
    """Muster issue 49: STARTING for ever."""
    subprocess.run(["ip", "-n", remote_host.name, "link", "set", "lo", "down"], check=True)
    cluster.musterd(listen=f"{remote_host.near}:0")
    cluster.spawn(
        *("muster-agent", "--coordinator", cluster.address, "--node", "b", "--slots", 2),
        prefix=("ip", "netns", "exec", remote_host.name),
    )
    submit(cluster, "job")
    assert cluster.cli("wait", "job", expect=None).code == 100
    job = get(cluster, "job")
    assert int(job["generation"]) == 1, "another start does not help"
    assert "127.0.0.1" in job["state_reason"] and "up" in job["state_reason"], job


@needs_network
def test_a_node_that_cannot_take_a_worker_does_not_fail_a_job_that_another_node_can_take(
    cluster, remote_host
):
    """A node without loopback, and a smaller one that works."""
    subprocess.run(["ip", "-n", remote_host.name, "link", "set", "lo", "down"], check=True)
    cluster.musterd(listen=f"{remote_host.near}:0")
    cluster.spawn(
        *("muster-agent", "--coordinator", cluster.address, "--node", "bad", "--slots", 4),
        prefix=("ip", "netns", "exec", remote_host.name),
    )
    await_node(cluster, "bad")
    cluster.agent("good", slots=2)
    await_node(cluster, "good")
    submit(cluster, "job", stages=[{"fit": {"steps": 3}}], schedule=None)
    cluster.cli("wait", "job")
    job = get(cluster, "job")
    assert int(job["generation"]) > 1, "the bad node was never tried"
    assert int(job.get("restarts", 0)) == 0, job


@needs_network
def test_ipv4_and_ipv6_are_named_in_the_first_generation(cluster, remote_host):
    """Muster issue 49: Gloo's words, after four generations."""
    cluster.musterd()
    for node, host in (("a", "127.0.0.1"), ("b", "::1")):
        cluster.spawn(
            *("muster-agent", "--coordinator", cluster.address, "--node", node),
            *("--slots", 1, "--host", host),
        )
        await_node(cluster, node)
    submit(cluster, "job", restart={"max_restarts": 3})
    assert cluster.cli("wait", "job", expect=None).code == 100
    job = get(cluster, "job")
    assert int(job["generation"]) == 1, job
    assert "IPv4" in job["state_reason"] and "--host" in job["state_reason"], job


def test_too_few_descriptors_are_named_in_the_first_generation(cluster):
    """Muster issue 49: Gloo's words, after four generations."""
    cluster.musterd()
    room = 150
    cluster.spawn(
        *("muster-agent", "--coordinator", cluster.address, "--node", "a", "--slots", 8),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (room, room)),
    )
    submit(cluster, "job", world_size=8, restart={"max_restarts": 3})
    assert cluster.cli("wait", "job", expect=None).code == 100
    job = get(cluster, "job")
    assert int(job["generation"]) == 1, job
    assert "ulimit -n" in job["state_reason"], job


def test_a_low_limit_that_may_be_raised_is_raised(cluster):
    """Muster issue 49: a soft limit of 150 files, where 1024 are allowed."""
    cluster.musterd()
    cluster.spawn(
        *("muster-agent", "--coordinator", cluster.address, "--node", "a", "--slots", 4),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (100, 1024)),
    )
    submit(cluster, "job", world_size=4, stages=[{"fit": {"steps": 2}}], schedule=None)
    cluster.cli("wait", "job")
