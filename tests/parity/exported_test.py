"""Models that muster.export wrote: trained as PyTorch trains the model itself.

Tolerances as in training_test.py: 1e-6 where both sides run the same kernels in float32 and only
add in another order (gradients of micro-batches over ranks)."""

import struct

import numpy
import pytest
import torch
import xxhash
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from tests import exports
from tests.parity import exported_zoo as zoo
from tests.parity import shared_cluster, twin, workloads
from tests.parity.cluster import kill_a_worker_after_the_first_checkpoint
from tests.python import package  # noqa: F401 (makes `muster` importable)

import muster.export  # isort: skip

SGD = {"sgd": {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01}}
ADAMW = {"adamw": {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-5, "weight_decay": 0.1}}
STRATEGIES = ({"ddp": {}}, {"sharded_ddp": {}}, {"fsdp": {}})

cluster = shared_cluster.with_slots(2)


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def tokens_data(folder):
    workloads.write_tokens(folder / "train.bin", zoo.VOCABULARY, 1000, seed=1)
    return {"train": {"tokens": {"path": str(folder / "train.bin"), "dtype": "uint16"}}}


def images_data(folder):
    generator = numpy.random.default_rng(1)
    numpy.save(folder / "inputs.npy", generator.random((150, 1, 6, 6), dtype=numpy.float32))
    numpy.save(folder / "labels.npy", generator.integers(0, 3, 150))
    return {
        "train": {
            "npy": {"inputs": str(folder / "inputs.npy"), "labels": str(folder / "labels.npy")}
        }
    }


# A larger rate lets the network's rounding grow: PyTorch, with the micro-batches of a step in the
# other order, then differs from itself by 3e-5 after 18 steps.
SLOW = {"sgd": {"lr": 0.01, "momentum": 0.9, "weight_decay": 0.01}}

# name: (the model, an example of its input, its data, the optimizer)
CASES = {
    "gpt2": (zoo.gpt2, zoo.tokens, tokens_data, ADAMW),
    "llama": (zoo.llama, zoo.tokens, tokens_data, SGD),
    "network": (zoo.network, zoo.images, images_data, SLOW),
}
OTHERS = {
    "dropout": (zoo.dropout, zoo.images, images_data, SGD),
    # So wide that a kill after the first checkpoint comes before the end.
    "wide": (zoo.wide, zoo.images, images_data, SGD),
}


def job(folder, case, **more):
    build, example, data, optimizer = (CASES | OTHERS)[case]
    exported = folder / "exported"
    if not exported.exists():
        muster.export(build(), example(), exported)
    return {
        "name": case,
        "seed": 13,
        "world_size": 2,
        "model": {"exported": str(exported)},
        "data": data(folder),
        "batch": {"per_rank": 3, "accumulate": 2},
        "optimizer": optimizer,
        "stages": [{"fit": {"steps": 20}}],
        "export": {"path": str(folder / "out" / "model.safetensors")},
        **more,
    }


def loss(output, targets):
    return twin.cross_entropy(zoo.logits_of(output), targets)


@pytest.mark.parametrize("case", CASES)
def test_twenty_steps_in_every_strategy_equal_pytorch(cluster, tmp_path, case):
    model = CASES[case][0]()
    start = {name: tensor.clone() for name, tensor in model.named_parameters()}
    spec = job(tmp_path, case)
    expected = twin.train(spec, model, loss, context=zoo.CONTEXT)
    assert max((one - start[name]).abs().max() for name, one in model.named_parameters()) > 1e-2
    ends = []
    for strategy in STRATEGIES:
        job_id = f"{case}-{next(iter(strategy)).replace('_', '-')}"
        cluster.run(job(tmp_path, case, strategy=strategy), job_id)
        losses = cluster.losses(job_id)
        twin.assert_close(losses, expected.losses, 1e-6)
        export = tmp_path / "out" / "model.safetensors"
        found = load_file(export)
        # Each parameter once, by the name of the module, and no constants.
        wanted = {name: expected.tensors[name] for name, _ in model.named_parameters()}
        twin.assert_close({name: found[name] for name in wanted}, wanted, 1e-6)
        # Python takes it back.
        missing, unexpected = CASES[case][0]().load_state_dict(found, strict=False)
        assert not unexpected and set(missing) <= {"lm_head.weight"}
        ends.append((losses, exports.contents(export)))
        export.unlink()
    assert len(ends[0][0]) == 20
    assert ends[0] == ends[1] == ends[2]


@pytest.mark.parametrize("case", ["gpt2", "llama"])
def test_transformers_opens_the_folder_of_an_export(cluster, tmp_path, case):
    cluster.run(job(tmp_path, case, world_size=1, stages=[{"fit": {"steps": 2}}]), f"hf-{case}")
    folder = tmp_path / "out"
    opened = AutoModelForCausalLM.from_pretrained(folder).eval()
    model = CASES[case][0]().eval()
    model.load_state_dict(load_file(folder / "model.safetensors"), strict=False)
    with torch.no_grad():
        assert opened(zoo.tokens()).logits.equal(model(zoo.tokens()).logits)


def test_dropout_draws_as_pytorch_does_under_the_seed_of_each_forward(cluster, tmp_path):
    # One rank and one micro-batch a step, so that Python can seed each forward by itself.
    spec = job(
        tmp_path, "dropout", world_size=1, batch={"per_rank": 4}, stages=[{"fit": {"steps": 5}}]
    )
    steps = iter(range(1, 6))

    def seed_the_forward(model):
        key = struct.pack("<3q", next(steps), 0, 0)
        torch.manual_seed(xxhash.xxh3_64_intdigest(key, seed=spec["seed"]))

    expected = twin.train(spec, zoo.dropout(), loss, before_step=seed_the_forward)
    for strategy in STRATEGIES:
        job_id = f"dropout-{next(iter(strategy)).replace('_', '-')}"
        cluster.run(spec | {"strategy": strategy}, job_id)
        twin.assert_close(cluster.losses(job_id), expected.losses, 1e-6)
        (tmp_path / "out" / "model.safetensors").unlink()


@pytest.mark.parametrize("case", CASES)
def test_one_rank_has_the_losses_of_pytorch(cluster, tmp_path, case):
    spec = job(tmp_path, case, world_size=1, batch={"per_rank": 4})
    expected = twin.train(spec, CASES[case][0](), loss, context=zoo.CONTEXT)
    cluster.run(spec, f"alone-{case}")
    twin.assert_close(cluster.losses(f"alone-{case}"), expected.losses, 1e-6)


def test_a_killed_and_resumed_run_equals_an_undisturbed_one(cluster, tmp_path):
    ends = []
    for disturb in (False, True):
        job_id = "disturbed" if disturb else "undisturbed"
        spec = job(
            tmp_path,
            "wide",
            strategy={"fsdp": {}},
            batch={"per_rank": 30},
            stages=[{"fit": {"steps": 40}}],
            checkpoint={"directory": str(tmp_path / "checkpoints"), "every_steps": 4, "keep": 100},
        )
        cluster.submit(spec, job_id)
        if disturb:
            kill_a_worker_after_the_first_checkpoint(cluster, tmp_path / "checkpoints" / job_id)
        ended = cluster.wait(job_id)
        assert int(ended.get("restarts", 0)) == (1 if disturb else 0), ended
        export = tmp_path / "out" / "model.safetensors"
        ends.append((cluster.losses(job_id), exports.contents(export)))
        export.unlink()
    assert len(ends[0][0]) == 40
    assert ends[0] == ends[1]


@pytest.mark.parametrize("case", ["network", "dropout"])
def test_repeated_forwards_of_units_have_the_same_bits(cluster, tmp_path, case):
    ends = []
    for number, strategy in enumerate(STRATEGIES):
        for name, more in (
            ("kept", {}),
            ("repeated", {"activation_checkpointing": {"unit": ["*"]}}),
        ):
            job_id = f"{name}-{case}-{number}"
            cluster.run(job(tmp_path, case, strategy=strategy, **more), job_id)
            export = tmp_path / "out" / "model.safetensors"
            ends.append((cluster.losses(job_id), exports.contents(export)))
            export.unlink()
    assert len(ends[0][0]) == 20
    assert all(end == ends[0] for end in ends)
