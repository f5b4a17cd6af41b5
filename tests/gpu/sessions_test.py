"""Sessions on a GPU, against PyTorch on the same GPU, within the bounds of jobs.py. Ranks are
processes; where there are two, they share the GPU and exchange tensors over Gloo."""

import pytest

from tests.gpu import models, ranks, reference, weights_file
from tests.gpu.jobs import GPT2, STEPS, STRATEGIES, bound, job, write_tokens

pytestmark = pytest.mark.skipif(bool(ranks.why_not()), reason=ranks.why_not())


@pytest.fixture(autouse=True)
def no_rank_is_left():
    yield
    ranks.end_all()


FROZEN = "transformer.h.0.*"
VARIANTS = {
    "float32": {},
    "adamw": {"optimizer": {"adamw": {"lr": 1e-3, "eps": 1e-5, "weight_decay": 0.1}}},
    "bfloat16": {"precision": "bfloat16"},
    "accumulation": {"batch": {"per_rank": 2, "accumulate": 3}},
    "clipping": {"clip_grad_norm": 0.2},
    "frozen": {"trainable": {"rules": [{"freeze": FROZEN}]}},
    "recomputation": {"activation_checkpointing": {"unit": "block"}},
}
CASES = [
    (strategy, world_size, variant)
    for strategy in STRATEGIES
    for world_size in (1, 2)
    for variant in VARIANTS
]


def expect_reference(spec, folder, rules=None, options=()):
    expected, parameters = reference.train(spec, ranks.device(), rules or {})
    found = ranks.losses(ranks.run(spec, folder / "run", options))
    assert found == pytest.approx(expected, abs=bound(spec))
    exported = weights_file.load(folder / "out.safetensors")
    assert exported.keys() == parameters.keys()
    difference = max((exported[name] - parameters[name]).abs().max().item() for name in parameters)
    assert difference <= bound(spec)


@pytest.mark.parametrize("strategy, world_size, variant", CASES)
def test_training_is_that_of_pytorch(tmp_path, strategy, world_size, variant):
    expect_reference(job(tmp_path, strategy, world_size, VARIANTS[variant]), tmp_path)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("world_size", [1, 2])
def test_a_layer_frozen_in_the_middle(tmp_path, strategy, world_size):
    spec = job(tmp_path, strategy, world_size)
    expect_reference(spec, tmp_path, {4: {"freeze": FROZEN}}, ["--freeze", f"4:{FROZEN}"])


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_rank_with_less_input_joins(tmp_path, strategy):
    spec = job(tmp_path, strategy, 2)
    files = []
    for rank, samples in enumerate((40, 9)):
        files.append(str(tmp_path / f"train-{rank}.bin"))
        write_tokens(tmp_path / f"train-{rank}.bin", samples, GPT2["context"], 5 + rank)
    spec["data"] = {"train": {"tokens": {"dtype": "uint16"}, "per_rank": files}}
    spec["batch"] = {"per_rank": 2, "last": "uneven"}
    expect_reference(spec, tmp_path)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("world_size", [1, 2])
def test_a_session_goes_on_from_a_checkpoint(tmp_path, strategy, world_size):
    checkpoints = {"checkpoint": {"directory": str(tmp_path / "ckpt"), "every_steps": 5}}
    spec = job(tmp_path, strategy, world_size, checkpoints)
    expected, _ = reference.train(spec, ranks.device())
    first = ranks.run(spec | {"stages": [{"fit": {"steps": 5}}]}, tmp_path / "first")
    (saved,) = [event["checkpoint"] for event in first if "checkpoint" in event]
    second = ranks.run(spec, tmp_path / "second", ["--from", saved])
    found = ranks.losses(first) + ranks.losses(second)
    assert found == pytest.approx(expected, abs=bound(spec))


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("variant", ["float32", "clipping", "bfloat16", "accumulation"])
def test_no_step_waits_for_the_gpu(tmp_path, strategy, world_size, variant):
    """In 20 steps, LibTorch throws where the host waits (sync debug mode "error")."""
    spec = job(tmp_path, strategy, world_size, VARIANTS[variant])
    spec["stages"] = [{"fit": {"steps": 25}}]
    events = ranks.run(
        spec, tmp_path / "run", ["--no-waiting-from", "3", "--no-waiting-to", "23"]
    )
    assert len(ranks.losses(events)) == 25


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("world_size", [1, 2])
def test_the_memory_of_the_model_is_that_of_the_formula(tmp_path, strategy, world_size):
    """architecture.md 5. P bytes of parameters; the difference allowed is padding: 15 elements for
    a parameter of at least 128, and what is not sharded evenly."""
    model = {"vocab_size": 512, "context": 64, "layers": 4, "heads": 4, "width": 128}
    spec = job(tmp_path, strategy, world_size, {"optimizer": VARIANTS["adamw"]["optimizer"]}, model)
    events = ranks.run(spec, tmp_path / "run")
    (memory,) = [event["memory"] for event in events if "memory" in event]
    size = sum(4 * value.numel() for value in models.build({"gpt2": model}).parameters())
    share = size / (1 if strategy == "ddp" else world_size)
    expected = {
        "parameters": share if strategy == "fsdp" else size,
        "gradients": 0 if strategy == "ddp" else share,
        "moments": 2 * share,
    }
    for purpose, bytes_expected in expected.items():
        now, peak = memory[purpose]
        assert now == pytest.approx(bytes_expected, rel=0.03), purpose
        assert peak >= now


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_rank_that_is_killed_is_named_and_the_next_session_recovers(tmp_path, strategy):
    checkpoints = {"checkpoint": {"directory": str(tmp_path / "ckpt"), "every_steps": 3}}
    spec = job(tmp_path, strategy, 2, checkpoints)
    undisturbed = ranks.losses(ranks.run(job(tmp_path, strategy, 2), tmp_path / "undisturbed"))
    spec["stages"] = [{"fit": {"steps": 400}}]
    both = ranks.start(spec, tmp_path / "killed")
    assert both[0].read_until(lambda event: "checkpoint" in event)
    both[1].process.kill()
    ended = both[0].read_to_end()[-1]
    both[1].read_to_end()
    assert ended["end"] == "failed" and "rank 1 is gone" in ended["error"], ended
    saved = [event["checkpoint"] for event in both[0].events if "checkpoint" in event]
    steps = max(event["step"] for event in both[0].events if "step" in event)
    assert steps < 400, "the rank was not killed before the end"
    done = 3 * len(saved)
    spec["stages"] = [{"fit": {"steps": max(STEPS, done + 2)}}]
    again = ranks.run(spec, tmp_path / "again", ["--from", saved[-1]])
    first = [event["step"] for event in again if "step" in event][0]
    assert first == done + 1
    before = [event["loss"] for event in both[0].events if "step" in event][:done]
    together = before + ranks.losses(again)
    assert together[:STEPS] == pytest.approx(undisturbed, abs=bound(spec))
