"""One job under one plan, from its start to its end, and the verdict."""

import contextlib
import dataclasses
import pathlib
import random
import time
import uuid

import grpc

from tests.faults import checker, disks, faults, network, plans, proxy, world
from tests.process import api, harness

# (command, step, arguments): asked for before the job starts, so that they are part of every run.
COMMANDS = (
    ("freeze", 12, ("first.*",)),
    ("set-lr", 20, ("0.002",)),
    ("unfreeze", 40, ("first.weight",)),
)
LEASE = "2s"


class Run:
    """Use as a context manager; `play` returns the list of violations."""

    def __init__(self, programs, plugin, folder, plan, strategy=None):
        self.plan = plan
        self.strategy = strategy or plan.strategy
        self.lease = float(LEASE.removesuffix("s"))
        self.plugin = plugin
        self.dice = random.Random(f"strikes {plan.kind} {plan.seed}")
        folder.mkdir(parents=True)
        self.muster = harness.Muster(programs, folder, lease=LEASE)
        self.notes = []
        self.proxies = {}
        self.network = self.disk = self.watcher = self.world = None
        # Strikes that must cost the job no restart.
        self._planned = 0
        self.lost_steps, self.lost_commands, self.damaged = (), False, None
        self._jobs, self._job_service = {}, None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.ExitStack() as stack:
            # At the end: first the processes, then what they use.
            if self.disk is not None:
                stack.callback(self.disk.close)
            if self.network is not None:
                stack.callback(self.network.close)
            for each in self.proxies.values():
                stack.callback(each.close)
            stack.callback(self.muster.close)
            if self.watcher is not None:
                stack.callback(self.watcher.close)
            if self.world is not None:
                stack.callback(self.world.close)

    def note(self, text):
        self.notes.append(text)

    def planned(self):
        self._planned += 1

    def nodes(self):
        return self.world.client.nodes()

    # ---- Jobs that are only there to be acknowledged ----

    def acknowledge_a_job(self, spec):
        """Submits a job that is queued, and stops it again. Each answer is recorded once it has
        come."""
        job_id = f"extra-{uuid.uuid4().hex[:8]}"
        self.world.client.submit(job_id, spec, timeout=2)
        self._jobs[job_id] = "submitted"
        self.world.client.stop(job_id, timeout=2)
        self._jobs[job_id] = "stopped"

    def assert_acknowledged_jobs(self):
        for job_id, what in self._jobs.items():
            job = self.world.get(job_id)
            assert (
                what != "stopped" or job.state == api.Job.CANCELLED
            ), f"I1: the stop of {job_id} was acknowledged; it is {world.state_name(job)}"

    # ---- The run ----

    def prepare(self):
        kind = self.plan.kind
        folder = self.muster.folder
        checkpoints = folder / "checkpoints"
        unmounted = kind == "mount" and self.plan.strikes[0].how["how"] == "unmount"
        if kind in ("enospc_checkpoints", "enospc_state") or unmounted:
            why = disks.allowed()
            if why:
                raise faults.Skipped(f"a disk of its own {why}")
            if kind == "enospc_state":
                self.disk = disks.Disk(self.muster.state, size="80m")
            else:
                self.disk = disks.Disk(checkpoints, size="8m")
        nodes = (*world.NODES, "node-3") if self.plan.spare else world.NODES
        more, listen = (), None
        if kind == "partition_network":
            why = network.allowed()
            if why:
                raise faults.Skipped(why)
            self.network = network.Network(nodes)
            listen = f"{self.network.host}:0"
        self.world = world.World(
            self.muster, local=self.plan.local, nodes=nodes, more=more, listen=listen
        )
        self.world.start_daemon()
        for node in nodes:
            if kind == "partition_proxy":
                self.proxies[node] = proxy.Proxy(self.muster.address)
                self.world.links[node] = self.proxies[node].address
            if self.network is not None:
                self.world.prefixes[node] = self.network.prefix(node)
                self.world.agent_options[node] = ("--host", self.network.addresses[node])

    def submit(self):
        options = {"hold_step": plans.HOLD, "pace_ms": 50 if self.plan.kind in plans.WRITES else 8}
        changes = {}
        if self.plan.kind == "hang":
            options |= {"fault": "hang", "fault_step": self.plan.strikes[0].step}
            changes["watchdog"] = {"no_progress": "6s"}
        # Before any node is there, unless musterd brings its own: then the commands come while it
        # starts.
        job = world.write_job(
            self.muster,
            self.plugin,
            options=options,
            strategy={self.strategy: {}},
            restart={"max_restarts": 50},
            stages=[{"fit": {"steps": plans.STEPS}}],
            checkpoint={"directory": "checkpoints", "every_steps": plans.EVERY, "keep": 2},
            **changes,
        )
        self.muster.cli("submit", job, "--id", "job")
        return [
            self.muster.cli(command, "job", *arguments, "--at-step", step, "-o", "json").json()[
                "name"
            ]
            for command, step, arguments in COMMANDS
        ]

    def play(self, undisturbed):
        """Returns the violations. `undisturbed`: the Result of this strategy's calm run; None: this
        is it, and its Result is given."""
        self.prepare()
        acknowledged = self.submit()
        self.watcher = checker.Watcher(self.muster.address)
        self.world.start()
        for strike in self.plan.strikes:
            if strike.fault != "hang":
                self.world.await_step(strike.step)
            faults.FAULTS[strike.fault](self, strike)
        world.release(self.muster)
        self.world.await_end()
        self.watcher.close()
        # Read after the last answer that the watcher took in: an older one would be no step back.
        job = self.world.await_end()
        self.watcher.look(job)
        if job.state != api.Job.SUCCEEDED:
            return [
                f"I9: the job ended {world.state_name(job)}: "
                f"{job.state_reason}\n{self.muster.log(30)}"
            ]
        self.world.await_told()
        result = checker.result_of(self.world)
        if undisturbed is None:
            self.finish()
            return result
        found = checker.violations(
            self.world,
            self.watcher,
            job,
            result,
            undisturbed,
            acknowledged,
            self.lost_steps,
            self.lost_commands,
            self.damaged,
        )
        if self._planned == len(self.plan.strikes) and job.restarts:
            found.append(
                f"a fault that is no failure of the job used {job.restarts} of its restarts: "
                f"{job.state_reason} {job.failure.reason}"
            )
        for each in self.proxies.values():
            each.heal()
        self.world.stop()
        return found + checker.leftovers(self.world)

    def finish(self):
        self.world.stop()
        assert checker.leftovers(self.world) == []


CALM = plans.Plan("calm", 0, "ddp", False, False, ())


def undisturbed(programs, plugin, folder, strategy):
    with Run(programs, plugin, folder, CALM, strategy) as run:
        result = run.play(None)
    assert not isinstance(result, list), result
    assert [step for step, _ in result.losses] == list(range(1, plans.STEPS + 1))
    assert (
        len({loss for _, loss in result.losses}) > plans.STEPS // 2
    ), "a loss that does not move proves nothing"
    assert [applied for *_, applied in result.commands] == [
        str(step) for _, step, _ in COMMANDS
    ], result.commands
    return result


def play(programs, plugin, folder, plan, calm, strategy=None):
    """(violations, notes, seconds) of one plan."""
    began = time.monotonic()
    with Run(programs, plugin, folder, plan, strategy) as run:
        try:
            found = run.play(calm)
        except faults.Skipped:
            raise
        except (AssertionError, grpc.RpcError, OSError) as error:
            found = [f"I9: {type(error).__name__}: {error}"]
        return found, run.notes, time.monotonic() - began
