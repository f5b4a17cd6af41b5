"""Who may speak to musterd, and what those who may not can do to it."""

import ast
import contextlib
import os
import pathlib
import signal
import socket
import stat
import subprocess

import pytest

from tests.process import api, harness, jobs

NOBODY = 65534
NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def listening_ports(pid):
    """The TCP ports on which the process listens."""
    inodes = set()
    for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        target = os.readlink(entry)
        if target.startswith("socket:["):
            inodes.add(target[len("socket:[") : -1])
    found = []
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            listens = fields[3] == "0A"
            if listens and fields[9] in inodes:
                found.append(int(fields[1].rsplit(":", 1)[1], 16))
    return found


def socket_of(muster):
    return (muster.state / "address").read_text().strip().removeprefix("unix:")


def test_a_coordinator_listens_on_no_port_unless_it_is_told_to(muster):
    muster.spawn("musterd", "--state", muster.state, "--local-slots", "1")
    harness.eventually((muster.state / "address").exists, "musterd says where it listens")
    muster.address = str(muster.state)
    assert muster.cli("list").code == 0
    (daemon,) = muster.processes("musterd")
    (agent,) = muster.processes("muster-agent")
    assert listening_ports(daemon.pid) == [] and listening_ports(agent.pid) == []
    muster.stop(*muster._children)
    assert not pathlib.Path(socket_of(muster)).exists()
    muster.assert_no_process()


def test_a_private_coordinator_listens_on_no_port(muster):
    """`muster run`: whoever had an account of the machine could submit jobs to it."""
    job_file = jobs.write_job(muster.folder, stages=[{"fit": {"steps": 1000000}}])
    run = muster.spawn("muster", "run", job_file)
    harness.eventually(
        lambda: list(muster.folder.glob("checkpoints/*/step-*[0-9]")), "a checkpoint is there"
    )
    (daemon,) = muster.processes("musterd")
    (agent,) = muster.processes("muster-agent")
    assert listening_ports(daemon.pid) == [] and listening_ports(agent.pid) == []
    # Ranks find each other at ports, where the secret of their generation is needed.
    assert any(listening_ports(worker.pid) for worker in muster.processes("muster-worker"))
    path = pathlib.Path(agent.option("--coordinator").removeprefix("unix:"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    os.killpg(run.pid, signal.SIGINT)
    muster.wait(run, expect=130)
    assert not path.exists()
    muster.assert_no_process()


# Makes each call of its input over a connection of its own, and says how many of them were refused
# by the socket, closed without a word, and answered.
CALLS = """
import socket, sys
ends = {"refused": 0, "closed": 0, "answered": 0}
for line in sys.stdin:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(60)
        try:
            connection.connect(sys.argv[1])
        except PermissionError:
            ends["refused"] += 1
            continue
        try:
            connection.sendall(bytes.fromhex(line))
            ends["answered" if connection.recv(1) else "closed"] += 1
        except ConnectionError:
            ends["closed"] += 1
print(ends)
"""


def http2_call(method):
    """The beginning of a connection with a call without a body (RFC 9113, RFC 7541)."""

    def frame(kind, flags, stream, payload=b""):
        return len(payload).to_bytes(3, "big") + bytes([kind, flags, 0, 0, 0, stream]) + payload

    fields = {":method": "POST", ":scheme": "http", ":path": method, ":authority": "localhost"}
    fields |= {"content-type": "application/grpc", "te": "trailers"}
    block = b"".join(
        bytes([0, len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
        for name, value in fields.items()
    )
    settings, headers = frame(4, 0, 0), frame(1, 4 | 1, 1, block)
    return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings + headers


@NEEDS_ROOT
def test_another_user_is_refused_by_the_socket_and_by_the_coordinator(muster):
    daemon = muster.musterd()
    path = socket_of(muster)
    methods = api.methods()
    assert len(methods) > 30

    def calls(**user):
        done = subprocess.run(
            ["/usr/bin/python3", "-c", CALLS, path],
            input="\n".join(http2_call(method).hex() for method in methods),
            capture_output=True,
            text=True,
            check=True,
            **user,
        )
        return ast.literal_eval(done.stdout)

    nobody = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    for folder in pathlib.Path(path).parents:
        if folder != pathlib.Path("/") and folder != pathlib.Path("/tmp"):
            folder.chmod(0o755)
    assert calls(**nobody) == {"refused": len(methods), "closed": 0, "answered": 0}
    # Also if the rights of the socket let him connect.
    os.chmod(path, 0o777)
    assert calls(**nobody) == {"refused": 0, "closed": len(methods), "answered": 0}
    # They are calls: its own user gets answers.
    assert calls() == {"refused": 0, "closed": 0, "answered": len(methods)}
    assert muster.cli("list").code == 0
    muster.stop(daemon)


@pytest.mark.parametrize("said", [b"", b"P"])
@pytest.mark.parametrize("files, connections", [(256, 300), (1024, 1100)])
def test_connections_that_say_nothing_or_one_byte_keep_nobody_out(
    muster, files, connections, said
):
    """They would take all places for 10 s."""
    daemon = muster.musterd(prefix=["prlimit", f"--nofile={files}:{files}"])
    host, port = muster.address.rsplit(":", 1)
    held = []
    for _ in range(connections):
        held.append(socket.create_connection((host, int(port)), timeout=harness.BOUND))
        held[-1].sendall(said)
    assert muster.cli("list").code == 0
    assert muster.cli("list", "--address", muster.state).code == 0
    # More than it keeps: the oldest ones were closed.
    with contextlib.suppress(ConnectionResetError):
        while held[0].recv(1000):
            pass
    for connection in held:
        connection.close()
    assert muster.cli("list").code == 0
    muster.stop(daemon)


def test_without_a_port_the_certificate_of_an_operator_does_not_matter(muster):
    """In whose environment it is, for `muster` elsewhere."""
    files = {
        f"MUSTER_TLS_{name}": str(muster.folder / name) for name in ("CERTIFICATE", "KEY", "CA")
    }
    with muster.variables(files):
        muster.cli("run", jobs.write_job(muster.folder))
    assert (muster.folder / "model.safetensors").exists()
