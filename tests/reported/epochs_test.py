"""Jobs by epochs that go on with other ranks, another batch or other data: an epoch stays a pass
over the data.

The rate is so small that no parameter changes. So the loss of a step is the mean of the losses of
its samples, which tells the samples that the step really took."""

import contextlib

import pytest

from tests.parity import sampler
from tests.process import api, harness, jobs

SAMPLES, CONTEXT, SEED = 24, 16, 7
MODEL = {"gpt2": {"vocab_size": 256, "context": CONTEXT, "layers": 1, "heads": 2, "width": 16}}
# Of the job whose checkpoints the others continue: 2 ranks take 2 samples each, 6 steps an epoch.
BATCH = {"per_rank": 2, "last": "uneven"}


class Epochs:
    """One coordinator, and the job `source` with the checkpoints of its steps 4 and 6."""

    def __init__(self, muster):
        self.muster = muster
        self.client = api.Jobs(muster.address)
        jobs.write_tokens(muster.folder / "train.bin", SAMPLES * CONTEXT + 1)
        jobs.write_tokens(muster.folder / "more.bin", 40 * CONTEXT + 1)
        self.losses = self.losses_of("train.bin")
        self.submit("source", checkpoint={"directory": "ckpt", "every_steps": 2, "keep": 6})
        self.succeeded("source")

    def losses_of(self, path):
        """The loss of each sample."""
        one = {"per_rank": 1, "order": "sequential"}
        self.submit("each", path, world_size=1, batch=one, stages=[{"fit": {"epochs": 1}}])
        self.succeeded("each")
        losses = [entry.loss for entry in self.client.metrics("each")]
        assert len(losses) == SAMPLES
        return losses

    def submit(self, name, path="train.bin", **changes):
        job = {
            "world_size": 2,
            "seed": SEED,
            "model": MODEL,
            "data": {"train": {"tokens": {"path": path, "dtype": "uint16"}}},
            "optimizer": {"sgd": {"lr": 1e-30}},
            "schedule": {"linear": {}},
            "batch": BATCH,
            "clip_grad_norm": None,
            "stages": [{"fit": {"epochs": 2}}],
            "checkpoint": None,
            "export": None,
        } | changes
        file = jobs.write_job(self.muster.folder, name=f"{name}.yaml", **job)
        self.muster.cli("submit", file, "--id", name)

    def continued(self, name, step, path="train.bin", **changes):
        start = {"checkpoint": f"source@{step}", "what": "everything"}
        self.submit(name, path, start=start, **changes)

    def succeeded(self, name):
        self.muster.cli("wait", name)
        job = self.client.get(name)
        assert job.state == api.Job.SUCCEEDED
        return job

    def steps(self, name):
        """{step: (samples, loss)}"""
        return {one.step: (one.samples, one.loss) for one in self.client.metrics(name)}

    def events(self, name):
        return {one.reason: one.message for one in self.client.get(name).events}


@pytest.fixture(scope="module")
def epochs(programs, tmp_path_factory):
    muster = harness.Muster(programs, tmp_path_factory.mktemp("work"))
    daemon = muster.musterd(local_slots=3)
    epochs = Epochs(muster)
    with contextlib.closing(epochs.client):
        yield epochs
    muster.stop(daemon)
    left = muster.processes()
    muster.close()
    assert left == [], "processes were left behind"


def places(taken, global_batch, passes=2):
    """The places in the order of each epoch that the steps after `taken` samples take, by the rules
    of docs/reference/sampler.md: [(epoch, first, end)]."""
    steps = []
    for epoch in range(passes):
        begin = max(taken - epoch * SAMPLES, 0)
        for first in range(begin, SAMPLES, global_batch):
            steps.append((epoch, first, min(first + global_batch, SAMPLES)))
    return steps


def expected(losses, taken, global_batch):
    """What the steps are: [(samples, loss)]."""
    orders = [sampler.permutation(SEED, epoch, SAMPLES) for epoch in range(2)]
    return [
        (end - first, sum(losses[i] for i in orders[epoch][first:end]) / (end - first))
        for epoch, first, end in places(taken, global_batch)
    ]


# Of the name: what a step takes, what changes in the job, and the steps after which it goes on.
CONTINUED = {
    "one-rank": (2, {"world_size": 1}, 6),
    "three-ranks": (6, {"world_size": 3}, 6),
    "per-rank": (8, {"batch": BATCH | {"per_rank": 4}}, 6),
    "accumulate": (8, {"batch": BATCH | {"accumulate": 2}}, 6),
    # In the middle of an epoch; 6 and 5 do not divide what is left of it.
    "one-rank-within": (2, {"world_size": 1}, 4),
    "three-ranks-within": (6, {"world_size": 3}, 4),
    "five-within": (5, {"world_size": 1, "batch": BATCH | {"per_rank": 5}}, 4),
}


def test_two_epochs_are_two_passes_over_the_data_when_other_ranks_or_another_batch_go_on(epochs):
    """Muster issue 49: after epoch 1 of 2 with 2 ranks, 1 rank trained 1.5 more epochs, 3 ranks
    half an epoch, and a batch twice as large nothing."""
    for name, (_, changes, step) in CONTINUED.items():
        # Every sample counts as much, so that a step of fewer has the mean of their losses.
        uneven = {"uneven_inputs": {"join": {"divide_by": "samples"}}}
        epochs.continued(name, step, **changes, **uneven)
    for name, (global_batch, _, step) in CONTINUED.items():
        job = epochs.succeeded(name)
        found = epochs.steps(name)
        wanted = expected(epochs.losses, 4 * step, global_batch)
        assert list(found) == list(range(step + 1, step + len(wanted) + 1)), name
        assert sum(samples for samples, _ in found.values()) == 2 * SAMPLES - 4 * step
        for (samples, loss), (wanted_samples, wanted_loss) in zip(found.values(), wanted):
            assert samples == wanted_samples, name
            assert abs(loss - wanted_loss) < 1e-4, name
        assert job.step == job.total_steps == step + len(wanted)
        # The schedule ends with the training, and an event names both numbers.
        rates = [one.learning_rate for one in epochs.client.metrics(name)]
        assert rates[-1] == pytest.approx(1e-30 / job.total_steps)
        told = epochs.events(name)["STEPS_PER_EPOCH_CHANGED"]
        assert f"a step takes {global_batch} samples instead of 4" in told
        assert f"{len(wanted)} steps instead of {12 - step} remain" in told
        assert f"ends with step {job.total_steps} instead of 12" in told


def test_validation_and_early_stopping_by_epochs_count_passes_over_the_data(epochs):
    """Muster issue 49: `validate_every` by epochs, early stopping and `keep_best` follow the passes
    of the stage."""
    validate = {"tokens": {"path": "train.bin", "dtype": "uint16"}}
    fit = {"epochs": 4, "validate_every": 1}
    stop = {"early_stopping": {"patience": 2}}
    train = {"tokens": {"path": "train.bin", "dtype": "uint16"}}
    for name, stages, checkpoint in (
        ("validated", [{"fit": fit}], None),
        ("stopped", [{"fit": fit | stop}, {"fit": {"epochs": 1}}], None),
        ("best", [{"fit": fit | {"keep_best": {}}}], {"directory": "ckpt", "keep": 1}),
    ):
        epochs.continued(
            name,
            4,
            world_size=1,
            data={"train": train, "validate": validate},
            stages=stages,
            checkpoint=checkpoint,
        )
    passes = {}
    for name in ("validated", "stopped", "best"):
        epochs.succeeded(name)
        entries = epochs.client.entries(name)
        passes[name] = [one.step for one in entries if one.HasField("validation")]
    # 8 samples of epoch 0 are left, 2 in a step.
    assert passes["validated"] == [8, 20, 32, 44]
    # The first pass is an improvement, two more are none. The second stage has a whole epoch.
    assert passes["stopped"] == [8, 20, 32]
    assert epochs.client.get("stopped").step == 32 + 12
    best = [one.step for one in epochs.client.get("best").checkpoints if one.best]
    assert best == [8]


def test_a_stage_by_epochs_that_began_within_an_epoch_ends_at_the_same_place(epochs):
    """Muster issue 49: stages by epochs after a stage by steps."""
    stages = [{"fit": {"steps": 2}}, {"fit": {"epochs": 1}}, {"fit": {"epochs": 1}}]
    epochs.continued("within", 4, world_size=1, stages=stages)
    epochs.succeeded("within")
    # From sample 8 of epoch 0 to sample 8 of epoch 2: 48 samples, of which 8 were taken.
    found = epochs.steps("within")
    assert sum(samples for samples, _ in found.values()) == 48 - 8
    assert list(found) == list(range(5, 5 + 20))


def test_data_of_another_size_or_in_another_order_are_named(epochs):
    """Muster issue 49: `start: everything` with more data, another seed or another order repeated
    and left out samples without a word."""
    epochs.continued("more", 4, "more.bin")
    epochs.continued("seed", 4, seed=SEED + 1)
    epochs.continued("order", 4, batch=BATCH | {"order": "sequential"})
    epochs.continued("seed-of-next", 6, seed=SEED + 1)
    for name in ("more", "seed", "order", "seed-of-next"):
        epochs.succeeded(name)
    more = epochs.events("more")
    said = "data.train has 40 samples in an epoch, and had 24 when the checkpoint was written"
    assert said in more["DATA_SIZE_CHANGED"]
    assert "twice" in more["DATA_SIZE_CHANGED"]
    assert "16 steps instead of 8 remain" in more["STEPS_PER_EPOCH_CHANGED"]
    assert epochs.client.get("more").step == 4 + 6 + 10
    order = epochs.events("order")["DATA_ORDER_CHANGED"]
    assert "order sequential, and this epoch was begun with order shuffled and seed 7" in order
    assert "seed 8, and this epoch was begun with" in epochs.events("seed")["DATA_ORDER_CHANGED"]
    assert "DATA_ORDER_CHANGED" not in epochs.events("seed-of-next"), "no sample is taken twice"
    for name in ("seed", "order", "seed-of-next"):
        assert epochs.client.get(name).step == 12


def test_a_job_without_an_epoch_left_fails_by_name(epochs):
    """Muster issue 49: such a job SUCCEEDED, and had trained nothing."""
    epochs.continued("nothing", 6, stages=[{"fit": {"epochs": 1}}])
    epochs.muster.cli("wait", "nothing", expect=100)
    message = epochs.client.get("nothing").failure.reason
    assert "is of step 6, and the fit stages have 6 steps" in message
    assert "nothing would be trained" in message


def test_a_job_with_the_same_ranks_goes_on_to_the_bit_and_without_an_event(epochs):
    """Muster issue 49: what was right stays as it is."""
    epochs.continued("same", 4)
    epochs.succeeded("same")
    source = epochs.steps("source")
    assert epochs.steps("same") == {step: source[step] for step in range(5, 13)}
    told = epochs.events("same")
    assert not {"STEPS_PER_EPOCH_CHANGED", "DATA_SIZE_CHANGED", "DATA_ORDER_CHANGED"} & set(told)
