"""The real programs over TCP with certificates on both sides."""

import os
import pathlib
import re
import socket
import ssl

import grpc
import pytest
from safetensors import numpy

from tests.process import api, harness, jobs, small_job


class Certificates:
    """A CA of `muster certs`, and what it issues, in the folder of a test."""

    def __init__(self, muster, name="ca"):
        self._muster = muster
        self.folder = muster.folder / name
        self._certs("init")

    def _certs(self, command, *arguments):
        return self._muster.cli("certs", command, *arguments, "--ca", self.folder)

    def issue(self, identity, *more):
        """Returns what tells a program to use the certificate of ROLE/NAME."""
        role, name = identity.split("/")
        out = self.folder / f"{role}-{name}"
        self._certs("issue", role, name, "--out", out, *more)
        return {
            "MUSTER_TLS_CERTIFICATE": str(out / f"{name}.crt"),
            "MUSTER_TLS_KEY": str(out / f"{name}.key"),
            "MUSTER_TLS_CA": str(out / "ca.crt"),
        }

    def revoke(self, who):
        self._certs("revoke", who)

    def serials(self, identity):
        """Of all certificates of the name."""
        return {
            line.split()[-2]
            for line in self._certs("show").out.splitlines()
            if line.startswith(identity + " ")
        }


@pytest.fixture
def secured(muster):
    """musterd with a certificate, and an operator's for the commands of this test."""
    muster.ca = Certificates(muster)
    muster.coordinator_files = muster.ca.issue("coordinator/main", "--host", "127.0.0.1")
    operator = muster.ca.issue("operator/alice")
    with muster.variables(muster.coordinator_files):
        daemon = muster.musterd(security=["--tls-revoked", muster.ca.folder / "revoked"])
    muster.more_environment = operator
    yield muster
    muster.stop(daemon)


def agent(muster, name):
    """An agent with the certificate agent/NAME."""
    with muster.variables(muster.ca.issue(f"agent/{name}", "--overwrite")):
        return muster.agent(name)


def channel(muster, files):
    read = {name: pathlib.Path(path).read_bytes() for name, path in files.items()}
    credentials = grpc.ssl_channel_credentials(
        read["MUSTER_TLS_CA"], read["MUSTER_TLS_KEY"], read["MUSTER_TLS_CERTIFICATE"]
    )
    return grpc.secure_channel(
        muster.address, credentials, options=[("grpc.enable_http_proxy", 0)]
    )


def server_serial(muster, files):
    """The serial number of the certificate that a new connection to musterd gets."""
    context = ssl.create_default_context(cafile=files["MUSTER_TLS_CA"])
    context.load_cert_chain(files["MUSTER_TLS_CERTIFICATE"], files["MUSTER_TLS_KEY"])
    context.set_alpn_protocols(["h2"])
    host, port = muster.address.rsplit(":", 1)
    with (
        socket.create_connection((host, int(port)), timeout=harness.BOUND) as plain,
        context.wrap_socket(plain, server_hostname=host) as connection,
    ):
        return connection.getpeercert()["serialNumber"].lower().lstrip("0")


def test_a_job_of_two_ranks_trains_as_without_certificates(secured):
    muster = secured
    agents = [agent(muster, "node-1"), agent(muster, "node-2")]
    muster.cli("submit", jobs.write_job(muster.folder), "--id", "first")
    muster.cli("wait", "first")
    job = muster.cli("get", "first", "-o", "json").json()
    assert {rank["node"] for rank in job["ranks"]} == {"node-1", "node-2"}
    assert job["submitter"] == "operator/alice"
    trained = numpy.load_file(muster.folder / "model.safetensors")
    (muster.folder / "model.safetensors").unlink()
    muster.stop(*agents)

    # The same job over a Unix socket: the same bits.
    muster.more_environment, muster.address = {}, None
    muster.cli("run", muster.folder / "job.yaml")
    again = numpy.load_file(muster.folder / "model.safetensors")
    assert trained.keys() == again.keys() and len(trained) > 10
    assert all(trained[name].tobytes() == again[name].tobytes() for name in trained)


def test_musterd_says_at_its_start_that_it_has_no_list_of_revoked_certificates(muster):
    ca = Certificates(muster)
    files = ca.issue("coordinator/main", "--host", "127.0.0.1")
    for security, warns in ((["--tls-revoked", ca.folder / "revoked"], False), ([], True)):
        with muster.variables(files):
            muster.stop(muster.musterd(security=security))
        assert ("no certificate is revoked" in muster.log()) == warns


def test_each_command_says_why_it_is_refused(secured):
    muster = secured
    reader = muster.ca.issue("reader/bob")
    other_ca = Certificates(muster, "other-ca")
    job_file = jobs.write_job(muster.folder)

    muster.more_environment = reader
    assert muster.cli("list").code == 0
    refused = muster.cli("submit", job_file, expect=None)
    assert refused.code != 0
    assert "reader/bob: the role reader may not call" in refused.err, refused.err
    assert "operator" in refused.err

    muster.more_environment = {}
    refused = muster.cli("list", expect=None)
    assert refused.code != 0 and "certificate" in refused.err, refused.err

    muster.more_environment = other_ca.issue("operator/alice")
    refused = muster.cli("list", expect=None)
    assert refused.code != 0 and "certificate" in refused.err, refused.err

    muster.more_environment = reader
    assert muster.cli("list", "-o", "json").json()["jobs"] == []


def test_an_agent_is_bound_to_the_node_of_its_certificate(secured):
    muster = secured
    real = agent(muster, "node-1")
    small_job.await_node(muster, "node-1")

    def nodes():
        found = muster.cli("nodes", "-o", "json").json()["nodes"]
        return [(node["name"], node["state"], node["agent_id"]) for node in found]

    before = nodes()
    with muster.variables(muster.ca.issue("agent/node-2")):
        stranger = muster.spawn(
            "muster-agent", "--coordinator", muster.address, "--slots", 1, "--node", "node-1",
            "--state", muster.folder / "stranger",
        )  # fmt: skip
    muster.wait(stranger, expect=1)
    assert "agent/node-2: this certificate may not be the agent of node 'node-1'" in muster.log()
    assert nodes() == before and len(before) == 1
    muster.stop(real)


def test_a_rank_needs_the_secret_of_its_process(secured):
    """Who has an agent's certificate cannot take the place of a worker of another agent."""
    muster = secured
    agents = [agent(muster, "node-1"), agent(muster, "node-2")]
    small_job.submit(muster, "steady", world_size=2)
    small_job.await_step(muster, "steady", 1)
    job = muster.cli("get", "steady", "-o", "json").json()

    thief = channel(muster, muster.ca.issue("agent/node-3"))
    attach = thief.stream_stream(
        "/muster.v1.WorkerService/Attach",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=bytes,
    )
    (worker, *_) = [
        process for process in muster.processes("muster-worker") if process.option("--rank") == "0"
    ]
    hello = api.worker_hello(
        job_id="steady",
        generation=int(job["generation"]),
        rank=0,
        incarnation=worker.option("--incarnation"),
    )
    for secret in (b"", bytes(32)):
        hello.hello.secret = secret
        with pytest.raises(grpc.RpcError) as refused:
            list(attach(iter([hello]), timeout=harness.BOUND))
        assert refused.value.code() == grpc.StatusCode.PERMISSION_DENIED, refused.value
        assert "secret" in refused.value.details()
    thief.close()
    # Nobody finds it in a command line or an environment, and the generation goes on.
    for process in muster.processes():
        environment = pathlib.Path(f"/proc/{process.pid}/environ").read_bytes()
        assert not re.search(r"\b[0-9a-f]{64}\b", process.command), process
        assert not re.search(rb"\b[0-9a-f]{64}\b", environment), process
    muster.cli("wait", "steady")
    assert int(muster.cli("get", "steady", "-o", "json").json()["generation"]) == 1
    muster.stop(*agents)


def test_renewed_certificates_are_used_without_a_restart(secured):
    muster = secured
    files = muster.more_environment
    (old,) = muster.ca.serials("coordinator/main")
    assert server_serial(muster, files) == old
    muster.ca.issue("coordinator/main", "--host", "127.0.0.1", "--overwrite")
    (new,) = muster.ca.serials("coordinator/main") - {old}
    harness.eventually(lambda: server_serial(muster, files) == new, "musterd shows the new one")
    assert muster.cli("list").code == 0


def test_a_revoked_certificate_ends_streams_and_a_renewed_one_begins_others(secured):
    muster = secured
    (daemon,) = muster.processes("musterd")
    running = agent(muster, "node-1")
    small_job.await_node(muster, "node-1")
    job_file = jobs.write_job(muster.folder, world_size=3)
    muster.cli("submit", job_file, "--id", "waits")
    bob = muster.ca.issue("reader/bob")
    with muster.variables(bob):
        errors = open(muster.folder / "watch.log", "wb")
        watch = muster.spawn("muster", "watch", "waits", stderr=errors)
    harness.eventually(
        lambda: "waits" in muster.log() or b"waits" in (muster.folder / "watch.log").read_bytes(),
        "watch has shown the job",
    )

    muster.ca.revoke("reader/bob")
    assert watch.wait(timeout=harness.BOUND) != 0
    errors.close()
    assert "revoked" in (muster.folder / "watch.log").read_text()
    with muster.variables(bob):
        refused = muster.cli("list", expect=None)
    assert refused.code != 0 and "is revoked" in refused.err, refused.err

    # The agent's stream ends, too. With new files it comes back, and is the same process.
    muster.ca.revoke("agent/node-1")
    harness.eventually(
        lambda: not muster.cli("nodes", "-o", "json").json()["nodes"], "the node is lost"
    )
    muster.ca.issue("agent/node-1", "--overwrite")
    small_job.await_node(muster, "node-1")
    assert running.poll() is None
    assert [process.pid for process in muster.processes("musterd")] == [daemon.pid]
    muster.stop(running)


@pytest.mark.parametrize("wrong", ["of another key", "readable by all"])
def test_musterd_refuses_files_that_do_not_fit(muster, wrong):
    ca = Certificates(muster)
    files = ca.issue("coordinator/main", "--host", "127.0.0.1")
    if wrong == "of another key":
        files["MUSTER_TLS_KEY"] = ca.issue("operator/alice")["MUSTER_TLS_KEY"]
        expected = "key"
    else:
        os.chmod(files["MUSTER_TLS_KEY"], 0o644)
        expected = "chmod 600"
    with muster.variables(files):
        daemon = muster.spawn("musterd", "--listen", "127.0.0.1:0", "--state", muster.state)
    assert daemon.wait(timeout=harness.BOUND) != 0
    assert expected in muster.log(), muster.log()
