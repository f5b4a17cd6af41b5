"""The receivers in examples/webhook against a real musterd. Slack is a local HTTP server, and the
module `wandb` is a stand-in that writes down what it is given: the real services are out of reach
of a test."""

import fcntl
import http.server
import importlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading

import pytest

from tests import bazel
from tests.process import api, harness, small_job

WANDB = '''
import json, os

class _Run:
    def _write(self, *what):
        with open(os.environ["WANDB_FILE"], "a") as file:
            file.write(json.dumps(what) + "\\n")
    def log(self, values, step):
        self._write("log", step, values)
    def finish(self, exit_code):
        self._write("finish", exit_code)

def init(**settings):
    run = _Run()
    run._write("init", settings)
    return run
'''


@pytest.fixture
def secret(muster):
    path = muster.folder / "secret"
    path.write_text("a secret of more than sixteen bytes\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def packages(tmp_path):
    """A folder with the package `muster` and the stand-in."""
    source = bazel.runfile("client/python/generate_stubs.py").parent
    protos = bazel.runfile("proto/muster/v1/job_service.proto").parents[3]
    shutil.copytree(source / "muster", tmp_path / "packages" / "muster")
    generate = "import generate_stubs, pathlib as p, sys as s\n"
    generate += "generate_stubs.generate(p.Path(s.argv[1]), p.Path(s.argv[2]))"
    subprocess.run(
        [sys.executable, "-c", generate, protos, tmp_path / "packages" / "muster"],
        check=True,
        env=os.environ | {"PYTHONPATH": str(source)},
    )
    (tmp_path / "packages" / "wandb.py").write_text(WANDB)
    return tmp_path / "packages"


@pytest.fixture
def start(muster, secret):
    """Starts an example; the result is its URL. It is stopped after the test."""
    examples = []

    def run(name, *arguments, **variables):
        with open(muster.folder / f"{name}.log", "wb") as log:
            example = subprocess.Popen(
                [
                    *(sys.executable, bazel.runfile(f"examples/webhook/{name}.py")),
                    *("--listen", "127.0.0.1:0", "--secret", secret, *arguments),
                ],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=muster.environment() | variables,
            )
        examples.append(example)
        port = re.fullmatch(r"listening on 127.0.0.1:(\d+)\n", example.stdout.readline())[1]
        return f"http://127.0.0.1:{port}/"

    yield run
    for example in examples:
        example.terminate()
        assert example.wait(harness.BOUND) == 0
        example.stdout.close()


@pytest.fixture
def slack():
    """A Slack that fails once; `posts` has what it took."""

    class Slack(http.server.HTTPServer):
        posts, failures = [], 1

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            text = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["text"]
            self.server.failures, fails = 0, self.server.failures > 0
            if not fails:
                self.server.posts.append(text)
            self.send_response(500 if fails else 200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = Slack(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def test_slack_gets_a_text_for_each_state(muster, secret, start, slack):
    url = start("slack", SLACK_WEBHOOK_URL=f"http://127.0.0.1:{slack.server_port}/services/x")
    daemon = muster.musterd(more=["--webhook", url, "--webhook-secret", secret])
    agent = muster.agent("node-1", slots=2)
    small_job.submit(muster, "job", restart={"max_restarts": 1})
    small_job.await_step(muster, "job", 1)
    harness.kill(muster.processes("muster-worker")[0].pid)
    muster.cli("wait", "job")
    harness.eventually(lambda: "SUCCEEDED" in "".join(slack.posts[-1:]), "Slack knows the end")
    assert slack.failures == 0, "it has failed"
    muster.stop(daemon, agent)
    running, recovering, again, succeeded = slack.posts
    assert running == again or again.startswith(running), slack.posts
    assert running.startswith(":information_source: job `job` is RUNNING")
    assert recovering.startswith(":warning: job `job` is RECOVERING") and "signal 9" in recovering
    assert succeeded == f":white_check_mark: job `job` is SUCCEEDED after step {small_job.STEPS}"


def test_slack_py_refuses_what_is_not_signed(muster, start, slack):
    url = start("slack", SLACK_WEBHOOK_URL=f"http://127.0.0.1:{slack.server_port}/")
    (muster.folder / "other").write_text("another secret of sixteen bytes")
    (muster.folder / "other").chmod(0o600)
    daemon = muster.musterd(more=["--webhook", url, "--webhook-secret", muster.folder / "other"])
    small_job.submit(muster, "job")
    harness.eventually(lambda: "answered 401" in muster.log(), "it is refused")
    assert slack.posts == []
    muster.stop(daemon)


def test_wandb_gets_the_metrics_of_a_job(muster, secret, start, packages):
    file = muster.folder / "wandb.jsonl"
    # The example needs the address of musterd, and musterd the URL of the example.
    daemon = muster.musterd()
    muster.stop(daemon)
    url = start(
        "wandb_sync",
        *("--project", "mine"),
        PYTHONPATH=str(packages),
        WANDB_FILE=str(file),
    )
    daemon = muster.musterd(more=["--webhook", url, "--webhook-secret", secret])
    agent = muster.agent("node-1", slots=2)
    small_job.submit(muster, "job")
    muster.cli("wait", "job")
    harness.eventually(
        lambda: file.exists() and '["finish"' in file.read_text(),
        "the run is finished",
    )
    begin, *logged, finish = [json.loads(line) for line in file.read_text().splitlines()]
    assert begin[0] == "init" and begin[1]["id"] == "job-1" and begin[1]["project"] == "mine"
    assert finish == ["finish", 0]
    steps = {step: values for _, step, values in logged}
    assert sorted(steps) == list(range(1, small_job.STEPS + 1))
    jobs = api.Jobs(muster.address)
    losses = {entry.step: entry.loss for entry in jobs.metrics("job")}
    jobs.close()
    assert {step: values["loss"] for step, values in steps.items()} == losses
    muster.stop(daemon, agent)


def test_wandb_gets_a_run_for_each_attempt_with_its_own_steps(muster, secret, start, packages):
    file = muster.folder / "wandb.jsonl"
    daemon = muster.musterd()
    muster.stop(daemon)
    url = start("wandb_sync", PYTHONPATH=str(packages), WANDB_FILE=str(file))
    daemon = muster.musterd(more=["--webhook", url, "--webhook-secret", secret])
    agent = muster.agent("node-1", slots=2)

    def runs():
        """{attempt: its steps}; the second attempt begins when the first run is finished."""
        found = {}
        for kind, *what in map(json.loads, file.read_text().splitlines() if file.exists() else []):
            if kind == "init":
                steps = found.setdefault(what[0]["config"]["attempt"], [])
            elif kind == "log":
                steps.append(what[0])
            else:
                steps.append("finished")
        return found

    small_job.submit(muster, "job", stages=[{"fit": {"steps": 1_000_000}}])
    small_job.await_step(muster, "job", 1)
    muster.cli("stop", "job", "--wait")
    harness.eventually(lambda: "finished" in runs().get(1, []), "the first run is finished")
    muster.cli("resume", "job")
    harness.eventually(lambda: len(runs().get(2, [])) > 2, "the second run has steps")
    muster.cli("stop", "job", "--wait")
    harness.eventually(lambda: "finished" in runs().get(2, []), "the second run is finished")
    muster.stop(daemon, agent)
    first, second = runs()[1][:-1], runs()[2][:-1]
    assert first == list(range(1, len(first) + 1)), "all steps of the first attempt"
    assert second[0] > 1 and second == list(range(second[0], second[-1] + 1)), second


def ask(url, *lines, body=b""):
    """A connection over which a request was sent that is written by hand."""
    host, port = re.fullmatch(r"http://(.*):(\d+)/", url).groups()
    connection = socket.create_connection((host, int(port)), timeout=harness.BOUND)
    connection.sendall("\r\n".join(["POST / HTTP/1.1", *lines, "", ""]).encode() + body)
    return connection


def status_of(connection):
    with connection, connection.makefile("rb") as answer:
        return int(answer.readline().split()[1])


def test_a_receiver_answers_others_while_a_stranger_is_slow(muster, start, slack):
    url = start("slack", SLACK_WEBHOOK_URL=f"http://127.0.0.1:{slack.server_port}/")
    with ask(url, "Content-Length: 10"):
        assert status_of(ask(url, "Content-Length: 2", body=b"{}")) == 401
    for length in ("Content-Length: -1", "Content-Length: x", "Content-Length: 1e3", "X: y"):
        assert status_of(ask(url, length)) == 411, length
    assert status_of(ask(url, "Content-Length: 9999999")) == 413
    assert slack.posts == []


def test_the_processes_that_follow_runs_are_limited_and_looked_after(tmp_path, monkeypatch):
    source = bazel.runfile("examples/webhook/wandb_sync.py")
    monkeypatch.syspath_prepend(str(source.parent))
    wandb_sync = importlib.import_module("wandb_sync")
    # Stands in for a follower: it ends when the file is not locked any more.
    wait = "import fcntl, sys; fcntl.flock(open(sys.argv[1]), fcntl.LOCK_SH)"
    lock = open(tmp_path / "lock", "w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    followers = wandb_sync.Followers([sys.executable, "-c", wait, lock.name])
    monkeypatch.setattr(wandb_sync, "MOST_FOLLOWERS", 2)
    try:
        followers.start("a", 1, 0)
        followers.start("a", 1, 0)
        followers.start("a", 2, 3)
        first = list(followers._running)
        assert len(first) == 2
        with pytest.raises(RuntimeError, match="2 runs are followed already"):
            followers.start("b", 1, 0)
        lock.close()

        def ended():
            followers.start("a", 1, 0)
            return all(process.returncode == 0 for process in first)

        harness.eventually(ended, "those that have ended are asked for")
        followers.start("b", 1, 0)
        assert len(followers._running) == 1
    finally:
        followers.stop()
