"""Tests of ranks that skip different units of a model, with real programs. fsdp names the
collectives in which the ranks differ, and fails without another start. The other strategies train
the model as PyTorch does."""

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests import cases
from tests.bazel import runfile
from tests.process import jobs

STEPS, SAMPLES, LR = 6, 24, 0.1

# By rank, the block that it skips.
SKIPS = {
    "first": {0: 0},
    "middle": {1: 1},
    "last": {0: 3},
    "each-another": {0: 1, 1: 2},
}


@pytest.fixture
def cluster(muster):
    muster.lease = "2s"
    muster.musterd(local_slots=3)
    yield muster
    muster.stop(*(child for child in muster._children if child.poll() is None))
    muster.assert_no_process()


def write_job(muster, skips, world_size, strategy, uneven=False):
    torch.manual_seed(3)
    rows = {"inputs": torch.randn(SAMPLES, 3), "labels": torch.arange(SAMPLES) % 2}
    save_file(rows, muster.folder / "rows.safetensors")
    options = {"fault": "skips", "uneven": str(uneven).lower()}
    options |= {f"rank{rank}": str(block) for rank, block in skips.items()}
    plugin = str(runfile("worker/models/plugin/plugin_faults.so"))
    return jobs.write_job(
        muster.folder,
        world_size=world_size,
        model={"plugin": {"path": plugin, "name": "faulty", "options": options}},
        data={"train": {"safetensors": {"path": "rows.safetensors"}}},
        batch={"per_rank": 1, "order": "sequential"},
        optimizer={"sgd": {"lr": LR}},
        clip_grad_norm=None,
        stages=[{"fit": {"steps": STEPS}}],
        checkpoint=None,
        schedule=None,
        strategy=strategy,
    )


def run(muster, job_file, expect):
    muster.cli("submit", job_file, "--id", "job")
    muster.cli("wait", "job", expect=expect)
    return muster.cli("get", "job", "-o", "json").json()


@pytest.mark.parametrize(
    "skips, world_size, sizes", cases.every_value(SKIPS, [2, 3], ["even", "uneven"])
)
def test_with_fsdp_the_job_fails_at_once_and_names_the_collectives(
    cluster, skips, world_size, sizes
):
    strategy = {"fsdp": {"unit": ["block.*"]}}
    job_file = write_job(cluster, SKIPS[skips], world_size, strategy, uneven=sizes == "uneven")
    ended = run(cluster, job_file, expect=100)
    assert (ended["state"], ended["restarts"], ended["generation"]) == ("FAILED", 0, "1"), ended
    reason = ended["failure"]["reason"]
    assert "the ranks call different collectives" in reason, reason
    assert "rank " in reason and "unit 'block." in reason, reason


def weights_of_pytorch(skips, world_size):
    """Of the same job: sequential samples, one of each rank in a step."""
    torch.manual_seed(3)
    inputs, labels = torch.randn(SAMPLES, 3), torch.arange(SAMPLES) % 2
    weights = {f"block.{i}.weight": torch.eye(3) for i in range(4)} | {"weight": torch.ones(2, 3)}
    for tensor in weights.values():
        tensor.requires_grad_()
    optimizer = torch.optim.SGD(weights.values(), lr=LR)
    for step in range(STEPS):
        optimizer.zero_grad()
        for rank in range(world_size):
            sample = step * world_size + rank
            y = inputs[sample : sample + 1]
            for block in range(4):
                if step < 2 or skips.get(rank) != block:
                    y = y @ weights[f"block.{block}.weight"].T
            logits = y @ weights["weight"].T
            loss = torch.nn.functional.cross_entropy(logits, labels[sample : sample + 1])
            (loss / world_size).backward()
        optimizer.step()
    return weights


@pytest.mark.parametrize("strategy", ["ddp", "sharded_ddp"])
def test_other_strategies_train_it_as_pytorch_does(cluster, strategy):
    skips, world_size = SKIPS["each-another"], 2
    ended = run(cluster, write_job(cluster, skips, world_size, {strategy: {}}), expect=0)
    assert ended["state"] == "SUCCEEDED", ended
    found = load_file(cluster.folder / "model.safetensors")
    expected = weights_of_pytorch(skips, world_size)
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        # Sums of a few float32 products in another order.
        assert torch.allclose(found[name], tensor.detach(), rtol=0, atol=1e-6), name
