"""The times at which each worker process of a test began and ended, seen from outside.

    python -m tests.faults.lifespans MARKER FILE

polls /proc for processes whose environment holds MARKER, and their pidfds for their ends; it writes
a JSON line for each beginning and each end, until it is terminated. Times are seconds since the
machine was started. The time of a beginning is from /proc/PID/stat, exact to a hundredth of a
second. An end is between two polls, and the times of both are written. So an overlap that is found
is certain, however late the recorder polled."""

import dataclasses
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import time

TICKS = os.sysconf("SC_CLK_TCK")
# The pause between two polls of /proc; pidfds are polled in every round.
SCAN_SECONDS = 0.02
ROUND_MILLISECONDS = 5


def uptime():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def start_time(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[19]) / TICKS


@dataclasses.dataclass(frozen=True)
class Life:
    pid: int
    job: str
    generation: int
    rank: int
    # A process that began in [start, start + 1/TICKS), and ended in (end_after, end_by]. Infinity:
    # no end was seen.
    start: float
    end_after: float = float("inf")
    end_by: float = float("inf")

    def overlaps(self, other):
        """Returns True if both overlap with certainty, by more than the resolution of the clock."""
        grain = 1 / TICKS
        return self.start + grain < other.end_after and other.start + grain < self.end_after


class Recorder:
    """Runs this file as a separate process, so that the test's own work does not delay it."""

    def __init__(self, marker, file):
        self._file = file
        self._file.touch()
        # Its environment must not hold the marker: it is no process of the test.
        environment = {name: value for name, value in os.environ.items() if value != marker}
        self._process = subprocess.Popen(
            [sys.executable, pathlib.Path(__file__), marker, file],
            stdin=subprocess.DEVNULL,
            env=environment,
        )

    def lives(self):
        begun, ended = {}, {}
        for line in self._file.read_text().splitlines():
            entry = json.loads(line)
            (begun if "start" in entry else ended)[(entry["pid"], entry["began"])] = entry
        lives = []
        for key, entry in begun.items():
            end = ended.get(key, {})
            lives.append(
                Life(
                    entry["pid"],
                    entry["job"],
                    entry["generation"],
                    entry["rank"],
                    entry["start"],
                    end.get("after", float("inf")),
                    end.get("by", float("inf")),
                )
            )
        return sorted(lives, key=lambda life: life.start)

    def close(self):
        self._process.send_signal(signal.SIGTERM)
        self._process.wait()


def overlaps(lives):
    """Pairs of processes of one job that ran at the same time but must not: of two generations, or
    with the same rank."""
    return [
        (one, other)
        for index, one in enumerate(lives)
        for other in lives[index + 1 :]
        if one.job == other.job
        and (one.generation != other.generation or one.rank == other.rank)
        and one.overlaps(other)
    ]


def _worker(pid, marker, never):
    """Its (job, generation, rank), if it is a worker of the test; None: not yet. A process that
    will never be one is added to `never`."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().split(b"\0")
        program = words[0].rsplit(b"/", 1)[-1]
        # A process that an agent has just forked looks like the agent.
        if program != b"muster-worker":
            if program != b"muster-agent":
                never.add(pid)
            return None
        with open(f"/proc/{pid}/environ", "rb") as file:
            if marker not in file.read():
                never.add(pid)
                return None
    except OSError:
        return None
    words = [word.decode() for word in words]
    option = lambda name: words[words.index(name) + 1]
    return option("--job"), int(option("--generation")), int(option("--rank"))


def _record(marker, file):
    known, watched, scanned = set(), {}, 0.0
    # Process ids are reused, so all are checked again every second.
    never, forgotten = set(), 0.0
    poll = select.poll()
    before = uptime()
    while True:
        ready = poll.poll(ROUND_MILLISECONDS)
        now = uptime()
        for descriptor, _ in ready:
            pid, began = watched.pop(descriptor)
            poll.unregister(descriptor)
            os.close(descriptor)
            # The number may be given out again.
            known.discard(pid)
            file.write(json.dumps({"pid": pid, "began": began, "after": before, "by": now}) + "\n")
        before = now
        if now - scanned < SCAN_SECONDS:
            continue
        scanned = now
        if now - forgotten > 1:
            never.clear()
            forgotten = now
        for name in os.listdir("/proc"):
            if not name.isdigit() or int(name) in known or int(name) in never:
                continue
            pid = int(name)
            worker = _worker(pid, marker, never)
            if worker is None:
                continue
            try:
                began = start_time(pid)
                descriptor = os.pidfd_open(pid)
            except OSError:
                continue
            known.add(pid)
            watched[descriptor] = (pid, began)
            poll.register(descriptor, select.POLLIN)
            job, generation, rank = worker
            entry = {
                "pid": pid,
                "began": began,
                "start": began,
                "job": job,
                "generation": generation,
                "rank": rank,
            }
            file.write(json.dumps(entry) + "\n")
        file.flush()


if __name__ == "__main__":
    with open(sys.argv[2], "a", encoding="utf-8", buffering=1) as output:
        _record(sys.argv[1].encode(), output)
