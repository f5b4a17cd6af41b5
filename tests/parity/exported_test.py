"""What trains an exported model: exports that transformers opens, random numbers, kills, repeated
forwards, and data that fill the inputs. Whole runs beside PyTorch: exported_models_test.py."""

import struct
import time

import pytest
import torch
import xxhash
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from tests import cases, exports
from tests.bazel import bound
from tests.parity import checkpoints, exported_models, sessions, shared_cluster, twin
from tests.parity import exported_zoo as zoo
from tests.parity.cluster import JobFailed, kill_a_worker_after_the_first_checkpoint
from tests.parity.exported_job import job
from tests.parity.exported_models import MODELS

import muster.export  # isort: skip

STRATEGIES = ({"ddp": {}}, {"sharded_ddp": {}}, {"fsdp": {}})

# name: steps and samples of a rank, so many that a kill after the first checkpoint comes before
# the end.
KILLED = {
    "wide": (60, 30),
    "gpt2": (200, 3),
    "bert": (200, 3),
    "t5": (200, 3),
    "mixtral": (200, 3),
}
FROZEN = ["gpt2", "bert", "t5", "mixtral", "own"]

cluster = shared_cluster.with_slots(2)


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.mark.parametrize("case", ["gpt2", "llama"])
def test_transformers_opens_the_folder_of_an_export(cluster, tmp_path, case):
    cluster.run(job(tmp_path, case, world_size=1, stages=[{"fit": {"steps": 2}}]), f"hf-{case}")
    folder = tmp_path / "out"
    opened = AutoModelForCausalLM.from_pretrained(folder).eval()
    model = MODELS[case].build().eval()
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

    expected = twin.train(spec, zoo.dropout(), before_step=seed_the_forward)
    for strategy in STRATEGIES:
        job_id = f"dropout-{next(iter(strategy)).replace('_', '-')}"
        cluster.run(spec | {"strategy": strategy}, job_id)
        twin.assert_close(cluster.losses(job_id), expected.losses, 1e-6)
        (tmp_path / "out" / "model.safetensors").unlink()


@pytest.mark.parametrize("case", cases.first_ones(KILLED, 1, with_all=2))
def test_a_killed_and_resumed_run_equals_an_undisturbed_one(cluster, tmp_path, case):
    steps, per_rank = KILLED[case]
    ends = []
    for disturb in (False, True):
        job_id = f"disturbed-{case}" if disturb else f"undisturbed-{case}"
        spec = job(
            tmp_path,
            case,
            strategy={"fsdp": {}},
            batch={"per_rank": per_rank},
            stages=[{"fit": {"steps": steps}}],
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
    assert len(ends[0][0]) == steps
    assert ends[0] == ends[1]


def test_a_job_does_not_go_on_with_a_folder_that_was_replaced(cluster, tmp_path):
    spec = job(
        tmp_path,
        "wide",
        batch={"per_rank": 30},
        stages=[{"fit": {"steps": 400}}],
        checkpoint={"directory": str(tmp_path / "checkpoints"), "every_steps": 4, "keep": 100},
    )
    cluster.submit(spec, "replaced")
    manifest = tmp_path / "exported/manifest.json"
    kill_a_worker_after_the_first_checkpoint(
        cluster,
        tmp_path / "checkpoints/replaced",
        before=lambda: manifest.write_text(manifest.read_text() + " "),
    )
    with pytest.raises(JobFailed, match="its files are others than those with which the checkpoi"):
        cluster.wait("replaced")


def test_values_may_lie_elsewhere(cluster, tmp_path):
    spec = job(tmp_path, "dropout", strategy={"fsdp": {}}, stages=[{"fit": {"steps": 2}}])
    cluster.run(spec, "beside")
    file = tmp_path / "exported/model.safetensors"
    file.rename(tmp_path / "values.safetensors")
    file.symlink_to(tmp_path / "values.safetensors")
    (tmp_path / "out/model.safetensors").unlink()
    cluster.run(spec, "elsewhere")
    assert cluster.losses("elsewhere") == cluster.losses("beside")


@pytest.mark.parametrize("case", cases.first_ones(FROZEN, 1, with_all=2))
def test_parameters_are_frozen_and_thawed_in_a_running_job_as_in_pytorch(tmp_path, case):
    model = MODELS[case].build()
    named = dict(model.named_parameters())
    # Whole units, parts of units, and every second layer.
    frozen = [name for name in list(named)[::3] if named[name].requires_grad]
    steps = iter(range(20))

    def set_flags(_):
        step = next(steps)
        for name in frozen:
            named[name].requires_grad_(not 7 <= step < 13)

    spec = job(tmp_path, case)
    source = exported_models.converted(spec["data"]["train"], tmp_path)
    expected = twin.train(
        spec | {"data": {"train": source}}, model, MODELS[case].loss,
        before_step=set_flags, context=zoo.CONTEXT,
    )
    rules = {
        done: [{action: name} for name in frozen]
        for done, action in ((7, "freeze"), (13, "unfreeze"))
    }
    ends = []
    for strategy in STRATEGIES:
        folder = tmp_path / next(iter(strategy))
        found = sessions.run(job(tmp_path, case, strategy=strategy), folder, rules)
        assert len(found) == 20
        for step in (8, 13):
            now, before = (checkpoints.parameters(found[one]) for one in (step, step - 1))
            assert all(now[name].equal(before[name]) for name in frozen)
        ends.append(checkpoints.parameters(found[20]))
        wanted = {name: expected.tensors[name] for name in ends[-1]}
        twin.assert_close(ends[-1], wanted, 1e-6)
        if case != "t5":
            assert all(ends[-1][name].equal(one) for name, one in ends[0].items())


@pytest.mark.parametrize("case", ["qwen3", "network"])
def test_bfloat16_is_that_of_pytorch(cluster, tmp_path, case):
    # The code of Qwen 3 asks for types, so its graphs in float32 are others.
    muster.export(
        MODELS[case].build(), MODELS[case].example(), tmp_path / "exported", precision="bfloat16"
    )
    for strategy in STRATEGIES:
        spec = job(tmp_path, case, strategy=strategy, precision="bfloat16", world_size=1)
        del spec["export"]
        job_id = f"half-{case}-{next(iter(strategy))}".replace("_", "-")
        cluster.run(spec, job_id)
        twin.assert_trained_in_half_precision(
            cluster.losses(job_id), spec, MODELS[case].build, MODELS[case].loss, zoo.CONTEXT
        )


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


def test_a_rank_of_fsdp_holds_its_slices_the_root_and_two_blocks(cluster, tmp_path):
    spec = job(
        tmp_path,
        "four-blocks",
        strategy={"fsdp": {}},
        batch={"per_rank": 2},
        stages=[{"fit": {"steps": 1_000_000}}],
    )
    del spec["export"]
    model = zoo.four_blocks()
    every = 4 * sum(one.numel() for one in model.parameters())
    block = 4 * sum(one.numel() for one in model.blocks[0].parameters())
    expected = {
        "gradients": every / 2,
        "moments": every,
        "gathered": 4 * model.scale.numel() + 2 * block,
    }

    def peaks(rank):
        memory = rank.get("memory", {})
        return {name: int(memory.get(name, {}).get("peak_bytes", 0)) for name in expected}

    cluster.submit(spec, "memory")
    deadline = time.monotonic() + bound(20)
    while True:
        job_now = cluster.job("memory")
        ranks = job_now.get("ranks", [])
        # Heartbeats before the end of the first step have smaller peaks.
        if len(ranks) == 2 and all(
            peaks(rank)[name] >= 0.98 * expected[name] for rank in ranks for name in expected
        ):
            break
        assert time.monotonic() < deadline, job_now
        time.sleep(0.01)
    cluster.stop("memory")
    for rank in ranks:
        assert peaks(rank) == pytest.approx(expected, rel=0.02)
        # The largest parameter is whole for a moment while the slices are made.
        assert int(rank["memory"]["parameters"]["bytes"]) == pytest.approx(every / 2, rel=0.02)


@pytest.mark.parametrize("case", ["own", "bert", "transformers-loss"])
def test_validation_is_the_mean_over_what_counts(cluster, tmp_path, case):
    spec = job(tmp_path, case, stages=[{"validate": {}}], batch={"per_rank": 7})
    spec["data"] = {"validate": spec["data"]["train"]}
    del spec["export"], spec["optimizer"]
    ended = cluster.run(spec, f"validate-{case}")
    model = MODELS[case].build().eval()
    source = exported_models.converted(spec["data"]["validate"], tmp_path)
    inputs, targets = twin.Arrays(source["safetensors"])[list(range(exported_models.SAMPLES))]
    with torch.no_grad():
        expected = MODELS[case].loss(model(**inputs), targets).item()
    assert float(ended["validation_loss"]) == pytest.approx(expected, abs=1e-6)


class WithLabels(torch.nn.Module):
    """A language model of transformers, whose labels are its tokens."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        return self.model(input_ids=tokens, labels=tokens).loss


def test_tokens_fill_the_inputs_of_a_language_model_with_a_loss(cluster, tmp_path):
    spec = job(tmp_path, "transformers-loss")
    spec["data"] = {"train": exported_models.tokens(tmp_path)}
    expected = twin.train(
        spec, WithLabels(zoo.gpt2()), lambda loss, _: loss, context=zoo.CONTEXT
    )
    cluster.run(spec, "tokens-and-labels")
    twin.assert_close(cluster.losses("tokens-and-labels"), expected.losses, 1e-6)
