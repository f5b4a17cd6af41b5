"""musterd on a disk that becomes full while a job trains: training is not disturbed, and nothing is
lost."""

import contextlib
import os
import sqlite3
import subprocess
import threading

import pytest

from tests.process import api, harness, jobs, paced_job, prometheus
from tests.process.receiver import Receiver

# More than any machine takes while this test lasts: it stops the job itself.
STEPS = 1_000_000
PACE_MS = 10
SECRET = "a secret of more than sixteen bytes"


class Disk:
    """A small separate disk for this test."""

    def __init__(self, folder, size="24m"):
        self.folder = folder
        self._filler = folder / "filler"
        folder.mkdir()
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "tmpfs", folder],
            capture_output=True,
            text=True,
        )
        if mounted.returncode != 0:
            pytest.skip(f"a small disk needs root: {mounted.stderr.strip()}")

    def fill(self):
        with open(self._filler, "ab", buffering=0) as filler:
            for size in (1 << 16, 1 << 12):
                block = bytes(size)
                while True:
                    try:
                        filler.write(block)
                    except OSError:
                        break

    def free(self):
        self._filler.unlink(missing_ok=True)

    def close(self):
        subprocess.run(["umount", "-l", self.folder], check=False)


@pytest.fixture
def disk(muster):
    disk = Disk(muster.state)
    yield disk
    disk.close()


def trouble(muster):
    return muster.cli("nodes", "-o", "json").json().get("store_trouble")


def rows(muster, job):
    """The stored messages about a job."""
    with contextlib.closing(
        sqlite3.connect(f"file:{muster.state}/muster.db?mode=ro", uri=True)
    ) as database:
        return database.execute("SELECT id FROM deliveries WHERE job_id = ?", (job,)).fetchall()


def write(muster, name, **changes):
    return jobs.write_job(muster.folder, name=name, **changes)


def test_a_full_disk_disturbs_no_training(muster, disk):
    watched = muster.folder / "http-port"
    musterd = muster.musterd(
        local_slots=2, more=["--http", "127.0.0.1:0", "--http-port-file", watched]
    )
    pages = watched.read_text().strip()
    ready = (200, "ok\n")
    harness.eventually(lambda: prometheus.get(pages, "/readyz") == ready, "musterd is ready")
    job = paced_job.write_job(
        muster.folder,
        PACE_MS,
        stages=[{"fit": {"steps": STEPS}}],
        checkpoint={"directory": "checkpoints", "every_steps": 50, "keep": 3},
        export=None,
    )
    muster.cli("submit", job, "--id", "job")
    client = api.Jobs(muster.address)
    harness.eventually(lambda: client.nodes().nodes, "its agent is attached")
    ended = muster.cli("submit", write(muster, "other.yaml", world_size=9999), "--id", "other")
    assert " needs 9999 slots; 2 are offered; it waits until nodes offer more" in ended.err
    muster.cli("stop", "other")
    next(entry for entry in client.metrics("job", follow=True) if entry.step >= 20)

    disk.fill()
    harness.eventually(
        lambda: trouble(muster), "`muster nodes` says that the store cannot be written"
    )
    told = muster.cli("nodes")
    assert "full" in told.err, told.err
    status, said = prometheus.get(pages, "/readyz")
    assert status == 503 and "the store cannot be written" in said and "full" in said, said
    assert prometheus.get(pages, "/healthz")[0] == 200
    harness.eventually(
        lambda: "\nmuster_store_writable 0\n" in prometheus.get(pages, "/metrics")[1],
        "the metrics say so",
    )
    # Changes are refused at once, with the reason; requests that free space are not.
    refused = muster.cli("set-lr", "job", "0.001", "--retry-for", "0s", expect=None)
    assert refused.code != 0 and "store cannot be written" in refused.err, refused
    assert muster.cli("get", "job", "-o", "json").json()["state"] == "RUNNING"
    muster.cli("delete", "other")
    # Longer than a lease, and longer than gRPC's patience with one that does not answer.
    long = 3 * float(muster.lease.removesuffix("s"))
    threading.Event().wait(long)
    assert musterd.poll() is None, muster.log()
    # The next coordinator cannot accept agents or workers either, and no process ends because of
    # this.
    harness.kill(musterd.pid)
    musterd.wait()
    musterd = muster.musterd(local_slots=2, more=["--http", pages])
    disk.fill()
    # The coordinator listens, but is not ready.
    harness.eventually(
        lambda: "cannot be written" in prometheus.get(pages, "/readyz")[1], "/readyz says so"
    )
    threading.Event().wait(long)
    assert musterd.poll() is None, muster.log()

    disk.free()
    harness.eventually(lambda: not trouble(muster), "`muster nodes` says that all is well")
    harness.eventually(lambda: prometheus.get(pages, "/readyz")[0] == 200, "musterd is ready")
    muster.cli("stop", "job")
    done = muster.cli("wait", "job", "-o", "json", expect=None).json()
    assert done["state"] == "CANCELLED", done
    assert (done.get("restarts", 0), done["generation"]) == (0, "1"), done
    assert [entry.step for entry in client.metrics("job")] == list(range(1, int(done["step"]) + 1))
    client.close()
    muster.stop(musterd)
    muster.assert_no_process()


def test_a_message_that_was_accepted_while_the_disk_was_full_does_not_come_again(muster, disk):
    go = threading.Event()

    def answer(message):
        go.wait()
        return 204

    (muster.folder / "secret").write_text(SECRET)
    (muster.folder / "secret").chmod(0o600)
    with Receiver(SECRET, answer=answer) as receiver:
        flags = ["--webhook", receiver.url, "--webhook-secret", muster.folder / "secret"]
        musterd = muster.musterd(more=flags)
        muster.cli("submit", write(muster, "job.yaml", world_size=9999), "--id", "job")
        disk.fill()
        another = write(muster, "another.yaml", world_size=9999)
        muster.cli("submit", another, "--id", "another", "--retry-for", "0s", expect=None)
        harness.eventually(lambda: trouble(muster), "the disk is full")
        go.set()
        receiver.await_state("job", "QUEUED")
        harness.eventually(
            lambda: not rows(muster, "job"), "that it was accepted is stored on the full disk"
        )
        musterd.kill()
        musterd.wait()
        disk.free()
        musterd = muster.musterd(more=flags)
        muster.cli("stop", "job")
        receiver.await_state("job", "CANCELLED")
        of_job = [message for message in receiver.accepted if message["job_id"] == "job"]
        assert [message["state"] for message in of_job] == ["QUEUED", "CANCELLED"]
        muster.stop(musterd)


def test_a_musterd_that_starts_on_a_full_disk_says_so_and_still_deletes(muster, disk):
    musterd = muster.musterd()
    muster.cli("submit", write(muster, "job.yaml", world_size=9999), "--id", "job")
    muster.cli("stop", "job")
    muster.stop(musterd)
    disk.fill()
    musterd = muster.musterd()
    assert "full" in trouble(muster)["message"], muster.log()
    assert "full" in muster.cli("nodes").err
    another = write(muster, "another.yaml")
    refused = muster.cli("submit", another, "--id", "another", "--retry-for", "0s", expect=None)
    assert refused.code != 0 and "store cannot be written" in refused.err, refused
    muster.cli("delete", "job")
    disk.free()
    harness.eventually(lambda: not trouble(muster), "`muster nodes` says that all is well")
    muster.cli("submit", another, "--id", "another")
    muster.stop(musterd)
    muster.assert_no_process()


def test_a_backup_of_a_running_coordinator_can_be_restored(muster):
    musterd = muster.musterd(local_slots=2)
    muster.cli("submit", write(muster, "job.yaml"), "--id", "job", "--wait")
    file = muster.folder / "copy.db"
    muster.cli("backup", file)
    assert file.stat().st_mode & 0o777 == 0o600
    muster.stop(musterd)
    for path in muster.state.glob("muster.db*"):
        path.unlink()
    os.rename(file, muster.state / "muster.db")
    musterd = muster.musterd()
    job = muster.cli("get", "job", "-o", "json").json()
    assert job["state"] == "SUCCEEDED" and job["step"] == "20", job
    muster.stop(musterd)
    muster.assert_no_process()
    muster.assert_no_temporary_file()
