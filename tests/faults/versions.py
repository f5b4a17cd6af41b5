"""Runs a job in a cluster with programs of two successive versions, and checks that it ends with
the same bits.

    python -m tests.faults.versions --old DIR --new DIR [--plugin paced.so]

DIR holds the four programs each. docs/how-to/upgrade.md describes what is guaranteed.
"""

import argparse
import atexit
import datetime
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

from tests.faults import programs as programs_by_hand

OLD = NEW = None
CASES = []


def case(done):
    def keep(function):
        CASES.append((done, function))
        return function

    return keep


class Mixed:
    """A run whose programs come from either folder."""

    def __init__(self, run):
        self.run, self.world, self.muster = run, run.world, run.muster

    def musterd(self, programs):
        self.muster.programs = programs
        self.world.start_daemon()

    def agent(self, node, programs):
        self.muster.programs = programs
        # Older programs load plug-ins without it.
        command = [programs / "muster-agent", "--help"]
        flags = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        self.muster.agent_arguments = ("--plugins", "/") if "--plugins" in flags else ()
        self.world.start_agent(node)

    def end_musterd(self):
        self.world.kill_daemon(signal.SIGTERM)

    def end_agent(self, node):
        from tests.faults.world import BOUND

        agent = self.world.agents[node]
        agent.send_signal(signal.SIGTERM)
        agent.wait(timeout=BOUND)


@case("agents and workers of the older version under the newer musterd")
def old_workers(mixed):
    mixed.musterd(NEW)
    submit(mixed)
    for node in ("node-1", "node-2"):
        mixed.agent(node, OLD)
    mixed.world.await_step(30)


@case("agents and workers of the newer version under the older musterd")
def new_workers(mixed):
    mixed.musterd(OLD)
    submit(mixed)
    for node in ("node-1", "node-2"):
        mixed.agent(node, NEW)
    mixed.world.await_step(30)


@case(
    "one node of each version: a job of two ranks waits, says so, starts once both are of one "
    "version"
)
def one_of_each(mixed):
    mixed.musterd(NEW)
    submit(mixed)
    mixed.agent("node-1", OLD)
    mixed.agent("node-2", NEW)
    mixed.world.await_job(
        lambda job: "not enough of them on nodes whose programs have one version"
        in job.state_reason,
        "it waits and says why",
    )
    mixed.end_agent("node-1")
    mixed.agent("node-1", NEW)
    mixed.world.await_step(30)


@case("kill -9 of a worker of the older version under the newer musterd")
def old_worker_killed(mixed):
    old_workers(mixed)
    os.kill(mixed.world.workers()[-1].pid, signal.SIGKILL)


@case("kill -9 of a worker of the newer version under the older musterd")
def new_worker_killed(mixed):
    new_workers(mixed)
    os.kill(mixed.world.workers()[-1].pid, signal.SIGKILL)


def replace_agents(mixed):
    """Replaces all agents of the job, because its ranks must have one version."""
    for node in ("node-1", "node-2"):
        mixed.end_agent(node)
    for node in ("node-1", "node-2"):
        mixed.agent(node, NEW)


@case("upgrade of a cluster while the job runs: musterd first, then the agents of the job's nodes")
def musterd_first(mixed):
    mixed.musterd(OLD)
    submit(mixed)
    for node in ("node-1", "node-2"):
        mixed.agent(node, OLD)
    mixed.world.await_step(10)
    mixed.end_musterd()
    mixed.musterd(NEW)
    mixed.world.await_step(20)
    replace_agents(mixed)
    mixed.world.await_step(40)


@case("upgrade of a cluster while the job runs: the agents of the job's nodes, musterd last")
def musterd_last(mixed):
    mixed.musterd(OLD)
    submit(mixed)
    for node in ("node-1", "node-2"):
        mixed.agent(node, OLD)
    mixed.world.await_step(10)
    replace_agents(mixed)
    mixed.world.await_step(30)
    mixed.end_musterd()
    mixed.musterd(NEW)
    mixed.world.await_step(40)


@case("the command line of the older version under the newer programs")
def old_client(mixed):
    with_client_of(mixed, daemon=NEW, client=OLD)


@case("the command line of the newer version under the older programs")
def new_client(mixed):
    with_client_of(mixed, daemon=OLD, client=NEW)


# Patterns of the output of each command while the job runs.
SHOWN = {
    "get": [r"\bjob\b", r"\bRUNNING\b"],
    "ranks": [r"\bnode-1\b", r"\bnode-2\b"],
    "operations": ["job/1", "job/2", "job/3"],
    "trainability": [r"first\.weight"],
    "metrics": [r"^ *30 +[0-9.]+"],
    "logs": [r"rank"],
    "nodes": [r"node-1 .*ATTACHED", r"node-2 .*ATTACHED"],
}


def with_client_of(mixed, daemon, client):
    mixed.musterd(daemon)
    mixed.muster.programs = client
    submit(mixed)
    for node in ("node-1", "node-2"):
        mixed.agent(node, daemon)
    mixed.world.await_step(30)
    mixed.muster.programs = client
    for command, shown in SHOWN.items():
        job = () if command == "nodes" else ("job",)
        told = mixed.muster.cli(command, *job).out
        for pattern in shown:
            assert re.search(pattern, told, re.MULTILINE), f"muster {command}: no {pattern}: {told}"
    mixed.muster.programs = daemon


def submit(mixed):
    """By the command line of the folder that was used last."""
    mixed.acknowledged = mixed.run.submit()


def play(function, plugin, folder, calm):
    from tests.faults import checker, plans, run, world
    from tests.process import api

    with run.Run(
        OLD, plugin, folder, plans.Plan("versions", 0, "ddp", False, False, ()), "ddp"
    ) as one:
        one.world = world.World(one.muster)
        mixed = Mixed(one)
        function(mixed)
        world.release(one.muster)
        job = one.world.await_end()
        if job.state != api.Job.SUCCEEDED:
            return f"{world.state_name(job)}: {job.state_reason}", False
        one.muster.programs = NEW
        result = checker.result_of(one.world)
        versions = sorted({node.version for node in one.world.client.nodes().nodes})
        one.world.stop()
        wrong = result.differences(calm) + checker.leftovers(one.world)
        text = (
            f"SUCCEEDED, generation {job.generation}, {job.restarts} restarts used; versions of "
            f"the agents at the end: {', '.join(versions)}"
        )
        text += (
            f"; different from the undisturbed run: {', '.join(wrong)}"
            if wrong
            else "; losses, weights, commands and checkpoints are those of the undisturbed run, "
            "to the bit"
        )
        return text, not wrong


def main():
    # SIGTERM raises, so that the processes of a terminated run are ended, too.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    global OLD, NEW
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--old", required=True)
    parser.add_argument("--new", required=True)
    parser.add_argument("--plugin")
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    plugin = programs_by_hand.use(arguments.plugin)
    OLD, NEW = programs_by_hand.check(arguments.old), programs_by_hand.check(arguments.new)
    from tests.faults import run

    work = pathlib.Path(tempfile.mkdtemp(prefix="muster-versions-"))
    # The folder is removed even if this run is terminated.
    atexit.register(shutil.rmtree, work, ignore_errors=True)
    calm = run.undisturbed(NEW, plugin, work / "calm", "ddp")
    print(
        f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC\n\n| what ran "
        f"together | what happened | as it should be |\n|---|---|---|",
        flush=True,
    )
    bad = 0
    for number, (done, function) in enumerate(CASES):
        if arguments.only not in done:
            continue
        try:
            text, good = play(function, plugin, work / str(number), calm)
        except Exception as error:
            text, good = f"{type(error).__name__}: {' '.join(str(error).split())[:600]}", False
        print(f"| {done} | {text.replace('|', '/')} | {'yes' if good else 'NO'} |", flush=True)
        bad += not good
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
