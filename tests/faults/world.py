"""A cluster of real programs for tests of faults: musterd and two nodes of one slot each, or
musterd with two local slots.

`start` starts killed programs again, as a supervisor would. The life span of every worker is
recorded."""

import contextlib
import os
import pathlib
import signal
import sqlite3

import torch
import yaml
from safetensors.torch import save_file

from tests.bazel import bound
from tests.faults import lifespans
from tests.process import api, harness

NODES = ("node-1", "node-2")
ENDED = (api.Job.SUCCEEDED, api.Job.FAILED, api.Job.CANCELLED)
# The seconds for any wait.
BOUND = bound(30)
# Attached agents send their reports at once; an agent that does not attach again sends none.
TOLD_BOUND = 20.0


def state_name(job):
    return api.Job.State.Name(job.state)


class World:
    """`links`: the address at which each node reaches musterd, if it is not musterd's own; filled
    before `start`."""

    def __init__(self, muster, local=False, slots=1, more=(), nodes=NODES, listen=None):
        self.muster = muster
        self.local = local
        self.nodes = nodes
        self.slots = slots
        self.more = more
        self.listen = listen
        self.links = {}
        self.prefixes = {}
        self.agent_options = {}
        self.daemon_prefix = ()
        self.daemon = None
        self.agents = {}
        self._client = None
        self._recorder = lifespans.Recorder(
            muster.marker, muster.folder.parent / f"{muster.folder.name}.lives"
        )

    # ---- Programs ----

    def start(self):
        """Starts every program that does not run."""
        self.start_daemon()
        if not self.local:
            for node in self.nodes:
                self.start_agent(node)

    def start_daemon(self):
        if self.daemon is None or self.daemon.poll() is not None:
            try:
                self.muster.musterd(
                    local_slots=2 if self.local else None,
                    listen=self.listen,
                    more=self.more,
                    prefix=self.daemon_prefix,
                )
            finally:
                # The newest process, even if it ended before it listened.
                self.daemon = self.muster._children[-1]
            # The port stays.
            self.listen = self.muster.address

    def start_agent(self, node):
        if node not in self.agents or self.agents[node].poll() is not None:
            self.agents[node] = self.muster.spawn(
                "muster-agent",
                *("--coordinator", self.links.get(node, self.muster.address)),
                *("--slots", self.slots, "--node", node, *self.agent_options.get(node, ())),
                prefix=self.prefixes.get(node, ()),
            )

    def workers(self):
        return self.muster.processes("muster-worker")

    def pid_of(self, rank, job_id="job"):
        found = [
            p.pid
            for p in self.workers()
            if p.option("--job") == job_id and p.option("--rank") == str(rank)
        ]
        assert found, f"rank {rank} has no process"
        return found[-1]

    def node_of(self, rank, job_id="job"):
        return next(status.node for status in self.get(job_id).ranks if status.rank == rank)

    def reap(self, bound=BOUND):
        """Waits for children that were killed."""
        for child in [self.daemon, *self.agents.values()]:
            with contextlib.suppress(Exception):
                child.wait(timeout=0.01)

    def kill_daemon(self, number=signal.SIGKILL):
        os.kill(self.pid_of_daemon(), number)
        self.daemon.wait(timeout=BOUND)

    def pid_of_daemon(self):
        """The pid of musterd itself, not of a tracer under which it runs."""
        return self.muster.processes("musterd")[0].pid

    def stop(self):
        self.muster.stop(*(agent for agent in self.agents.values() if agent.poll() is None))
        if self.daemon is not None and self.daemon.poll() is None:
            self.muster.stop(self.daemon)

    def close(self):
        if self._client is not None:
            self._client.close()
        self._recorder.close()

    def lives(self):
        return self._recorder.lives()

    # ---- Jobs ----

    @property
    def client(self):
        if self._client is None:
            self._client = api.Jobs(self.muster.address)
        return self._client

    def get(self, job_id="job"):
        return self.client.get(job_id)

    def await_job(self, condition, what, job_id="job", bound=BOUND):
        """Waits until condition(job) holds; returns the job."""
        last = []

        def look():
            last[:] = [self.get(job_id)]
            return condition(last[0]) and last[0]

        try:
            return harness.eventually(look, what, bound)
        except AssertionError as error:
            job = last[0] if last else None
            told = (
                f"{state_name(job)} ({job.state_reason}), generation {job.generation}, step "
                f"{job.step}"
                if job
                else "?"
            )
            raise AssertionError(f"{error}; the job is {told}\n{self.muster.log()}") from None

    def await_step(self, step, job_id="job", bound=BOUND):
        return self.await_job(
            lambda job: job.step >= step or job.state in ENDED, f"step {step}", job_id, bound
        )

    def await_end(self, job_id="job", bound=BOUND):
        return self.await_job(lambda job: job.state in ENDED, f"{job_id} ends", job_id, bound)

    def await_saved(self, step, job_id="job", bound=BOUND):
        return self.await_job(
            lambda job: any(saved.step >= step for saved in job.checkpoints) or job.state in ENDED,
            f"checkpoint {step}",
            job_id,
            bound,
        )

    def copy_database(self, target):
        """A consistent copy of the store as it is now; musterd continues to run."""
        source = sqlite3.connect(f"file:{self.muster.state / 'muster.db'}?mode=ro", uri=True)
        copy = sqlite3.connect(target)
        with contextlib.closing(source), contextlib.closing(copy):
            source.backup(copy)

    def await_told(self):
        """Waits until no agent has unsent reports of workers that have ended. A job may end before
        the node that was cut off is connected again. If reports are left after the time limit, the
        checker reports them."""
        try:
            harness.eventually(
                lambda: not list(self.muster.state.rglob("*.reports")),
                "all reports are told",
                TOLD_BOUND,
            )
        except AssertionError:
            pass

    def restore_database(self, copy):
        """musterd must not run."""
        for name in ("muster.db", "muster.db-wal", "muster.db-shm"):
            (self.muster.state / name).unlink(missing_ok=True)
        (self.muster.state / "muster.db").write_bytes(pathlib.Path(copy).read_bytes())

    def processes_named(self, *programs):
        return [process for program in programs for process in self.muster.processes(program)]


ROWS, WIDTH = 96, 8


def write_job(
    muster, plugin, name="job.yaml", sizes=None, marked=None, world_size=2, options=None, **changes
):
    """A job of the plug-in of paced.cc: small, at the test's pace, held before its end until
    `release` is called.

    `sizes`: rows of each rank, if they differ; `marked`: (rank, row) of the row that the plug-in
    recognises."""
    folder = muster.folder
    random = torch.Generator().manual_seed(5)

    def rows(path, count, mark=None):
        inputs = torch.randn(count, WIDTH, generator=random)
        if mark is not None:
            inputs[mark, 0] = 1000.0
        save_file({"inputs": inputs, "labels": torch.arange(count) % 4}, folder / path)
        return path

    if sizes is None:
        data = {"train": {"safetensors": {"path": rows("rows.safetensors", ROWS)}}}
    else:
        paths = [
            rows(
                f"rows-{rank}.safetensors",
                size,
                marked[1] if marked and marked[0] == rank else None,
            )
            for rank, size in enumerate(sizes)
        ]
        data = {"train": {"safetensors": {}, "per_rank": paths}}
    options = {
        "inputs": WIDTH,
        "width": 32,
        "classes": 4,
        "pace_ms": 5,
        "release": str(folder / "release"),
        "fault_file": str(folder / "fault"),
    } | (options or {})
    job = {
        "name": "faults",
        "world_size": world_size,
        "seed": 7,
        "model": {
            "plugin": {
                "path": str(plugin),
                "name": "paced",
                "options": {k: str(v) for k, v in options.items()},
            }
        },
        "data": data,
        "optimizer": {"adamw": {"lr": 1.0e-3, "weight_decay": 0.1}},
        "schedule": {"warmup_cosine": {"warmup_steps": 5}},
        "batch": {"per_rank": 4},
        "stages": [{"fit": {"steps": 60}}],
        "checkpoint": {"directory": "checkpoints", "every_steps": 5, "keep": 2},
        "export": {"path": "model.safetensors"},
    }
    for key, value in changes.items():
        if value is None:
            job.pop(key, None)
        else:
            job[key] = value
    path = folder / name
    path.write_text(yaml.safe_dump(job, sort_keys=False))
    return path


def release(muster):
    """Lets the job continue after its hold_step."""
    (muster.folder / "release").touch()
