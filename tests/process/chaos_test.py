"""kill -9 of any program at any moment: the job ends with the same bits as without kills.

A seed gives a plan: the processes that are killed, each at a point of the job's progress. A point
is a reported step or the beginning of a save, and never a time. What is killed from outside is
started again by the test, as a supervisor would: musterd on its state folder and port, agents under
their names. Workers are restarted by Muster itself."""

import dataclasses
import random
import struct

import grpc
import pytest

from tests import cases
from tests.process import api, harness, jobs

# With ten, each kind of victim is struck both in a save and outside of one.
SEEDS = 24 if cases.all_are_run() else 10
STEPS = 60
EVERY = 5
# No strike is planned for a later step.
LAST_STRIKE = 35
# Here the job halts until all strikes are done: however slow the test is, the job has not ended.
HALT = 57

VICTIMS = ["worker", "workers", "agent", "musterd", "all"]


@dataclasses.dataclass(frozen=True)
class Strike:
    # The first report of this step, or of a later one, gives the signal.
    step: int
    # Not then, but as soon as the next save has begun, or the job has halted and saves no more.
    in_save: bool
    victim: str


def plan(seed):
    """Two to three strikes in the order of their steps."""
    source = random.Random(seed)
    steps = sorted(source.sample(range(1, LAST_STRIKE), 2 + source.randrange(2)))
    strikes = [Strike(step, source.random() < 0.4, source.choice(VICTIMS)) for step in steps]
    # In every round of seeds each kind of victim and the save occurs, whatever the random numbers
    # are.
    first = dataclasses.replace(
        strikes[0], victim=VICTIMS[seed % len(VICTIMS)], in_save=seed % 2 == 0
    )
    return [first, *strikes[1:]]


class Cluster:
    """musterd with either two agents of one slot each, or a local agent with two slots."""

    def __init__(self, muster, local):
        self.muster = muster
        self.local = local
        self.daemon = None
        self.agents = {}
        self.start()

    def start(self):
        """Starts every program that does not run."""
        if self.daemon is None or self.daemon.poll() is not None:
            self.daemon = self.muster.musterd(local_slots=2 if self.local else None)
        if not self.local:
            for node in ("node-1", "node-2"):
                if node not in self.agents or self.agents[node].poll() is not None:
                    self.agents[node] = self.muster.agent(node)

    def strike(self, victim, source):
        """Kills, and waits until those killed from outside have ended."""
        programs = {
            "worker": ["muster-worker"],
            "workers": ["muster-worker"],
            "agent": ["muster-agent"],
            "musterd": ["musterd"],
            "all": ["musterd", "muster-agent", "muster-worker"],
        }[victim]
        for program in programs:
            # A process that an earlier strike has ended may not have been started again.
            harness.eventually(
                lambda program=program: self.muster.processes(program), f"{program} runs"
            )
        targets = [process for program in programs for process in self.muster.processes(program)]
        source.shuffle(targets)
        if victim in ("worker", "agent"):
            targets = targets[:1]
        for target in targets:
            harness.kill(target.pid)
        killed = {target.pid for target in targets}
        for child in [self.daemon, *self.agents.values()]:
            if child.pid in killed:
                child.wait(timeout=harness.BOUND)
        return [target.command for target in targets]

    def stop(self):
        self.muster.stop(*self.agents.values(), self.daemon)


def job_of(client):
    """A call that is broken because the coordinator is killed meanwhile is repeated."""
    attempts = 20
    while True:
        attempts -= 1
        try:
            return client.get("chaos")
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.UNAVAILABLE or attempts == 0:
                raise


def reported_step(client):
    """Optimizer steps done, as the coordinator knows it; None: the job has ended."""
    job = job_of(client)
    ended = job.state in (api.Job.SUCCEEDED, api.Job.FAILED, api.Job.CANCELLED)
    return None if ended else job.step


def is_halted(client):
    return job_of(client).state == api.Job.PAUSED


def run(muster, strikes, source, local):
    """Runs the job from its start to its end; returns (job, losses as bits, exported weights)."""
    job_file = jobs.write_job(
        muster.folder,
        name="job.yaml",
        stages=[{"fit": {"steps": STEPS}}],
        checkpoint={"directory": "checkpoints", "every_steps": EVERY, "keep": 2},
        restart={"max_restarts": 50},
    )
    saves = muster.folder / "checkpoints" / "chaos"
    saves.mkdir(parents=True)
    cluster = Cluster(muster, local)
    watch = harness.FolderWatch(saves)
    muster.cli("submit", job_file, "--id", "chaos")
    client = api.Jobs(muster.address)
    muster.cli("pause", "chaos", "--at-step", str(HALT))
    done = []
    for strike in strikes:
        harness.eventually(
            lambda: (step := reported_step(client)) is None or step >= strike.step,
            f"step {strike.step}; {done}\n{muster.log()}",
        )
        if strike.in_save:
            watch.drain()
            harness.eventually(
                lambda: watch.await_name(lambda name: name.endswith(".tmp"), bound=0.1)
                or is_halted(client),
                f"a save to strike in; {done}",
            )
        killed = cluster.strike(strike.victim, source)
        done.append((strike, killed))
        cluster.start()
        # A strike that comes too late proves nothing. An end that was stored before the strike
        # would show now.
        assert (
            killed and reported_step(client) is not None
        ), f"the job had ended before it was struck: {done}"
    watch.close()
    print(*done, sep="\n")
    harness.eventually(lambda: is_halted(client), "the job has halted")
    muster.cli("resume", "chaos")

    muster.cli("wait", "chaos", "--timeout", f"{harness.BOUND:.0f}s")
    job = client.get("chaos")
    losses = [(step.step, struct.pack("<d", step.loss)) for step in client.metrics("chaos")]
    client.close()
    # When a worker dies, its generation ends.
    deadly = [strike for strike, _ in done if strike.victim != "musterd"]
    assert job.generation > 1 or not deadly, f"generation {job.generation} after {done}"
    cluster.stop()
    muster.assert_no_process(at_once=True)
    muster.assert_no_temporary_file()
    assert muster.files("checkpoints/chaos") == sorted(
        checkpoint.path.rsplit("/", 1)[1] for checkpoint in job.checkpoints
    )
    expected = {
        "checkpoints",
        "config.json",
        "job.yaml",
        "model.safetensors",
        "programs.log",
        "state",
        "train.bin",
    }
    assert set(muster.files(".")) == expected
    return job, losses, (muster.folder / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def undisturbed(programs, tmp_path_factory):
    muster = harness.Muster(programs, tmp_path_factory.mktemp("undisturbed"))
    try:
        job, losses, weights = run(muster, [], random.Random(0), local=True)
    finally:
        muster.close()
    assert (job.generation, job.restarts) == (1, 0)
    assert [step for step, _ in losses] == list(range(1, STEPS + 1))
    assert (
        len({bits for _, bits in losses}) > STEPS // 2
    ), "a loss that does not move proves nothing"
    return losses, weights


@pytest.mark.parametrize("seed", range(SEEDS))
def test_killed_at_random_it_ends_the_same(muster, undisturbed, seed):
    job, losses, weights = run(muster, plan(seed), random.Random(seed), local=seed % 3 == 0)
    assert job.state == api.Job.SUCCEEDED
    assert losses == undisturbed[0]
    assert weights == undisturbed[1]


def test_the_plans_hit_everything():
    strikes = [strike for seed in range(SEEDS) for strike in plan(seed)]
    for victim in VICTIMS:
        for in_save in (False, True):
            assert any(s.victim == victim and s.in_save == in_save for s in strikes), (
                victim,
                in_save,
            )
