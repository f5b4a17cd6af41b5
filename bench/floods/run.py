#!/usr/bin/env python3
"""The cost for others of unknown clients who reach musterd's port: `bench/floods/run.py`.

A client lists the jobs of a musterd over a port, in a process of its own: one call after the other,
with 2 ms in between. A second musterd gives the machine the same load in both measurements. First
unknown clients flood the second musterd, then the musterd that the client calls. They do one of
these:
  silent     open 10,000 connections and say nothing
  one_byte   open 10,000 connections, send one byte each, and say nothing more
  resets     begin 20,000 calls and reset each one at once, over 4 connections
  mutated    send 600 streams of a valid call with some bytes changed, each on its own connection
  requests   send 1 GB of requests that are refused, 15 MB each, over 4 connections
  expanding  send requests of empty sub-messages, as many as are allowed and 1 MB of them, over 4
             connections, without a pause
  handshakes (with --tls) begin TLS without a certificate, over and over, on 4 threads
  resets_more  as resets, with 200,000 calls over 64 connections
With --tls musterd has certificates of `muster certs`; all clients have one, too,
except those of `silent`, `one_byte` and `handshakes`.

The figures are the client's latencies and musterd's most resident memory (VmHWM). Targets: the 99th
percentile of the latencies is at most twice that during a flood elsewhere, and the memory is at
most 300 MB. Afterwards musterd answers as before and has no more open files. With --rounds each
flood is measured so many times, in turn with the flood elsewhere. The percentiles are those of all
calls of all rounds."""

import argparse
import os
import pathlib
import random
import resource
import select
import socket
import ssl
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
from bench.floods import http2  # noqa: E402

LIST, VALIDATE = "/muster.v1.JobService/ListJobs", "/muster.v1.JobService/ValidateJob"
SECONDS, PAUSE = 10, 0.002
MORE_RESETS, MORE_CONNECTIONS = 200_000, 64
SILENT, RESETS, MUTATED, REQUESTS, REQUEST_BYTES = 10_000, 20_000, 600, 68, 15 << 20
# ValidateJobRequest.spec.optimizer.groups: as many messages as a request may have, and as many as
# fit into the largest request.
EXPANDING = [http2.submessages([1, 8], 3, count) for count in (32_700, 530_000)]
MIB = 1 << 20
# With --tls: the folder of the files of an operator.
files = None


def open_channel(address):
    options = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    if files is None or address.startswith("unix:"):
        return grpc.insecure_channel(address, options=options)
    credentials = grpc.ssl_channel_credentials(
        *((files / name).read_bytes() for name in ("ca.crt", "alice.key", "alice.crt"))
    )
    return grpc.secure_channel(address, credentials, options=options)


def raw(address, method, request=b"", timeout=60):
    """One call with bytes for messages: an empty ListJobsRequest has none."""
    with open_channel(address) as channel:
        return channel.unary_unary(method)(request, timeout=timeout)


def client(address, seconds):
    """Lists jobs for so long and prints the latency of each call. A broken connection counts."""
    with open_channel(address) as channel:
        call = channel.unary_unary(LIST)
        end = time.monotonic() + seconds
        begin = time.monotonic()
        while time.monotonic() < end:
            try:
                call(b"", timeout=60, wait_for_ready=True)
            except grpc.RpcError as error:
                assert error.code() == grpc.StatusCode.UNAVAILABLE, error
                continue
            print(time.monotonic() - begin, flush=True)
            time.sleep(PAUSE)
            begin = time.monotonic()


def dial(address):
    host, port = address.rsplit(":", 1)
    connection = socket.create_connection((host, int(port)), timeout=60)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def tls(own=True):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    if own:
        context.load_cert_chain(files / "alice.crt", files / "alice.key")
    return context


def connect(address):
    return dial(address) if files is None else tls().wrap_socket(dial(address))


def silent(address, until, first=b""):
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert most > SILENT + 100, f"needs {SILENT + 100} open files (ulimit -Hn), found {most}"
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    held = []
    for _ in range(SILENT):
        held.append(dial(address))
        held[-1].sendall(first)
    wait(until)


def one_byte(address, until):
    silent(address, until, first=b"\x16" if files else b"P")


def handshakes(address, until):
    context = tls(own=False)

    def begin():
        while time.monotonic() < until:
            try:
                with context.wrap_socket(dial(address)) as connection:
                    connection.recv(1)
            except OSError:
                pass  # musterd has asked for a certificate

    run_threads(begin)


def push(connection, data):
    """Sends data and drops the bytes that arrive meanwhile, because musterd stops reading from a
    client that does not read its answers."""
    connection.setblocking(False)
    while data:
        readable, writable, _ = select.select([connection], [connection], [], 60)
        assert readable or writable, "musterd does not read"
        try:
            while readable and connection.recv(1 << 16):
                pass
        except (BlockingIOError, ssl.SSLWantReadError):
            pass
        try:
            data = data[connection.send(data) :] if writable else data
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass


def begin_and_reset(address, calls, count):
    """Makes so many calls, over so many connections in turn."""
    connections = [connect(address) for _ in range(count)]
    for connection in connections:
        push(connection, http2.hello())
    for number in range(calls // count):
        stream = 2 * number + 1
        for index, connection in enumerate(connections):
            try:
                push(connection, http2.call(stream, LIST) + http2.reset(stream))
            except OSError:  # musterd has closed it
                connections[index] = connect(address)
                push(connections[index], http2.hello())


def resets(address, until):
    begin_and_reset(address, RESETS, 4)
    wait(until)


def resets_more(address, until):
    begin_and_reset(address, MORE_RESETS, MORE_CONNECTIONS)
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
    channels = [open_channel(address) for _ in range(4)]
    body = b"\xff" * REQUEST_BYTES
    for _ in range(REQUESTS // len(channels)):
        calls = [channel.unary_unary(VALIDATE).future(body, timeout=120) for channel in channels]
        for call in calls:
            assert call.exception() is not None, "a request of 15 MB of 0xff is not valid"
    wait(until)


def expanding(address, until):
    def send():
        with open_channel(address) as channel:
            while time.monotonic() < until:
                for body in EXPANDING:
                    call = channel.unary_unary(VALIDATE).future(body, timeout=120)
                    assert call.exception() is None or call.details(), "it was answered"

    run_threads(send)


def run_threads(function):
    threads = [threading.Thread(target=function) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def wait(until):
    time.sleep(max(0, until - time.monotonic()))


FLOODS = {
    function.__name__: function
    for function in (
        silent,
        one_byte,
        resets,
        mutated,
        requests,
        expanding,
        handshakes,
        resets_more,
    )
}


def status(pid, field):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(field)


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def measure(address, flood=None, flooded=None):
    """Latencies of a client of the musterd at `address`, during the flood of the one at `flooded`,
    or for SECONDS."""
    here = [sys.executable, __file__]
    if files is not None:
        here += ["--files", files]
    flooders = None
    if flood is not None:
        flooders = subprocess.Popen([*here, "--client", flooded, "--flood", flood])
    process = subprocess.Popen(
        [*here, "--client", address, "--seconds", "600"], stdout=subprocess.PIPE, text=True
    )
    if flooders is None:
        time.sleep(SECONDS)
    else:
        assert flooders.wait() == 0, flood
    process.terminate()
    printed, _ = process.communicate()
    return [float(line) for line in printed.splitlines() if line]


def make_certificates(muster, folder):
    """The options of a musterd with certificates, and the files of an operator."""
    made = folder / "files"
    for arguments in (
        ["init"],
        ["issue", "coordinator", "main", "--host", "127.0.0.1", "--out", made],
        ["issue", "operator", "alice", "--out", made, "--overwrite"],
    ):
        subprocess.run(
            [muster, "certs", *arguments, "--ca", folder / "ca"], check=True, capture_output=True
        )
    options = ["--tls-certificate", made / "main.crt", "--tls-key", made / "main.key"]
    return [*options, "--tls-ca", made / "ca.crt"], made


def make_agent_certificate(muster, folder):
    """The options of an agent of the same CA, for make_certificates before it."""
    made = folder / "files"
    name = socket.gethostname()
    subprocess.run(
        [muster, "certs", "issue", "agent", name, "--out", made, "--overwrite"]
        + ["--ca", folder / "ca"],
        check=True,
        capture_output=True,
    )
    options = ["--tls-certificate", made / f"{name}.crt", "--tls-key", made / f"{name}.key"]
    return [*options, "--tls-ca", made / "ca.crt"]


def main():
    global files
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--programs", help="folder with the four programs; built when not given")
    parser.add_argument("--tls", action="store_true", help="with certificates on both sides")
    parser.add_argument("--rounds", type=int, default=1, help="how often to measure each flood")
    parser.add_argument("--only", nargs="+", choices=FLOODS, help="only these floods")
    parser.add_argument("--files", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--client", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--flood", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    files = arguments.files
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
        programs = pathlib.Path(programs)
        options = ["--insecure"]
        if arguments.tls:
            options, files = make_certificates(programs / "muster", folder)
        floods = arguments.only or [one for one in FLOODS if arguments.tls or one != "handshakes"]

        def start(state):
            port.unlink(missing_ok=True)
            daemon = subprocess.Popen(
                [programs / "musterd", "--state", folder / state, *options]
                + ["--listen", "127.0.0.1:0", "--port-file", port],
                stderr=subprocess.DEVNULL,
            )
            while not port.exists():
                assert daemon.poll() is None, "musterd ended"
                time.sleep(0.01)
            address = port.read_text().strip()
            raw(address, LIST)
            return daemon, address

        (daemon, address), (other, other_address) = start("state"), start("other")
        opened = len(os.listdir(f"/proc/{daemon.pid}/fd"))
        print("| flood | calls | median ms | p99 ms | p99 ms, flood elsewhere | ratio | MiB |")
        print("|---|---|---|---|---|---|---|")

        def row(flood, latencies, beside):
            p99, p99_beside = percentile(latencies, 0.99), percentile(beside, 0.99)
            memory = status(daemon.pid, "VmHWM") / MIB
            print(
                f"| {flood} | {len(latencies)} | {percentile(latencies, 0.5) * 1e3:.2f} | "
                f"{p99 * 1e3:.2f} | {p99_beside * 1e3:.2f} | {p99 / p99_beside:.2f} | "
                f"{memory:.0f} |",
                flush=True,
            )
            if p99 > 2 * p99_beside:
                failed.append(f"{flood}: p99")
            if memory > 300:
                failed.append(f"{flood}: memory")

        quiet = measure(address)
        row("none", quiet, quiet)
        for flood in floods:
            beside, flooded = [], []
            for _ in range(arguments.rounds):
                beside += measure(address, flood, other_address)
                flooded += measure(address, flood, address)
            row(flood, flooded, beside)
        row("none", measure(address), quiet)
        raw(address, LIST)
        time.sleep(1)
        left = len(os.listdir(f"/proc/{daemon.pid}/fd"))
        print(f"open files of musterd before {opened}, afterwards {left}")
        for one in (daemon, other):
            one.terminate()
            assert one.wait() == 0
    sys.exit(", ".join(failed) or 0)


if __name__ == "__main__":
    main()
