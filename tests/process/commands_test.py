"""Commands that need real programs: a coordinator that dies during a request, deletion, documents,
and what remains after `run`."""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import threading

import grpc
import pytest
import yaml

from tests.process import api, harness, jobs


class CuttingProxy:
    """Between a client and musterd. When the client sends `marker`, it forwards it or not, calls
    `cut`, and breaks the connection before any answer; later connections are forwarded."""

    def __init__(self, upstream, marker, hand_on, cut):
        self._upstream = upstream
        self._marker = marker
        self._hand_on = hand_on
        self._cut = cut
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self._listener.getsockname()[1]
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self._listener.close()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            host, port = self._upstream().rsplit(":", 1)
            try:
                server = socket.create_connection((host, int(port)))
            except OSError:
                client.close()
                continue
            muted = threading.Event()
            threading.Thread(target=self._upward, args=(client, server, muted), daemon=True).start()
            threading.Thread(
                target=self._downward, args=(client, server, muted), daemon=True
            ).start()

    def _upward(self, client, server, muted):
        seen = b""
        try:
            while data := client.recv(1 << 16):
                seen += data
                if self.cuts == 0 and self._marker in seen:
                    self.cuts = 1
                    muted.set()
                    if self._hand_on:
                        server.sendall(data)
                    self._cut()
                    client.shutdown(socket.SHUT_RDWR)
                    break
                server.sendall(data)
        except OSError:
            pass
        server.close()

    def _downward(self, client, server, muted):
        try:
            while data := server.recv(1 << 16):
                if not muted.is_set():
                    client.sendall(data)
        except OSError:
            pass
        if not muted.is_set():
            client.close()


def state(client, job_id):
    """The job's state, or None if there is no such job."""
    try:
        return client.get(job_id).state
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.NOT_FOUND, error
        return None


@pytest.mark.parametrize("moment", ["before it acts", "after it acted"])
@pytest.mark.parametrize("command", ["submit", "stop", "delete"])
def test_a_coordinator_killed_over_a_request_leaves_one_effect(muster, command, moment):
    # Without agents jobs only wait.
    daemons = [muster.musterd()]
    job_file = jobs.write_job(muster.folder, name="job.yaml")
    if command != "submit":
        muster.cli("submit", job_file)
    if command == "delete":
        muster.cli("stop", "tiny-1")
    client = api.Jobs(muster.address)
    done = {
        "submit": lambda: state(client, "tiny-1") == api.Job.QUEUED,
        "stop": lambda: state(client, "tiny-1") == api.Job.CANCELLED,
        "delete": lambda: state(client, "tiny-1") is None,
    }[command]

    def cut():
        if moment == "after it acted":
            harness.eventually(done, f"the coordinator acts on {command}")
        else:
            assert not done()
        harness.kill(daemons[0].pid)
        daemons[0].wait()
        daemons.append(muster.musterd())

    marker = b"train.bin" if command == "submit" else b"tiny-1"
    proxy = CuttingProxy(lambda: muster.address, marker, moment == "after it acted", cut)
    arguments = [job_file] if command == "submit" else ["tiny-1"]
    result = muster.cli(command, *arguments, "--address", proxy.address)
    proxy.close()
    assert proxy.cuts == 1 and len(daemons) == 2
    assert "tiny-1" in result.out
    assert done()
    listed = muster.cli("list", "-o", "json").json()["jobs"]
    assert [job["id"] for job in listed] == ([] if command == "delete" else ["tiny-1"])
    client.close()
    muster.stop(daemons[1])


def test_yaml_is_the_document_of_json(muster):
    daemon = muster.musterd(local_slots=1)
    harness.eventually(
        lambda: muster.cli("nodes", "-o", "json").json()["nodes"], "the agent is attached"
    )
    # It waits for a second slot. A name may consist of digits only.
    muster.cli("submit", jobs.write_job(muster.folder), "--set", "name='007'", "--id", "a")
    for command in (["get", "a"], ["list"], ["ranks", "a"], ["nodes"], ["validate", "job.yaml"]):
        # Without what changes from one call to the next.
        documents = [
            yaml.safe_load(muster.cli(*command, "-o", "yaml").out),
            muster.cli(*command, "-o", "json").json(),
        ]
        for document in documents:
            for node in document.get("nodes", []):
                del node["last_seen"]
        assert documents[0] == documents[1], command
    muster.cli("stop", "a")
    assert muster.cli("delete", "a", "-o", "yaml").out.startswith("job_id: a\n")
    muster.stop(daemon)


def test_a_deleted_job_stays_deleted_and_its_checkpoints_stay(muster):
    daemon = muster.musterd(local_slots=2)
    muster.cli("submit", jobs.write_job(muster.folder), "--id", "a", "--set", "checkpoint.keep=2")
    muster.cli("wait", "a")
    result = muster.cli("delete", "a").out
    assert muster.files("checkpoints/a") == sorted(
        pathlib.Path(word).name for word in result.split() if "checkpoints/a/" in word
    )
    assert str(muster.folder / "model.safetensors") in result
    harness.kill(daemon.pid)
    daemon.wait()
    daemon = muster.musterd(local_slots=2)
    for command in ("get", "delete", "logs", "metrics", "ranks"):
        muster.cli(command, "a", expect=102)
    muster.stop(daemon)


def test_the_next_run_removes_what_a_killed_one_left(muster):
    job_file = jobs.write_job(muster.folder, stages=[{"fit": {"steps": 1000000}}])
    run = muster.spawn("muster", "run", job_file)
    harness.eventually(
        lambda: list(muster.folder.glob("checkpoints/*/step-*[0-9]")), "a checkpoint is there"
    )
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    muster.assert_no_process()
    assert len(list(muster.temporary.iterdir())) == 1
    # Its socket, too, is in the directory that the next run removes.
    assert list(muster.runtime.iterdir()) == [muster.temporary]
    # From standard input, with a value set: paths are those of the current directory, which is the
    # test's folder.
    done = subprocess.run(
        [str(muster.programs / "muster"), "run", "-", "--set", "stages[0].fit.steps=6"],
        input=job_file.read_text(),
        capture_output=True,
        text=True,
        timeout=harness.BOUND,
        cwd=muster.folder,
        env=muster.environment(),
    )
    assert done.returncode == 0, done.stderr
    assert "SUCCEEDED: 6/6 steps" in done.stdout
    muster.assert_no_process(at_once=True)
    shutil.rmtree(muster.folder / "checkpoints")
