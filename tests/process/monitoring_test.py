"""musterd seen from outside: Debian's Prometheus scrapes a cluster that trains, and the values that
it has are those of the command line."""

import json
import math
import re
import signal
import socket
import subprocess

import pytest
import yaml

from tests import bazel, cases
from tests.process import harness, paced_job, prometheus, small_job

# All cases: two minutes of them.
SCRAPES = 40 if cases.all_are_run() else 5
DOCS = "docs/how-to/monitoring.md"
ALERTS = "deploy/monitoring/alerts.yml"
DASHBOARD = "deploy/monitoring/dashboard.json"
PURPOSES = ["parameters", "gathered", "gradients", "moments", "buckets", "activations", "other"]


def start(muster, *more, http="127.0.0.1:0", local_slots=None):
    """musterd with pages; its process, and their address."""
    port_file = muster.folder / "http-port"
    daemon = muster.musterd(
        local_slots=local_slots, more=["--http", http, "--http-port-file", port_file, *more]
    )
    address = port_file.read_text().strip()
    # Through the loopback address, also if it listens on all.
    pages = address.replace("0.0.0.0", "127.0.0.1")
    harness.eventually(lambda: prometheus.get(pages, "/readyz")[0] == 200, "musterd is ready")
    return daemon, address


def promtool(*arguments, stdin=""):
    """promtool finds nothing to complain about."""
    done = subprocess.run(
        [prometheus.program("promtool"), *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"promtool {arguments}:\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def exported(text):
    """{metric: (type, help, labels)} of a text for Prometheus; labels: of all its samples."""
    found = {}
    for line in text.splitlines():
        if match := re.fullmatch(r"# HELP (\S+) (.*)", line):
            found[match[1]] = ["", match[2], None]
        elif match := re.fullmatch(r"# TYPE (\S+) (\S+)", line):
            found[match[1]][0] = match[2]
        elif match := re.fullmatch(r"([a-z_:]+?)(_bucket|_sum|_count)?(?:\{(.*)\})? (\S+)", line):
            name = match[1] if match[1] in found else match[1] + match[2]
            labels = set(re.findall(r'(\w+)="', match[3] or "")) - {"le"}
            found[name][2] = labels | (found[name][2] or set())
    return found


def documented():
    """{metric: (type, meaning, labels)} of the page's tables."""
    text = bazel.runfile(DOCS).read_text()
    rows = re.findall(r"^\| `(muster_\w+)` \| (\w+) \|([^|]*)\| (.*) \|$", text, re.M)
    return {
        name: (kind, meaning, set(re.findall(r"`(\w+)`", labels)))
        for name, kind, labels, meaning in rows
    }


def expressions():
    """(where, expression) of each panel of the dashboard and of each alert."""
    board = json.loads(bazel.runfile(DASHBOARD).read_text())
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            yield f"panel {panel['title']}", target["expr"]
    for group in yaml.safe_load(bazel.runfile(ALERTS).read_text())["groups"]:
        for rule in group["rules"]:
            yield f"alert {rule['alert']}", rule["expr"]


def test_a_training_cluster_is_scraped_without_errors_and_with_its_true_values(muster):
    daemon, address = start(muster)
    agents = [muster.agent("node-1"), muster.agent("node-2")]
    scraper = prometheus.Prometheus(muster, address, rules=bazel.runfile(ALERTS))
    small_job.submit(muster, "first", stages=[{"fit": {"steps": 1_000_000}}])
    small_job.submit(muster, "second")
    small_job.await_step(muster, "first", 30)
    harness.eventually(
        lambda: scraper.value('muster_job_step{job_id="first"}'), "Prometheus has seen a step"
    )
    # Strangers who say nothing, or never say all, while Prometheus scrapes.
    host, port = address.rsplit(":", 1)
    strangers = []
    for number in range(300):
        strangers.append(socket.create_connection((host, int(port)), timeout=harness.BOUND))
        if number % 2:
            strangers[-1].send(b"GET /metrics HTTP/1.1\r\nX: ")
    before = scraper.scrapes()[0]
    harness.eventually(
        lambda: scraper.scrapes()[0] >= before + SCRAPES, f"there were {SCRAPES} scrapes"
    )
    for stranger in strangers:
        stranger.close()
    # While it is paused, nothing changes, once its last step has arrived.
    muster.cli("pause", "first", "--wait")

    def settled():
        job = small_job.get(muster, "first")
        paused = 'muster_job_state{job_id="first",state="PAUSED"}'
        same = scraper.value('muster_job_step{job_id="first"}') == int(job["step"])
        return job["state"] == "PAUSED" and same and scraper.value(paused) == 1 and job

    job = harness.eventually(settled, "Prometheus has the values of the paused job")

    def value(metric, labels='job_id="first"'):
        return scraper.value(f"{metric}{{{labels}}}")

    for metric, field in {
        "muster_job_step": "step",
        "muster_job_planned_steps": "total_steps",
        "muster_job_loss": "loss",
        "muster_job_gradient_norm": "grad_norm",
        "muster_job_samples_per_second": "samples_per_second",
        "muster_job_world_size": "world_size",
        "muster_job_active_ranks": "active_ranks",
        "muster_job_generation": "generation",
        "muster_job_attempt": "attempt",
    }.items():
        # The text for Prometheus has 16 digits.
        assert math.isclose(value(metric), float(job[field]), rel_tol=1e-15), (metric, job)
    newest = muster.cli("metrics", "first", "-o", "json").out.splitlines()[-1]
    assert value("muster_job_learning_rate") == json.loads(newest)["learning_rate"]
    assert value("muster_job_joined_ranks") == 0 == value("muster_job_restarts_total")
    assert value("muster_job_restarts_left") == float(job.get("restarts_left", 0))
    assert value("muster_job_tokens_per_second") is None, "the model has no tokens"
    for rank in job["ranks"]:
        labels = f'job_id="first",rank="{rank.get("rank", 0)}"'
        assert value("muster_rank_step", labels) == float(rank["step"])
        assert value("muster_rank_info", f'{labels},node="{rank["node"]}"') == 1
        assert value("muster_rank_state", f'{labels},state="{rank["state"]}"') == 1
        assert 0 <= value("muster_rank_silence_seconds", labels) < harness.BOUND
        for purpose in PURPOSES:
            if purpose in ("parameters", "moments"):
                found = value("muster_rank_memory_bytes", f'{labels},purpose="{purpose}"')
                assert found == float(rank["memory"][purpose]["bytes"]), (rank, purpose)
        assert value("muster_rank_resident_memory_bytes", labels) > 1e6
    assert scraper.value('sum(muster_jobs{state="PAUSED"})') == 1
    assert scraper.value('sum(muster_jobs)') == 2
    assert scraper.value('muster_ranks{state="ATTACHED"}') == 2
    assert scraper.value('muster_slots{device="cpu"}') == 2
    assert scraper.value('muster_slots_used{device="cpu"}') == 2
    # The second job waits for the slots of the first one.
    assert scraper.value('muster_queue_jobs{device="cpu"}') == 1
    assert scraper.value('muster_queue_oldest_wait_seconds{device="cpu"}') > 0
    assert scraper.value('muster_nodes{state="ATTACHED"}') == 2
    assert scraper.value("muster_store_writable") == 1
    assert scraper.value('sum(muster_store_duration_seconds_count{access="commit"})') > 30
    assert scraper.value(
        'muster_rpc_duration_seconds_count{method="muster.v1.JobService/SubmitJob",code="OK"}'
    ) == 2
    assert abs(scraper.value("muster_process_start_time_seconds - time()")) < 1e5
    assert value("muster_process_open_fds", "") > 5 and value("muster_process_max_fds", "") > 100
    assert value("muster_process_resident_memory_bytes", "") > 1e6
    assert value("muster_process_cpu_seconds_total", "") > 0

    # All that is told, and how.
    status, text = prometheus.get(address, "/metrics")
    assert status == 200
    assert promtool("check", "metrics", stdin=text) == ""
    told, written = exported(text), documented()
    assert told.keys() == written.keys(), f"{DOCS} and /metrics have different metrics"
    for name, (kind, meaning, labels) in told.items():
        assert (kind, meaning) == written[name][:2], name
        assert labels in (None, written[name][2]), name
    for where, expression in expressions():
        scraper.api("query", query=expression.replace("$job", ".*"))
        assert where
    # Rules that fail to be evaluated are told here.
    for group in scraper.api("rules")["groups"]:
        for rule in group["rules"]:
            assert rule["health"] == "ok", rule

    # The second job must not start: workers that are killed at their start leave a temporary file.
    muster.cli("stop", "second", "--wait")
    # The last values of a job that has ended are seen.
    muster.cli("stop", "first", "--wait")
    harness.eventually(
        lambda: scraper.query('muster_job_state{job_id="first",state="CANCELLED"} == 1'),
        "Prometheus sees the end of the job",
    )
    assert value("muster_job_step") == float(small_job.get(muster, "first")["step"])
    assert value("muster_job_samples_per_second") is None
    assert value("muster_rank_step", 'job_id="first",rank="0"') is None
    assert scraper.scrapes()[1] == 0, "no scrape failed"
    scraper.stop()
    muster.stop(daemon, *agents)


def test_a_musterd_without_jobs_tells_every_metric(muster):
    daemon, address = start(muster)
    status, text = prometheus.get(address, "/metrics")
    assert status == 200
    assert promtool("check", "metrics", stdin=text) == ""
    assert exported(text).keys() == documented().keys()
    for path in ("/healthz", "/readyz"):
        assert prometheus.get(address, path) == (200, "ok\n")
    status, text = prometheus.get(address, "/")
    assert status == 404 and "/metrics, /healthz, /readyz" in text
    assert prometheus.get(address, "/metrics", {"Host": "evil.example"})[0] == 403
    muster.stop(daemon)


def test_musterd_says_that_it_is_stopping(muster):
    # Nobody is given up while a worker stands still.
    muster.lease = "60s"
    daemon, address = start(muster, local_slots=2)
    small_job.submit(muster, "job", stages=[{"fit": {"steps": 1_000_000}}])
    small_job.await_step(muster, "job", 1)
    # The end waits for the job's next step.
    worker = muster.processes("muster-worker")[0]
    harness.kill(worker.pid, signal.SIGSTOP)
    daemon.terminate()

    def stopping():
        status, text = prometheus.get(address, "/readyz")
        return status == 503 and text == "musterd is stopping\n"

    harness.eventually(stopping, "/readyz says so")
    assert prometheus.get(address, "/healthz") == (200, "ok\n")
    harness.kill(worker.pid, signal.SIGCONT)
    muster.wait(daemon)




def test_an_address_that_other_hosts_reach_needs_a_flag(muster):
    refused = muster.spawn("musterd", "--state", muster.state, "--http", "0.0.0.0:0")
    muster.wait(refused, expect=2)
    assert "--http-insecure" in muster.log(3)
    daemon, address = start(muster, "--http-insecure", http="0.0.0.0:0")
    own = address.replace("0.0.0.0", "127.0.0.1")
    assert prometheus.get(own, "/readyz", {"Host": "any.example"})[0] == 200
    muster.stop(daemon)


def test_a_port_that_is_in_use_is_named_with_what_to_do(muster):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        refused = muster.spawn("musterd", "--state", muster.state, "--http", address)
        muster.wait(refused, expect=1)
    told = muster.log(3)
    assert address in told and "in use" in told and "choose another address" in told


def test_the_pages_can_be_read_through_a_unix_socket(muster):
    path = muster.runtime / "http"
    daemon = muster.musterd(more=["--http", f"unix:{path}"])
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(harness.BOUND)
        connection.connect(str(path))
        connection.send(b"GET /readyz HTTP/1.0\r\n\r\n")
        answer = b"".join(iter(lambda: connection.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n") and answer.endswith(b"\r\n\r\nok\n")
    muster.stop(daemon)
    assert not path.exists()


@pytest.mark.parametrize("where, expression", list(expressions()))
def test_a_panel_or_an_alert_uses_only_metrics_that_there_are(where, expression):
    names = set(re.findall(r"\bmuster_\w+", expression))
    there = documented()
    for name in names:
        base = re.sub(r"_(bucket|sum|count)$", "", name)
        assert name in there or there.get(base, [""])[0] == "histogram", f"{where}: {name}"
    assert names or "up{" in expression or "up " in expression, where


def test_promtool_accepts_the_example_and_the_alerts_fire(tmp_path):
    for name in ("prometheus.yml", "alerts.yml", "alerts_test.yml"):
        text = bazel.runfile(f"deploy/monitoring/{name}").read_text()
        (tmp_path / name).write_text(text)
    promtool("check", "config", tmp_path / "prometheus.yml")
    promtool("check", "rules", tmp_path / "alerts.yml")
    promtool("test", "rules", tmp_path / "alerts_test.yml")
    # Each alert is tested.
    alerts = {where.removeprefix("alert ") for where, _ in expressions() if "alert" in where}
    tests = (tmp_path / "alerts_test.yml").read_text()
    assert alerts == set(re.findall(r"alertname: (\w+)", tests))
