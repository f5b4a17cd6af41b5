"""Faults of networks: partitions, and connections of other programs."""

import contextlib
import random
import socket
import time

from tests.bazel import bound
from tests.faults.fault import fault, happened, running_job


def partitioned(run, strike, cut, heal, evidence):
    job = running_job(run)
    leases = strike.how["leases"]
    run.note(f"{strike.how['way']} ways cut for {leases} leases")
    before = evidence()
    cut(to=strike.how["way"] in ("both", "to"), back=strike.how["way"] in ("both", "back"))
    time.sleep(leases * run.lease)
    lost = evidence() - before
    heal()
    happened(lost > 0, f"nothing was lost in {leases} leases of partition")
    if job.restarts == 0:
        run.planned()


@fault
def partition_by_proxy(run, strike):
    proxy = run.proxies[run.world.node_of(run.dice.randrange(2))]
    partitioned(run, strike, proxy.cut, proxy.heal, lambda: sum(proxy.held.values()))


@fault
def partition_by_network(run, strike):
    node = run.world.node_of(run.dice.randrange(2))
    network = run.network
    partitioned(
        run,
        strike,
        lambda **ways: network.cut(node, **ways),
        network.heal,
        lambda: network.lost(node),
    )


@fault
def garbage(run, strike):
    """Connections that send nothing, invalid bytes, or part of a message."""
    job = running_job(run)
    host, port = run.muster.address.rsplit(":", 1)
    dice = random.Random(run.plan.seed)
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    connections, sent, refused = [], 0, 0
    for number in range(120):
        connection = socket.create_connection((host, int(port)), timeout=bound(5))
        connections.append(connection)
        text = [
            b"",
            dice.randbytes(dice.randrange(1, 4000)),
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            preface,
            preface + dice.randbytes(600),
            # A frame of 16 MiB that never comes.
            preface + b"\xff\xff\xff\x00\x00\x00\x00\x00\x01" + bytes(100),
        ][number % 6]
        with contextlib.suppress(OSError):
            connection.sendall(text)
            sent += len(text)
    for connection in connections:
        connection.settimeout(0.05)
        with contextlib.suppress(OSError):
            if connection.recv(1 << 12):
                refused += 1
    happened(sent > 10000 and refused > 0, f"{sent} bytes sent, {refused} answers")
    time.sleep(1.5 * run.lease)
    for connection in connections:
        connection.close()
    now = run.world.get()
    assert (now.generation, now.restarts) == (
        job.generation,
        job.restarts,
    ), "strangers' connections ended a generation"
    run.planned()
