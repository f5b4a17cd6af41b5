#!/usr/bin/env python3
"""What it costs to measure Muster from outside: `bench/outside/run.py` builds, measures and prints
the table. One job trains with all of it on (`--http`, scraped once a second; `metrics:
{tensorboard}`; `--webhook`, whose receiver accepts everything), one with all of it off, and one
more with all of it off. CPU seconds count of the workers, the agent and musterd. The method stands
in bench/harness.py; bench/README.md says why."""

import argparse
import contextlib
import http.server
import os
import pathlib
import statistics
import sys
import tempfile
import threading
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = pathlib.Path.home() / ".cache/muster/venv/bin/python"
if __name__ == "__main__" and pathlib.Path(sys.executable) != PYTHON:
    os.execv(PYTHON, [PYTHON, *sys.argv])
sys.path.insert(0, str(ROOT))

from bench import harness  # noqa: E402
from bench.ddp.cases import CASES, WORLD_SIZE  # noqa: E402
from bench.interval import interval  # noqa: E402
from tests.parity import cluster  # noqa: E402

SCRAPE_SECONDS = 1.0


class Receiver(http.server.BaseHTTPRequestHandler):
    """Of webhooks."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received += 1
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def receiver():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    server.received = 0
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Scraper:
    """Reads /metrics once a second; its own CPU time is that of another program."""

    def __init__(self, address):
        self._url = f"http://{address}/metrics"
        self._end = threading.Event()
        self.scrapes = 0
        self.failed = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        while not self._end.wait(SCRAPE_SECONDS):
            try:
                with urllib.request.urlopen(self._url, timeout=10) as answer:
                    assert b"muster_" in answer.read()
                self.scrapes += 1
            except Exception as error:
                self.failed = error
                return

    def close(self):
        self._end.set()
        self._thread.join()


def start(name, everything, case, inputs, folder, programs, hook):
    job = case.job(inputs, steps=10_000_000)
    more = ()
    if everything:
        job |= {"metrics": {"tensorboard": str(folder / "tensorboard")}}
        port_file = folder / "http"
        more = ("--http", "127.0.0.1:0", "--http-port-file", port_file)
        more += ("--webhook", f"http://127.0.0.1:{hook.server_address[1]}/")
    own = cluster.install(lambda path: programs / pathlib.Path(path).name, folder / "bin")
    started = cluster.Cluster(own, folder, slots=WORLD_SIZE, lease="1h", more=more)
    arm = harness.Muster(name, job, started, lambda: children(started.pid))
    arm.scraper = Scraper((folder / "http").read_text().strip()) if everything else None
    return arm


def children(pid):
    threads = pathlib.Path(f"/proc/{pid}/task").iterdir()
    found = " ".join((thread / "children").read_text() for thread in threads).split()
    assert len(found) == 1, found
    return map(int, found)


def show(case, arms, rounds, scrapes, received):
    on, off, again = arms

    def ratio(arm, base, index):
        pairs = zip(arm.measured, base.measured)
        return interval([one[index] / other[index] for one, other in pairs])

    print(f"\n### {case.name}\n")
    print("| | ms per step | CPU s per step | CPU, ratio to off (95%) | time, ratio to off (95%) |")
    print("|---|---|---|---|---|")
    for arm in arms:
        time, cpu = (statistics.median(one[index] for one in arm.measured) for index in (0, 1))
        shown = ["1", "1"]
        if arm is not off:
            shown = ["%.4f (%.4f to %.4f)" % ratio(arm, off, index) for index in (1, 0)]
        print(f"| {arm.name} | {1e3 * time:.2f} | {cpu:.5f} | {shown[0]} | {shown[1]} |")
    foreign = [block.foreign / block.wall for arm in arms for block in arm.blocks_used]
    print(
        f"\n{len(on.blocks_used)} quiet rounds of {rounds}; other processes used "
        f"{statistics.median(foreign):.2f} cores in their median block, {max(foreign):.2f} in the "
        f"worst. {scrapes} scrapes, {received} messages of the webhook."
    )
    _, low, high = ratio(again, off, 1)
    if not (low <= 1 <= high and 0.98 <= low and high <= 1.02 and len(on.blocks_used) >= 15):
        print("\n**No resolution, no claim**: off against off is not within 2% of 1.")
    count = min(100, len(on.losses()), len(off.losses()))
    same = on.losses()[:count] == off.losses()[:count]
    verdict = "the same" if same else "different: **void**"
    print(f"\nLosses of the first {count} steps are {verdict}.")


def measure(case, arguments, programs):
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as name, receiver() as hook:
        folder = pathlib.Path(name)
        inputs = folder / "inputs"
        inputs.mkdir()
        case.write(inputs)
        arms = []
        try:
            for number, (arm, everything) in enumerate(
                [("everything on", True), ("everything off", False), ("off, again", False)]
            ):
                beside = folder / str(number)
                beside.mkdir()
                details = (everything, case, inputs, beside, programs, hook)
                harness.start(case.name, arms, start, arm, *details)
            rounds = harness.run_rounds(case.name, arms, arguments.rounds, arguments.block)
            if rounds is not None:
                scraper = arms[0].scraper
                assert scraper.failed is None, scraper.failed
                events = list((folder / "0" / "tensorboard").rglob("events.*"))
                assert scraper.scrapes and hook.received and events
                show(case, arms, rounds, scraper.scrapes, hook.received)
        finally:
            for arm in arms:
                if arm.scraper is not None:
                    arm.scraper.close()
                arm.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=["gpt-4x256"])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--block", type=float, default=3.0, help="seconds")
    parser.add_argument("--programs", help="folder with the four programs; built when not given")
    arguments = parser.parse_args()
    with harness.programs_of(arguments.programs) as programs:
        for name in arguments.cases:
            measure(CASES[name], arguments, pathlib.Path(programs))


if __name__ == "__main__":
    main()
