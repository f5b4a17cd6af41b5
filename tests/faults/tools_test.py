"""The tools of the tests of faults: the proxy really cuts connections, real overlaps of life spans
are found, and the checker finds violations."""

import os
import pathlib
import shutil
import socket
import subprocess
import threading
import time
import uuid

import pytest

from tests.bazel import bound
from tests.faults import checker, lifespans, network, proxy
from tests.faults.lifespans import Life
from tests.process import harness


class Echo:
    def __init__(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    @staticmethod
    def _answer(connection):
        while data := connection.recv(100):
            connection.sendall(data)

    def close(self):
        self._listener.close()


@pytest.fixture
def through_proxy():
    echo = Echo()
    between = proxy.Proxy(echo.address)
    host, port = between.address.split(":")
    yield between, lambda: socket.create_connection((host, int(port)), timeout=bound(5))
    between.close()
    echo.close()


def hears_nothing(connection):
    connection.settimeout(0.05)
    with pytest.raises(TimeoutError):
        connection.recv(10)
    connection.settimeout(bound(5))


@pytest.mark.parametrize("ways", [{}, {"to": False}, {"back": False}], ids=["both", "back", "to"])
def test_a_cut_proxy_keeps_what_comes_and_tells_it_when_it_heals(through_proxy, ways):
    between, connect = through_proxy
    connection = connect()
    connection.sendall(b"one")
    assert connection.recv(10) == b"one"
    between.cut(**ways)
    connection.sendall(b"two")
    hears_nothing(connection)
    # Accepted, and silent.
    late = connect()
    late.sendall(b"late")
    hears_nothing(late)
    assert sum(between.held.values()) > 0
    between.heal()
    assert (connection.recv(10), late.recv(10)) == (b"two", b"late")


def test_a_proxy_to_nobody_resets(through_proxy):
    between, _ = through_proxy
    nobody = socket.create_server(("127.0.0.1", 0))
    address = nobody.getsockname()
    nobody.close()
    to_nobody = proxy.Proxy(f"127.0.0.1:{address[1]}")
    host, port = to_nobody.address.split(":")
    # On a busy machine the reset comes before connect() returns.
    with pytest.raises(ConnectionResetError):
        socket.create_connection((host, int(port)), timeout=bound(5)).recv(1)
    to_nobody.close()


def test_life_spans_are_recorded_and_overlaps_found(tmp_path):
    marker = str(uuid.uuid4())
    recorder = lifespans.Recorder(marker, tmp_path / "lives")

    def start(generation, rank):
        # Any program of that name counts.
        program = tmp_path / "bin" / "muster-worker"
        program.parent.mkdir(exist_ok=True)
        if not program.exists():
            shutil.copy(shutil.which("cat"), program)
        # cat takes no such options, so they come after its end of options, as files that do not
        # exist; it reads "-" first.
        words = ["--", "-", "--job", "job", "--generation", str(generation), "--rank", str(rank)]
        return subprocess.Popen(
            [program, *words],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {harness.MARKER: marker},
        )

    def seen(count, ended=0):
        harness.eventually(
            lambda: len(recorder.lives()) >= count
            and sum(life.end_by < float("inf") for life in recorder.lives()) >= ended,
            "it is seen",
        )

    one = start(1, 0)
    seen(1)
    other = start(2, 0)
    seen(2)
    time.sleep(0.1)  # so that they live at once for more than the clock's grain
    for process in (one, other):
        process.communicate()
    seen(2, ended=2)
    third = start(3, 0)
    seen(3, ended=2)
    third.communicate()
    seen(3, ended=3)
    recorder.close()
    lives = recorder.lives()
    assert [(life.generation, life.rank) for life in lives] == [(1, 0), (2, 0), (3, 0)]
    assert [(a.generation, b.generation) for a, b in lifespans.overlaps(lives)] == [(1, 2)]


def test_lives_that_may_not_have_overlapped_are_no_overlap():
    first = Life(1, "job", 1, 0, 10.0, 11.0, 11.5)
    assert lifespans.overlaps([first, Life(2, "job", 2, 0, 11.2, 12, 12)]) == []
    assert lifespans.overlaps([first, Life(2, "job", 2, 1, 10.5, 12, 12)]) != []
    # Ranks of one generation live together; two processes of one rank must not.
    assert lifespans.overlaps([first, Life(2, "job", 1, 1, 10.5, 12, 12)]) == []
    assert lifespans.overlaps([first, Life(2, "job", 1, 0, 10.5, 12, 12)]) != []
    assert lifespans.overlaps([first, Life(2, "other", 2, 0, 10.5, 12, 12)]) == []


def test_a_network_can_be_cut_one_way_and_silently():
    why = network.allowed()
    if why:
        pytest.skip(f"network namespaces: {why}")
    made = network.Network(["a", "b"])
    try:
        connect = (
            "import socket, sys; s = socket.socket(); s.settimeout(0.7); "
            "print(s.connect_ex((sys.argv[1], int(sys.argv[2]))))"
        )

        def reaches(node, address):
            """0, or the number of the error; 11: no answer came."""
            listener = socket.create_server((made.host, 0))
            port = listener.getsockname()[1] if address == made.host else 9
            text = made.run_in(made._links[node][0], "python3", "-c", connect, address, str(port))
            listener.close()
            return int(text)

        silence, refused = 11, 111
        assert reaches("a", made.host) == 0 and reaches("a", made.addresses["b"]) == refused
        for ways in ({"to": False}, {"back": False}, {}):
            before = made.lost("a")
            made.cut("a", **ways)
            assert reaches("a", made.host) == silence, ways
            # Only between it and musterd.
            assert reaches("a", made.addresses["b"]) == refused and reaches("b", made.host) == 0
            made.heal()
            assert reaches("a", made.host) == 0
        assert made.lost("a") >= before
    finally:
        made.close()
