#!/usr/bin/env python3
"""The cost of measuring Muster from outside: `bench/monitoring/run.py` builds, measures and prints
the table. One job trains with all outputs on: `--http`, scraped once a second; `metrics:
{tensorboard}`; `--webhook`, whose receiver accepts everything. Two jobs train with all outputs off.
Each block has new processes, because two processes of one program differ by more than what is
measured here. CPU seconds of the workers, the agent and musterd count. bench/README.md says why."""

import argparse
import contextlib
import http.server
import os
import pathlib
import statistics
import sys
import tempfile
import threading
import time
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
# Name, and whether all of it is on.
ARMS = [("everything on", True), ("everything off", False), ("off, again", False)]


class Receiver(http.server.BaseHTTPRequestHandler):
    """A receiver of webhooks."""

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


class Figures:
    """The results of an arm's blocks, in the order of the rounds."""

    def __init__(self, name):
        self.name = name
        # Per step: seconds, CPU seconds, and those of musterd and the agent alone.
        self.measured = []
        self.foreign = []  # cores that other processes used
        self.shortest = None  # the losses of the block that had the fewest steps


@contextlib.contextmanager
def training(everything, case, inputs, folder, programs, hook):
    """A job on new processes, past its warm-up: yields (harness.Muster, scraper or None)."""
    job = case.job(inputs, steps=10_000_000)
    more = ()
    if everything:
        job |= {"metrics": {"tensorboard": str(folder / "tensorboard")}}
        port_file = folder / "http"
        more = ("--http", "127.0.0.1:0", "--http-port-file", port_file)
        more += ("--webhook", f"http://127.0.0.1:{hook.server_address[1]}/")
    own = cluster.install(lambda path: programs / pathlib.Path(path).name, folder / "bin")
    started = cluster.Cluster(own, folder, slots=WORLD_SIZE, lease="1h", more=more)
    arm = harness.Muster(case.name, job, started, lambda: children(started.pid))
    scraper = None
    try:
        scraper = Scraper((folder / "http").read_text().strip()) if everything else None
        while arm.steps_done() < harness.WARM_UP_STEPS:
            time.sleep(0.05)
        yield arm, scraper
    finally:
        if scraper is not None:
            scraper.close()
        arm.close()


def services_cpu(arm):
    return sum(map(harness.cpu_seconds, arm.others))


def measure_block(figures, everything, case, inputs, programs, hook, seconds):
    """Adds one block to `figures`. Returns the number of scrapes."""
    with tempfile.TemporaryDirectory(prefix="muster-bench-block-") as name:
        folder = pathlib.Path(name)
        with training(everything, case, inputs, folder, programs, hook) as (arm, scraper):
            before = arm.steps_done()
            services, cpu = services_cpu(arm), arm.cpu()
            machine, start = harness.machine_cpu_seconds(), time.monotonic()
            time.sleep(seconds)
            cpu, wall = arm.cpu() - cpu, time.monotonic() - start
            machine = harness.machine_cpu_seconds() - machine
            services = services_cpu(arm) - services
            after = arm.steps_done()
            # Not the first and the last one, which are partly outside of the block.
            mean = statistics.fmean(arm.step_seconds()[before + 1 : after - 1])
            figures.measured.append((mean, cpu * mean / wall, services * mean / wall))
            figures.foreign.append(max(0.0, machine - cpu) / wall)
            losses = arm.losses()
            if figures.shortest is None or len(losses) < len(figures.shortest):
                figures.shortest = losses
            if scraper is None:
                return 0
            assert scraper.failed is None, scraper.failed
            assert list((folder / "tensorboard").rglob("events.*"))
            return scraper.scrapes


def children(pid):
    threads = pathlib.Path(f"/proc/{pid}/task").iterdir()
    found = " ".join((thread / "children").read_text() for thread in threads).split()
    assert len(found) == 1, found
    return map(int, found)


def show(case, arms, rounds, scrapes, received):
    on, off, again = arms

    def ratio(index, arm, *bases):
        """To the mean of `bases` in the same round."""
        rounds = zip(arm.measured, *(base.measured for base in bases))
        return interval(
            [
                one[index] / statistics.fmean(base[index] for base in others)
                for one, *others in rounds
            ]
        )

    print(f"\n### {case.name}\n")
    print("| | ms per step | CPU s per step | of it musterd and agent | CPU, ratio to off (95%) |")
    print("|---|---|---|---|---|")
    for arm in arms:
        time_, cpu, services = (
            statistics.median(one[index] for one in arm.measured) for index in range(3)
        )
        shown = "1"
        if arm is not off:
            bases = (off, again) if arm is on else (off,)
            shown = "%.4f (%.4f to %.4f)" % ratio(1, arm, *bases)
        print(f"| {arm.name} | {1e3 * time_:.2f} | {cpu:.5f} | {services:.5f} | {shown} |")
    print("\nTime of a step, on to off: %.4f (%.4f to %.4f)." % ratio(0, on, off, again))
    foreign = [cores for arm in arms for cores in arm.foreign]
    print(
        f"\n{len(on.measured)} quiet rounds of {rounds}; other processes used "
        f"{statistics.median(foreign):.2f} cores in their median block, {max(foreign):.2f} in the "
        f"worst. {scrapes} scrapes, {received} messages of the webhook."
    )
    _, low, high = ratio(1, again, off)
    if not (low <= 1 <= high and 0.98 <= low and high <= 1.02 and len(on.measured) >= 15):
        print("\n**No resolution, no claim**: off against off is not within 2% of 1.")
    count = min(len(arm.shortest) for arm in arms)
    same = all(arm.shortest[:count] == off.shortest[:count] for arm in arms)
    verdict = "the same" if same else "different: **void**"
    print(f"\nLosses of the first {count} steps are {verdict}.")


def measure(case, arguments, programs):
    """Rounds until `--rounds` of them were quiet, at most twice as many."""
    arms = [Figures(name) for name, _ in ARMS]
    scrapes = rounds = 0
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as name, receiver() as hook:
        inputs = pathlib.Path(name)
        case.write(inputs)
        while len(arms[0].measured) < arguments.rounds and rounds < 2 * arguments.rounds:
            rounds += 1
            order = list(zip(arms, ARMS))[:: 1 if rounds % 2 else -1]
            for figures, (_, everything) in order:
                details = (everything, case, inputs, programs, hook, arguments.block)
                scrapes += measure_block(figures, *details)
            foreign = max(figures.foreign[-1] for figures in arms)
            if foreign > harness.FOREIGN_CORES:
                for figures in arms:
                    figures.measured.pop()
                    figures.foreign.pop()
            print(
                f"{case.name}: {len(arms[0].measured)} of {arguments.rounds} rounds; others used "
                f"{foreign:.2f} cores; "
                + ", ".join(f"{arm.measured[-1][1]:.4f}" for arm in arms if arm.measured),
                file=sys.stderr,
            )
        if len(arms[0].measured) < 2:
            print(f"\n### {case.name}\n\nnever quiet: nothing was measured", flush=True)
            return
        assert scrapes and hook.received
        show(case, arms, rounds, scrapes, hook.received)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=["gpt-4x256"])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--block", type=float, default=6.0, help="seconds")
    parser.add_argument("--programs", help="folder with the four programs; built when not given")
    arguments = parser.parse_args()
    with harness.programs_of(arguments.programs) as programs:
        for name in arguments.cases:
            measure(CASES[name], arguments, pathlib.Path(programs))


if __name__ == "__main__":
    main()
