#!/usr/bin/env python3
"""Who gets an answer of musterd's port while unknown clients take its connections:
`bench/floods/connection_limits.py`.

A musterd with 1024 open files and an insecure port, new for each flood. The unknown clients, in a
process of their own, come from addresses 127.0.1.1 and so on:
  silent       connect without a pause, and say nothing
  one_byte     connect without a pause, and send one byte
  one_byte_60  as one_byte, from 60 addresses
  held_1       make 350 connections, complete the handshake, answer each ping, and make the last
               one 20 s before the measurement
  held_4       as held_1, from 4 addresses
  scan         connect 100 times per second, and say nothing, from the address of the clients
  silent_same, one_byte_same  as silent and one_byte, from the address of the clients

Meanwhile three clients at 127.0.0.1 list the jobs, 10 ms after the last answer: over a new
connection each time, over one connection, and over a new connection to the Unix socket each time.
The table has the calls that were answered and those that failed within 5 s. An agent at 127.0.0.1
is started at the same time. The table has the number of its attachments, and the seconds for which
it was attached. With --tls musterd has certificates, and the clients and the agent have one,
too."""

import argparse
import os
import pathlib
import resource
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = pathlib.Path.home() / ".cache/muster/venv/bin/python"
if __name__ == "__main__" and pathlib.Path(sys.executable) != PYTHON:
    os.execv(PYTHON, [PYTHON, *sys.argv])
sys.path.insert(0, str(ROOT))

import grpc  # noqa: E402

from bench import harness  # noqa: E402
from bench.floods import http2, run  # noqa: E402

FILES, SECONDS = 1024, 10
# The first bytes of the unknown clients, the number of their addresses (0: the known clients'), and
# their pause.
FLOODS = {
    "silent": (b"", 1, 0),
    "one_byte": (b"P", 1, 0),
    "one_byte_60": (b"P", 60, 0),
    "held_1": (http2.hello(), 1, 0),
    "held_4": (http2.hello(), 4, 0),
    "scan": (b"", 0, 0.01),
    "silent_same": (b"", 0, 0),
    "one_byte_same": (b"P", 0, 0),
}
WITHOUT_TLS = {"held_1", "held_4"}
# The pause of `held`: as slow as gRPC completes handshakes. The last trial (11 s) has passed when
# the measurement begins, also if Python starts slowly.
MADE, BUILD_UP, SETTLED = 350, 20, 20


def dial(address, number, addresses, first):
    host, port = address.rsplit(":", 1)
    connection = socket.socket()
    connection.settimeout(5)
    if addresses:
        connection.bind((f"127.0.1.{1 + number % addresses}", 0))
    try:
        connection.connect((host, int(port)))
        connection.sendall(first)
    except OSError:
        pass  # musterd has closed it
    return connection


def flood(name, address):
    """Until it is killed."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    first, addresses, pause = FLOODS[name]
    held = []
    while True:
        time.sleep(pause)
        held.append(dial(address, len(held), addresses, first))
        if len(held) > most - 100:
            del held[:1000]


def answer(connection, unread):
    """Answers the pings and settings that have come. False: the connection has ended."""
    try:
        data = connection.recv(1 << 16)
        unread += data
        while len(unread) >= 9 and len(unread) >= 9 + int.from_bytes(unread[:3], "big"):
            end = 9 + int.from_bytes(unread[:3], "big")
            kind, acknowledged, payload = unread[3], unread[4] & http2.ACK, unread[9:end]
            del unread[:end]
            if kind in (http2.SETTINGS, http2.PING) and not acknowledged:
                reply = bytes(payload) if kind == http2.PING else b""
                connection.sendall(http2.frame(kind, http2.ACK, 0, reply))
        return bool(data)
    except OSError:
        return False


def hold(name, address):
    """Until it is killed."""
    first, addresses, _ = FLOODS[name]
    held, made, begin = {}, 0, time.monotonic()
    while True:
        if made < min(MADE, (time.monotonic() - begin) * MADE / BUILD_UP):
            connection = dial(address, made, addresses, first)
            held[connection.fileno()] = connection, bytearray()
            made += 1
        for descriptor in select.select(list(held), [], [], 0.03)[0]:
            if not answer(*held[descriptor]):
                held.pop(descriptor)[0].close()


def calls(address, fresh, result):
    """Appends whether each call was answered."""
    until, channel = time.monotonic() + SECONDS, None
    while time.monotonic() < until:
        if fresh or channel is None:
            channel = run.open_channel(address)
        try:
            channel.unary_unary(run.LIST)(b"", timeout=5)
            result.append(True)
        except grpc.RpcError:
            result.append(False)
        if fresh:
            channel.close()
        time.sleep(0.01)


class Agent:
    """An agent of the benchmark. It counts its attachments and the seconds of each."""

    def __init__(self, programs, folder, address, tls):
        options = ["--coordinator", address, "--state", folder / "agent", "--slots", "1"]
        self.process = subprocess.Popen(
            [programs / "muster-agent", *options, "--no-gpus", *tls],
            stderr=subprocess.PIPE,
            text=True,
        )
        self.times, self.seconds, self.since = 0, 0.0, None
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stderr:
            attached = "attached to the coordinator" in line
            if self.since is not None and (attached or "no connection to" in line):
                self.seconds += time.monotonic() - self.since
                self.since = None
            if attached:
                self.times += 1
                self.since = time.monotonic()

    def end(self):
        """Returns the number of times that the agent attached, and the seconds for which it was
        attached."""
        if self.since is not None:
            self.seconds += time.monotonic() - self.since
        result = f"{self.times}, {self.seconds:.1f} s"
        self.process.kill()
        self.reader.join()
        self.process.wait()
        return result


def measure(programs, name, folder, tls):
    port = folder / "port"
    options, of_agent = ["--insecure"], []
    if tls:
        options, run.files = run.make_certificates(programs / "muster", folder)
        of_agent = run.make_agent_certificate(programs / "muster", folder)
    daemon = subprocess.Popen(
        ["prlimit", f"--nofile={FILES}:{FILES}", programs / "musterd", "--state", folder / "state"]
        + [*options, "--listen", "127.0.0.1:0", "--port-file", port],
        stderr=subprocess.DEVNULL,
    )
    while not port.exists():
        assert daemon.poll() is None, "musterd ended"
        time.sleep(0.01)
    address, local = port.read_text().strip(), (folder / "state/address").read_text().strip()
    flooders = subprocess.Popen([sys.executable, __file__, "--flood", name, "--address", address])
    time.sleep(BUILD_UP + SETTLED if name.startswith("held") else 2)
    agent = Agent(programs, folder, address, of_agent)
    results = [], [], []
    threads = [
        threading.Thread(target=calls, args=arguments)
        for arguments in zip((address, address, local), (True, False, True), results)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cells = [f"{sum(result)}, {len(result) - sum(result)}" for result in results]
    cells.append(agent.end())
    for process in (flooders, daemon):
        process.kill()
        process.wait()
    print(f"| {name} | {' | '.join(cells)} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--programs", help="folder with the four programs; built when not given")
    parser.add_argument("--tls", action="store_true", help="with certificates on both sides")
    parser.add_argument("--only", nargs="+", choices=FLOODS, help="only these floods")
    parser.add_argument("--flood", help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.flood:
        (hold if arguments.flood.startswith("held") else flood)(arguments.flood, arguments.address)
    with harness.programs_of(arguments.programs) as programs:
        print("| flood | new connections | one connection | new ones to the socket | agent |")
        print("|---|---|---|---|---|")
        floods = [name for name in FLOODS if not (arguments.tls and name in WITHOUT_TLS)]
        for name in arguments.only or floods:
            with tempfile.TemporaryDirectory(dir="/tmp") as folder:
                measure(pathlib.Path(programs), name, pathlib.Path(folder), arguments.tls)


if __name__ == "__main__":
    main()
