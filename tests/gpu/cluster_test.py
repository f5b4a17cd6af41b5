"""Tests of jobs on a GPU under musterd and an agent: commands, gathers and checkpoints in the
background, and faults. The results are compared with PyTorch on the same GPU, within the bounds of
jobs.py."""

import signal

import pytest
import torch

from tests.gpu import cluster, jobs, ranks, reference
from tests.parity import checkpoints
from tests.process import harness

pytestmark = pytest.mark.skipif(bool(ranks.why_not()), reason=ranks.why_not())

ON_GPU = ranks.device() == "cuda"
FROZEN = "transformer.h.0.*"
ADAMW = {"adamw": {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-5, "weight_decay": 0.1}}
# Its state takes longer to write than a step takes.
LARGE = {"vocab_size": 4096, "context": 32, "layers": 4, "heads": 4, "width": 384}
# More steps than a test needs.
ENDLESS = 1_000_000


@pytest.fixture(scope="session")
def programs(tmp_path_factory):
    return cluster.programs(tmp_path_factory.mktemp("bin"))


@pytest.fixture
def muster(programs, tmp_path, request):
    """A Muster with a coordinator and no agent. After a test that passed, no process of it may be
    left."""
    failed = request.session.testsfailed
    folder = tmp_path / "work"
    folder.mkdir()
    muster = cluster.Cluster(programs, folder)
    try:
        muster.daemon = muster.musterd()
        yield muster
        if request.session.testsfailed > failed:
            return
        muster.stop(*(child for child in muster._children if child.poll() is None))
        muster.assert_no_process()
        muster.assert_no_temporary_file()
    finally:
        muster.close()


def job(muster, steps, **changes):
    changes["stages"] = [{"fit": {"steps": steps}}]
    return jobs.job(muster.folder, "ddp", 1, {"export": None} | changes)


def saved_every(muster, steps, **more):
    return {"directory": str(muster.folder / "checkpoints"), "every_steps": steps} | more


def expect_losses(muster, spec, rules_after=None, steps=None):
    """Returns the values of the first `steps` steps, or of all."""
    found = muster.losses()[:steps]
    if steps is not None:
        assert len(found) == steps
    spec = spec | {"stages": [{"fit": {"steps": len(found)}}]}
    expected, _ = reference.train(spec, ranks.device(), rules_after)
    assert found == pytest.approx(expected, abs=jobs.bound(spec))


def test_the_agent_finds_the_gpu(muster):
    agent = muster.agent()
    (node,) = harness.eventually(
        lambda: muster.cli("nodes", "-o", "json").json().get("nodes"), "the agent is attached"
    )
    gpus = node.get("gpus", [])
    assert len(gpus) == (torch.cuda.device_count() if ON_GPU else 0), muster.log()
    if ON_GPU:
        properties = torch.cuda.get_device_properties(0)
        assert gpus[0]["name"] == properties.name
        assert gpus[0]["uuid"].removeprefix("GPU-") == str(properties.uuid)
        # NVML counts what the driver keeps for itself, too.
        assert int(gpus[0]["memory_bytes"]) == pytest.approx(properties.total_memory, rel=0.05)
        assert gpus[0]["free"]
        assert properties.name in muster.cli("nodes").out
    muster.submit(job(muster, ENDLESS))
    muster.await_step(3)
    (rank,) = muster.cli("ranks", "job", "-o", "json").json()["ranks"]
    assert rank["device"] == ("cuda:0" if ON_GPU else "cpu")
    if ON_GPU:
        assert rank["device_name"] == properties.name
        (node,) = muster.cli("nodes", "-o", "json").json()["nodes"]
        assert not node["gpus"][0].get("free", False)
        rank = muster.await_job(
            lambda job: "memory" in job["ranks"][0], "the rank tells of its memory"
        )["ranks"][0]
        assert int(rank["memory"]["reserved_bytes"]) > 0
        assert "cuda:0" in muster.cli("ranks", "job").out
    muster.cli("stop", "job", "--wait")
    muster.stop(agent)


@pytest.mark.parametrize("strategy", jobs.STRATEGIES)
def test_a_job_trains_as_pytorch(muster, strategy):
    spec = job(muster, jobs.STEPS, strategy=jobs.STRATEGIES[strategy])
    muster.submit(spec)
    muster.agent()
    muster.finish()
    expect_losses(muster, spec, steps=jobs.STEPS)


def test_layers_are_frozen_while_it_runs(muster):
    """Twice between steps, and once while it is halted."""
    spec = job(muster, 16)
    names = muster.submit(
        spec,
        [
            ("freeze", FROZEN, "--at-step", 4),
            ("unfreeze", FROZEN, "--at-step", 8),
            ("pause", "--at-step", 12),
        ],
    )
    muster.agent()
    muster.await_halted()
    for name in names[:2]:
        assert muster.operation(name)["step"] in ("4", "8")
    muster.cli("freeze", "job", FROZEN, "--wait")
    muster.cli("resume", "job", "--wait")
    muster.finish()
    rules = {4: {"freeze": FROZEN}, 8: {"unfreeze": FROZEN}, 12: {"freeze": FROZEN}}
    expect_losses(muster, spec, rules, steps=16)


class States:
    """Returns the state of PyTorch's optimizer and model after some steps, under the names in
    checkpoints."""

    def __init__(self, steps):
        self.steps = steps
        self.of = {}

    def __call__(self, step, model, optimizer):
        if step not in self.steps:
            return
        found = self.of[step] = {}
        for name, parameter in model.named_parameters():
            found[f"param/{name}"] = parameter.detach().cpu().clone()
            for slot in ("exp_avg", "exp_avg_sq"):
                found[f"{slot}/{name}"] = optimizer.state[parameter][slot].cpu().clone()


def expect_state_of(found, states, step):
    """Each tensor is near to PyTorch's of this step, and far from those of the steps beside it. A
    copy that training has changed would not be."""
    for name, value in found.items():
        own, before, after = (states.of[step + i][name] for i in (0, -1, 1))
        difference = (value - own).abs().max().item()
        nearest = min((own - other).abs().max().item() for other in (before, after))
        assert difference <= 0.1 * nearest, f"{name} after step {step}: {difference}, {nearest}"


def gathered(path):
    """A file of gather-optimizer-state, as a checkpoint names its tensors."""
    state = torch.load(path, weights_only=True)
    names = state["param_groups"][0]["param_names"]
    return {
        f"{slot}/{names[index]}": value
        for index, slots in state["state"].items()
        for slot, value in slots.items()
    }


def moments(tensors):
    return {name: value for name, value in tensors.items() if name.startswith("exp_avg")}


@pytest.mark.parametrize("strategy", jobs.STRATEGIES)
def test_the_state_is_written_while_training_goes_on(muster, strategy):
    """Gathers after steps 10 and 20 (there also with --hold), a checkpoint and a gather after step
    30, all at full speed."""
    spec = jobs.job(muster.folder, "ddp", 1, model=LARGE if ON_GPU else jobs.GPT2)
    spec |= {"optimizer": ADAMW, "strategy": jobs.STRATEGIES[strategy], "export": None}
    spec |= {"stages": [{"fit": {"steps": 40}}], "checkpoint": saved_every(muster, 1000)}
    files = {name: muster.folder / f"{name}.pt" for name in ("at-10", "held", "at-20", "at-30")}

    def gather(name, step, *more):
        return ("gather-optimizer-state", "--out", files[name], "--at-step", step, *more)

    commands = [
        gather("at-10", 10),
        gather("held", 20, "--hold"),
        gather("at-20", 20),
        ("checkpoint", "--at-step", 30),
        gather("at-30", 30),
    ]
    names = muster.submit(spec, commands)
    muster.agent()
    muster.finish()
    results = [muster.operation(name) for name in names]
    for name, result, step in zip(files, results[:3] + results[4:], (10, 20, 20, 30)):
        assert int(result["step"]) == step
        assert int(result["bytes"]) == files[name].stat().st_size
        print(f"{name}: training waited {result['seconds']} s of {result['write_seconds']} s")
    found = {name: moments(gathered(path)) for name, path in files.items()}
    saved = checkpoints.all_steps(muster.folder / "checkpoints", "job")
    assert list(saved) == [30, 40]
    whole = checkpoints.read(saved[30])
    assert moments(whole).keys() == found["at-30"].keys()
    checkpoints.assert_bitwise_equal(found["at-20"], found["held"])
    checkpoints.assert_bitwise_equal(found["at-30"], moments(whole))

    states = States({step + i for step in (10, 20, 30) for i in (-1, 0, 1)})
    expected, _ = reference.train(spec, ranks.device(), after_step=states)
    assert muster.losses() == pytest.approx(expected, abs=10 * jobs.bound(spec))
    expect_state_of(found["at-10"], states, 10)
    expect_state_of(found["at-20"], states, 20)
    of_step = {name: whole[name] for name in states.of[30]}
    expect_state_of(of_step, states, 30)


def test_a_worker_that_is_killed_is_replaced(muster):
    """The job is halted three steps after its checkpoint, and the next generation computes these
    steps again."""
    spec = job(muster, 16, checkpoint=saved_every(muster, 5))
    muster.submit(spec, [("pause", "--at-step", 8)])
    muster.agent()
    muster.await_halted()
    harness.kill(muster.worker().pid)
    muster.await_halted(generation=2)
    muster.cli("resume", "job", "--wait")
    muster.finish()
    assert muster.get()["restarts"] == 1
    expect_losses(muster, spec, steps=16)
    if ON_GPU:

        def free():
            (node,) = muster.cli("nodes", "-o", "json").json()["nodes"]
            return node["gpus"][0].get("free", False)

        harness.eventually(free, "the GPU is free again")


def test_a_job_goes_on_while_musterd_is_killed_and_started_again(muster):
    # The job learns so slowly that the bound holds for 100 steps.
    spec = job(muster, ENDLESS, optimizer={"sgd": {"lr": 1e-4}})
    muster.submit(spec)
    muster.agent()
    before = muster.await_step(5)
    worker = muster.worker()
    harness.kill(muster.daemon.pid)
    muster.daemon.wait()
    muster.daemon = muster.musterd()
    muster.await_step(int(before["step"]) + 20)
    job_now = muster.get()
    assert int(job_now["generation"]) == 1 and job_now.get("restarts", 0) == 0
    assert muster.worker().pid == worker.pid
    muster.cli("stop", "job", "--wait")
    expect_losses(muster, spec, steps=min(int(job_now["step"]), 100))


def test_an_agent_that_is_stopped_saves_its_job(muster):
    spec = job(muster, 16, checkpoint=saved_every(muster, 1000))
    muster.submit(spec, [("pause", "--at-step", 8)])
    agent = muster.agent()
    muster.await_halted()
    agent.send_signal(signal.SIGTERM)
    muster.wait(agent)
    (saved,) = muster.get()["checkpoints"]
    assert saved["step"] == "8"
    muster.agent()
    muster.await_halted(generation=2)
    muster.cli("resume", "job", "--wait")
    muster.finish()
    assert muster.get().get("restarts", 0) == 0
    expect_losses(muster, spec, steps=16)
