"""musterd's webhooks with real programs: every change of a job's state arrives, in order, although
the receiver, musterd or both fail."""

import contextlib
import datetime
import http.server
import os
import signal
import sqlite3
import threading

import pytest

from tests.process import harness, small_job
from tests.process.receiver import Receiver

SECRET = "a secret of more than sixteen bytes"
NODE = "node-1"


@pytest.fixture
def secret_file(muster):
    path = muster.folder / "webhook-secret"
    path.write_text(SECRET + "\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def flags(secret_file):
    return lambda *receivers: [
        *(flag for receiver in receivers for flag in ("--webhook", receiver.url)),
        *("--webhook-secret", secret_file),
    ]


def pending(muster):
    """Returns the number of stored messages."""
    with sqlite3.connect(f"file:{muster.state}/muster.db?mode=ro", uri=True) as database:
        return database.execute("SELECT count(*) FROM deliveries").fetchone()[0]


def await_nothing_pending(muster):
    harness.eventually(lambda: pending(muster) == 0, "all messages are accepted")


def check(history):
    """Checks every history from the submission on."""
    former, generation, attempt, time = None, 0, 1, ""
    for message in history:
        assert message["valid"], message
        assert message["type"] == "job.state_changed"
        assert message["former_state"] == former, message
        assert message["generation"] >= generation and message["attempt"] >= attempt
        assert message["time"] >= time and message["time"].endswith("Z")
        datetime.datetime.fromisoformat(message["time"].replace("Z", "+00:00"))
        former, time = message["state"], message["time"]
        generation, attempt = message["generation"], message["attempt"]
    assert len({message["id"] for message in history}) == len(history)


def test_the_whole_life_of_a_job_is_posted_in_order(muster, flags):
    with Receiver(SECRET) as first, Receiver(SECRET) as second:
        daemon = muster.musterd(more=flags(first, second))
        small_job.submit(muster, "job", restart={"max_restarts": 3})
        first.await_state("job", "QUEUED")
        agent = muster.agent(NODE, slots=2)
        small_job.await_step(muster, "job", 1)
        muster.cli("pause", "job", "--wait")
        muster.cli("resume", "job", "--wait")
        worker = muster.processes("muster-worker")[0]
        harness.kill(worker.pid)
        harness.eventually(
            lambda: small_job.get(muster, "job")["generation"] == "2", "the job starts again"
        )
        muster.cli("wait", "job")
        # Its next attempt, and a deleted job.
        small_job.submit(muster, "other", stages=[{"fit": {"steps": 1000000}}])
        second.await_state("other", "RUNNING")
        muster.cli("stop", "other", "--wait")
        muster.cli("resume", "other")
        small_job.await_step(muster, "other", 1)
        muster.cli("stop", "other", "--wait")
        muster.cli("delete", "other")
        for receiver in (first, second):
            receiver.await_state("job", "SUCCEEDED")
            receiver.await_state("other", "CANCELLED")
        await_nothing_pending(muster)
        job = small_job.get(muster, "job")
        muster.stop(daemon, agent)
        for receiver in (first, second):
            history = receiver.history("job")
            check(history)
            assert [message["state"] for message in history] == [
                *("QUEUED", "STARTING", "RUNNING", "PAUSED", "RUNNING"),
                *("RECOVERING", "STARTING", "RUNNING", "SUCCEEDED"),
            ]
            assert {message["job_name"] for message in history} == {job["spec"]["name"]}
            recovering = history[5]
            assert recovering["failure"]["node"] == NODE, recovering
            assert recovering["failure"]["rank"] == int(worker.option("--rank")), recovering
            assert "signal 9" in recovering["failure"]["reason"], recovering
            assert [message["failure"] for message in history[6:]] == [None] * 3
            assert history[-1]["step"] == small_job.STEPS == int(job["step"])
            assert history[-1]["generation"] == 2
            others = receiver.history("other")
            check(others)
            attempts = {attempt: [] for attempt in (1, 2)}
            for message in others:
                attempts[message["attempt"]].append(message["state"])
            # A stop may come so early that nothing has to end.
            assert attempts[1][0] == "QUEUED" and attempts[1][-1] == "CANCELLED", attempts
            assert attempts[2][0] in ("QUEUED", "RECOVERING"), attempts
            assert attempts[2][-1] == "CANCELLED", attempts
        # Both got the same messages.
        assert sorted(m["id"] for m in first.accepted) == sorted(m["id"] for m in second.accepted)


def test_nothing_is_lost_while_the_receiver_is_down_and_musterd_is_killed(muster, flags):
    with Receiver(SECRET) as receiver:
        port = receiver.port
    # The receiver does not listen any more.
    daemon = muster.musterd(more=flags(receiver))
    agent = muster.agent(NODE, slots=2)
    small_job.submit(muster, "job")
    small_job.await_step(muster, "job", 1)
    assert receiver.requests == []
    waiting = pending(muster)
    assert waiting >= 3, "QUEUED, STARTING, RUNNING"
    daemon.kill()
    muster.wait(daemon, expect=-signal.SIGKILL)
    assert pending(muster) == waiting
    daemon = muster.musterd(more=flags(receiver))
    muster.cli("wait", "job")
    with Receiver(SECRET, port=port) as receiver:
        receiver.await_state("job", "SUCCEEDED")
        await_nothing_pending(muster)
        check(receiver.history("job"))
        assert receiver.states("job") == ["QUEUED", "STARTING", "RUNNING", "SUCCEEDED"]
        muster.stop(daemon, agent)


def test_a_message_whose_answer_musterd_did_not_live_to_see_comes_again(muster, flags):
    daemon = None

    def kill_once(message):
        if message["state"] == "STARTING" and daemon.poll() is None and len(restarted) == 0:
            restarted.append(message["id"])
            daemon.kill()
            daemon.wait()
        return 204

    restarted = []
    with Receiver(SECRET, answer=kill_once) as receiver:
        daemon = muster.musterd(more=flags(receiver))
        # Before there is an agent: the answer to the submission must not be lost, too.
        small_job.submit(muster, "job")
        agent = muster.agent(NODE, slots=2)
        muster.wait(daemon, expect=-signal.SIGKILL)
        daemon = muster.musterd(more=flags(receiver))
        muster.cli("wait", "job")
        receiver.await_state("job", "SUCCEEDED")
        await_nothing_pending(muster)
        ids = [message["id"] for message in receiver.accepted]
        assert ids.count(restarted[0]) == 2
        check(receiver.history("job"))
        assert receiver.states("job") == ["QUEUED", "STARTING", "RUNNING", "SUCCEEDED"]
        muster.stop(daemon, agent)


def test_a_receiver_that_does_not_answer_delays_neither_jobs_nor_the_end_of_musterd(muster, flags):
    arrived, done = threading.Event(), threading.Event()

    def hang(message):
        arrived.set()
        done.wait()
        return 204

    with Receiver(SECRET, answer=hang) as receiver:
        daemon = muster.musterd(more=flags(receiver))
        agent = muster.agent(NODE, slots=2)
        small_job.submit(muster, "job")
        assert arrived.wait(harness.BOUND)
        muster.cli("wait", "job")
        arrived.clear()
        assert arrived.wait(harness.BOUND), "it is tried again"
        assert receiver.accepted == []
        muster.stop(daemon)
        assert receiver.accepted == [] and pending(muster) >= 4
        receiver.answer = lambda message: 204
        done.set()
        daemon = muster.musterd(more=flags(receiver))
        receiver.await_state("job", "SUCCEEDED")
        check(receiver.history("job"))
        await_nothing_pending(muster)
        muster.stop(daemon, agent)


def test_a_refused_message_is_given_up_and_a_failed_one_is_sent_again(muster, flags):
    failed = []

    def answer(message):
        if message["state"] == "STARTING":
            return 410
        if message["state"] == "QUEUED" and not failed:
            failed.append("redirect")
            return 302, {"Location": "/elsewhere"}
        if message["state"] == "RUNNING" and len(failed) < 3:
            failed.append(message["id"])
            return 500 if len(failed) == 2 else (429, {"Retry-After": "1"})
        return 204

    with Receiver(SECRET, answer=answer) as receiver:
        daemon = muster.musterd(more=flags(receiver))
        agent = muster.agent(NODE, slots=2)
        small_job.submit(muster, "job")
        muster.cli("wait", "job")
        receiver.await_state("job", "SUCCEEDED")
        await_nothing_pending(muster)
        assert receiver.states("job") == ["QUEUED", "RUNNING", "SUCCEEDED"]
        assert len(failed) == 3 and failed[0] == "redirect" and failed[1] == failed[2], failed
        log = muster.log(lines=1000)
        assert f"webhook http://127.0.0.1:{receiver.port}: answered 302, a redirect" in log
        assert "answered 410; message" in log and "is given up" in log
        assert "answered 500; message" in log and "answered 429; message" in log
        assert "/hook" not in log, "a path may be a secret"
        muster.stop(daemon, agent)


def test_an_answer_with_a_line_of_any_length_does_not_disturb_musterd(muster, flags):
    class Long(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            seen.append(self.headers["Muster-Delivery"])
            with contextlib.suppress(OSError):
                self.wfile.write(b"HTTP/1.1 200 " + b"x" * 2_000_000 + b"\r\n\r\n")
            self.close_connection = True

        def log_message(self, *_):
            pass

    seen = []
    with Receiver(SECRET, handler=Long) as receiver:
        daemon = muster.musterd(more=flags(receiver))
        small_job.submit(muster, "job")
        harness.eventually(lambda: len(seen) >= 2, "it is sent again")
        assert "have more than 16384 bytes; message" in muster.log()
        assert len(set(seen)) == 1 and pending(muster) == 1
        muster.stop(daemon)


def test_messages_for_a_receiver_that_is_not_named_any_more_are_dropped(muster, flags):
    with Receiver(SECRET) as receiver:
        pass
    daemon = muster.musterd(more=flags(receiver))
    small_job.submit(muster, "job")
    assert pending(muster) == 1
    muster.stop(daemon)
    daemon = muster.musterd()
    await_nothing_pending(muster)
    # The log has the line after the drop was stored.
    dropped = "dropped 1 messages for receivers that no --webhook names"
    harness.eventually(lambda: dropped in muster.log(), "the log says so")
    small_job.submit(muster, "another")
    assert pending(muster) == 0
    muster.stop(daemon)


def test_a_certificate_that_nobody_trusts_is_refused(muster, flags):
    ca = muster.folder / "ca"
    out = muster.folder / "receiver"
    muster.cli("certs", "init", "--ca", ca)
    muster.cli(
        *("certs", "issue", "coordinator", "receiver", "--ca", ca, "--out", out),
        *("--host", "127.0.0.1"),
    )
    with Receiver(SECRET, tls=(out / "receiver.crt", out / "receiver.key")) as receiver:
        daemon = muster.musterd(more=flags(receiver))
        small_job.submit(muster, "job")
        harness.eventually(
            lambda: "certificate is not valid for '127.0.0.1'" in muster.log(), "it is refused"
        )
        assert receiver.requests == []
        muster.stop(daemon)
        daemon = muster.musterd(more=[*flags(receiver), "--webhook-ca", out / "ca.crt"])
        receiver.await_state("job", "QUEUED")
        check(receiver.history("job"))
        muster.stop(daemon)


URL = ("--webhook", "http://localhost/")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--webhook", "localhost:80"), "--webhook: expected a URL that begins with http://"),
        (("--webhook", "ftp://host/"), "found the scheme 'ftp'"),
        (("--webhook", "http://a:b@host/"), "expected a URL without a user"),
        (("--webhook", "http://host:0/"), "expected a port from 1 to 65535"),
        ((*URL, *URL), "expected different URLs"),
        ((*URL, "--webhook-secret", "missing"), "--webhook-secret: missing: expected a file"),
        ((*URL, "--webhook-secret", "open"), "expected the mode 0600 or 0400, found 0644"),
        ((*URL, "--webhook-secret", "short"), "at least 16 bytes, found 3"),
        (("--webhook-secret", "short"), "--webhook-secret: expected also --webhook URL"),
        ((*URL, "--webhook-ca", "short"), "--webhook-ca: expected also --webhook with an https"),
        (("--webhook", "https://host/", "--webhook-ca", "short"), "expected certificates in PEM"),
    ],
)
def test_wrong_flags_are_refused_at_the_start(muster, arguments, message):
    for name, text, mode in (("open", SECRET, 0o644), ("short", "abc", 0o600)):
        (muster.folder / name).write_text(text)
        os.chmod(muster.folder / name, mode)
    daemon = muster.spawn("musterd", "--state", muster.state, *arguments)
    muster.wait(daemon, expect=2)
    assert message in muster.log()
