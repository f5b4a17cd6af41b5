#!/usr/bin/env python3
"""What strangers who reach musterd's port cost others: `bench/strangers/run.py`.

A client lists the jobs over a port, one call after the other with 2 ms between them, in a process
of its own: first alone, then while strangers do one of these:
  silent     open 10,000 connections and say nothing
  resets     begin 20,000 calls and reset each one at once, over 4 connections
  mutated    send 600 streams of a valid call with some bytes changed, each on its own connection
  requests   send 1 GB of requests that are refused, 15 MB each, over 4 connections

The figures are the client's latencies and musterd's most resident memory (VmHWM). Targets: the 99th
percentile of a flood is at most twice that without, the memory at most 300 MB, and afterwards
musterd answers as before and has no more open files."""

import argparse
import os
import pathlib
import random
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = pathlib.Path.home() / ".cache/muster/venv/bin/python"
if __name__ == "__main__" and pathlib.Path(sys.executable) != PYTHON:
    os.execv(PYTHON, [PYTHON, *sys.argv])
sys.path.insert(0, str(ROOT))

import grpc  # noqa: E402

from bench import harness  # noqa: E402
from bench.strangers import http2  # noqa: E402

LIST, VALIDATE = "/muster.v1.JobService/ListJobs", "/muster.v1.JobService/ValidateJob"
SECONDS, PAUSE = 10, 0.002
SILENT, RESETS, MUTATED, REQUESTS, REQUEST_BYTES = 10_000, 20_000, 600, 68, 15 << 20
MIB = 1 << 20


def raw(address, method, request=b"", timeout=60):
    """One call with bytes for messages: an empty ListJobsRequest has none."""
    with grpc.insecure_channel(address, options=[("grpc.max_send_message_length", -1)]) as channel:
        return channel.unary_unary(method)(request, timeout=timeout)


def client(address, seconds):
    """Lists jobs for so long and prints the latency of each call."""
    with grpc.insecure_channel(address) as channel:
        call = channel.unary_unary(LIST)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            begin = time.monotonic()
            call(b"", timeout=60)
            print(time.monotonic() - begin, flush=True)
            time.sleep(PAUSE)


def connect(address):
    host, port = address.rsplit(":", 1)
    connection = socket.create_connection((host, int(port)), timeout=60)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def silent(address, until):
    # Each process may have only so many open files.
    held = []
    for _ in range(SILENT):
        held.append(connect(address))
        if len(held) > 4000:
            held.pop(0).close()
    wait(until)
    for connection in held:
        connection.close()


def resets(address, until):
    connections = [connect(address) for _ in range(4)]
    for connection in connections:
        connection.sendall(http2.hello())
    for number in range(RESETS // 4):
        stream = 2 * number + 1
        for index, connection in enumerate(connections):
            try:
                connection.sendall(http2.call(stream, LIST) + http2.reset(stream))
                connection.setblocking(False)
                try:
                    while connection.recv(1 << 16):
                        pass
                except BlockingIOError:
                    pass
                connection.setblocking(True)
            except OSError:  # musterd has closed it
                connections[index] = connect(address)
                connections[index].sendall(http2.hello())
    wait(until)


def mutated(address, until):
    random_ = random.Random(1)
    valid = http2.hello() + http2.call(1, LIST) + http2.message(1, b"")
    for _ in range(MUTATED):
        stream = bytearray(valid)
        for _ in range(random_.randint(1, 8)):
            stream[random_.randrange(len(stream))] = random_.randrange(256)
        with connect(address) as connection:
            connection.settimeout(0.2)
            try:
                connection.sendall(stream)
                connection.recv(1 << 16)
            except OSError:
                pass
    wait(until)


def requests(address, until):
    options = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.insecure_channel(address, options=options) for _ in range(4)]
    body = b"\xff" * REQUEST_BYTES
    for _ in range(REQUESTS // len(channels)):
        calls = [channel.unary_unary(VALIDATE).future(body, timeout=120) for channel in channels]
        for call in calls:
            assert call.exception() is not None, "a request of 15 MB of 0xff is not valid"
    wait(until)


def wait(until):
    time.sleep(max(0, until - time.monotonic()))


FLOODS = {"silent": silent, "resets": resets, "mutated": mutated, "requests": requests}


def status(pid, field):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(field)


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def measure(address, flood=None):
    """Latencies of a client during the flood, or for SECONDS."""
    here = [sys.executable, __file__, "--client", address]
    strangers = None
    if flood is not None:
        strangers = subprocess.Popen([*here, "--flood", flood])
    process = subprocess.Popen([*here, "--seconds", "600"], stdout=subprocess.PIPE, text=True)
    if strangers is None:
        time.sleep(SECONDS)
    else:
        assert strangers.wait() == 0, flood
    process.terminate()
    printed, _ = process.communicate()
    return [float(line) for line in printed.splitlines() if line]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--programs", help="folder with the four programs; built when not given")
    parser.add_argument("--client", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--flood", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.flood:
        FLOODS[arguments.flood](arguments.client, time.monotonic() + SECONDS)
        return
    if arguments.client:
        client(arguments.client, arguments.seconds)
        return
    failed = []
    with harness.programs_of(arguments.programs) as programs, tempfile.TemporaryDirectory(
        dir="/tmp"
    ) as name:
        folder = pathlib.Path(name)
        port = folder / "port"
        daemon = subprocess.Popen(
            [pathlib.Path(programs) / "musterd", "--state", folder / "state", "--insecure"]
            + ["--listen", "127.0.0.1:0", "--port-file", port],
            stderr=subprocess.DEVNULL,
        )
        while not port.exists():
            assert daemon.poll() is None, "musterd ended"
            time.sleep(0.01)
        address = port.read_text().strip()
        raw(address, LIST)
        files = len(os.listdir(f"/proc/{daemon.pid}/fd"))
        print("| flood | calls | median ms | p99 ms | p99 to that without | MiB |")
        print("|---|---|---|---|---|---|")
        alone = None
        for flood in [None, *FLOODS, None]:
            latencies = measure(address, flood)
            p99 = percentile(latencies, 0.99)
            alone = alone or p99
            memory = status(daemon.pid, "VmHWM") / MIB
            median = percentile(latencies, 0.5)
            print(
                f"| {flood or 'none'} | {len(latencies)} | {median * 1e3:.2f} | {p99 * 1e3:.2f} | "
                f"{p99 / alone:.2f} | {memory:.0f} |"
            )
            if p99 > 2 * alone:
                failed.append(f"{flood}: p99")
            if memory > 300:
                failed.append(f"{flood}: memory")
        raw(address, LIST)
        time.sleep(1)
        left = len(os.listdir(f"/proc/{daemon.pid}/fd"))
        print(f"open files of musterd before {files}, afterwards {left}")
        daemon.terminate()
        assert daemon.wait() == 0
    sys.exit(", ".join(failed) or 0)


if __name__ == "__main__":
    main()
