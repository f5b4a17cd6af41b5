"""Jobs on documents: packed into samples, mixed, in every strategy, they train as PyTorch does with
each document by itself.

The packing, the order of a mixture and the loss are written here from docs/reference/data.md, not
from the C++ code. Both sides compute in float32; the bounds are for the order of sums."""

import itertools

import numpy
import pytest
import torch
import torch.nn.functional as F
from safetensors.numpy import save_file
from safetensors.torch import load_file

from tests import exports
from tests.parity import cluster, hugging_face_models, reference, sampler, shared_cluster, twin

CONTEXT = 24
STRATEGIES = ({"ddp": {}}, {"sharded_ddp": {}}, {"fsdp": {}})

muster = shared_cluster.with_slots(3)


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def random_documents(count, seed):
    """Documents of 2 to CONTEXT + 1 tokens, of which a small or a large part is trained."""
    dice = numpy.random.default_rng(seed)
    documents = []
    for _ in range(count):
        length = int(dice.integers(2, CONTEXT + 2))
        trained = (dice.random(length) < dice.choice([0.1, 0.9])).astype("uint8")
        trained[-1] = 1
        documents.append((dice.integers(0, 61, length).astype("uint16"), trained))
    return documents


def write(path, documents):
    lengths = [len(tokens) for tokens, _ in documents]
    save_file(
        {
            "bounds": numpy.cumsum([0, *lengths]).astype("int64"),
            "tokens": numpy.concatenate([tokens for tokens, _ in documents]),
            "trained": numpy.concatenate([trained for _, trained in documents]),
        },
        path,
        {"format": "muster-documents", "version": "1", "vocab_size": "61"},
    )
    return path


def packs(documents):
    """The documents of each sample. Each document goes into the sample with the least free room in
    which it fits, the longest documents first."""
    free, samples = [], []
    order = sorted(range(len(documents)), key=lambda at: -len(documents[at][0]))
    for number in order:
        needed = len(documents[number][0]) - 1
        fitting = [at for at in range(len(free)) if free[at] >= needed]
        if fitting:
            chosen = min(fitting, key=lambda at: (free[at], at))
        else:
            chosen = len(free)
            free.append(CONTEXT)
            samples.append([])
        free[chosen] -= needed
        samples[chosen].append(documents[number])
    return samples


def mixed(parts, weights):
    """The samples of a mixture's epoch."""

    def time(part, at):
        return (at + 0.5) / weights[part]

    last = max((time(part, len(samples) - 1), part) for part, samples in enumerate(parts))
    places = []
    for part, samples in enumerate(parts):
        for at in itertools.takewhile(lambda at: (time(part, at), part) <= last, itertools.count()):
            places.append((time(part, at), part, at % len(samples)))
    return [parts[part][at] for _, part, at in sorted(places)]


def sum_and_terms(model, documents):
    """The sum of the losses of all trained tokens, each document by itself, and their number."""
    total, terms = torch.zeros(()), 0
    for tokens, trained in documents:
        targets = torch.from_numpy(tokens[1:].astype("int64"))
        targets[torch.from_numpy(trained[1:]) == 0] = -100
        inputs = torch.from_numpy(tokens[:-1].astype("int64"))[None]
        total = total + F.cross_entropy(model(inputs).logits[0], targets, reduction="sum")
        terms += int((targets != -100).sum())
    return total, terms


def train(spec, model, samples):
    """The loss of each step, and the parameters at the end."""
    batch = spec["batch"]
    plan = sampler.steps(
        len(samples),
        spec["seed"],
        spec["world_size"],
        batch["per_rank"],
        batch.get("accumulate", 1),
        last=batch.get("last", "drop"),
    )
    optimizer = reference.build_optimizer(spec["optimizer"], model)
    losses = []
    for _, ranks in zip(range(spec["stages"][0]["fit"]["steps"]), plan, strict=False):
        optimizer.zero_grad()
        taken = [samples[at] for rank in ranks for micro in rank for at in micro]
        total, terms = sum_and_terms(model, [one for sample in taken for one in sample])
        (total / terms).backward()
        optimizer.step()
        losses.append(total.item() / terms)
    return losses, {name: value.detach().clone() for name, value in model.named_parameters()}


def job(folder, documents, **more):
    return {
        "name": "documents",
        "seed": 13,
        "world_size": 2,
        "model": {"hf": str(folder / "model"), "context": CONTEXT},
        "data": {"train": {"documents": documents}, **more.pop("data", {})},
        "batch": {"per_rank": 2, "accumulate": 2},
        "optimizer": {"adamw": {"lr": 1e-3, "eps": 1e-5}},
        "stages": [{"fit": {"steps": 12}}],
        "export": {"path": str(folder / "out" / "model.safetensors")},
        **more,
    }


def save(folder, name):
    model = hugging_face_models.build(name)
    model.save_pretrained(folder / "model")
    return model


@pytest.mark.parametrize("name", ["qwen3", "gpt2", "mistral"])
def test_packed_documents_train_as_each_by_itself_in_every_strategy(muster, tmp_path, name):
    model = save(tmp_path, name)
    documents = random_documents(150, seed=3)
    data = {"path": str(write(tmp_path / "train.safetensors", documents))}
    samples = packs(documents)
    assert len(samples) < 100  # otherwise nothing would be packed
    losses, wanted = train(job(tmp_path, data), model, samples)
    if name == "gpt2":  # a shorter context has the first positions
        positions = "transformer.wpe.weight"
        wanted[positions] = wanted[positions][:CONTEXT]
    ends = []
    for strategy in STRATEGIES:
        job_id = f"{name}-{next(iter(strategy))}".replace("_", "-")
        spec = job(tmp_path, data, strategy=strategy)
        spec["export"]["path"] = str(tmp_path / job_id / "model.safetensors")
        muster.run(spec, job_id)
        twin.assert_close(muster.losses(job_id), losses, 1e-6)
        export = tmp_path / job_id / "model.safetensors"
        twin.assert_close(load_file(export), wanted, 1e-5)
        ends.append((muster.losses(job_id), exports.contents(export)))
        events = str(muster.job(job_id)["events"])
        assert f"150 documents are packed into {len(samples)} samples" in events
    assert ends[0] == ends[1] == ends[2]


@pytest.mark.parametrize("world_size, last", [(1, "drop"), (3, "uneven"), (3, "pad")])
def test_each_document_may_be_a_sample_whatever_the_ranks(muster, tmp_path, world_size, last):
    model = save(tmp_path, "qwen3")
    documents = random_documents(40, seed=4)
    data = {"path": str(write(tmp_path / "train.safetensors", documents)), "packing": "none"}
    batch = {"per_rank": 3, "accumulate": 2, "last": last}
    spec = job(tmp_path, data, world_size=world_size, batch=batch, strategy={"fsdp": {}})
    losses, wanted = train(spec, model, [[one] for one in documents])
    muster.run(spec, f"each-{world_size}-{last}")
    twin.assert_close(muster.losses(f"each-{world_size}-{last}"), losses, 1e-6)
    twin.assert_close(load_file(tmp_path / "out" / "model.safetensors"), wanted, 1e-5)


def test_a_mixture_has_the_order_of_its_definition(muster, tmp_path):
    model = save(tmp_path, "qwen3")
    first, second = random_documents(60, seed=5), random_documents(15, seed=6)
    paths = [
        str(write(tmp_path / f"{number}.safetensors", one))
        for number, one in enumerate((first, second))
    ]
    data = {"mixture": [{"path": paths[0], "weight": 1}, {"path": paths[1], "weight": 0.75}]}
    spec = job(tmp_path, data, strategy={"sharded_ddp": {}})
    samples = mixed([packs(first), packs(second)], [1, 0.75])
    losses, wanted = train(spec, model, samples)
    muster.run(spec, "mixture")
    twin.assert_close(muster.losses("mixture"), losses, 1e-6)
    twin.assert_close(load_file(tmp_path / "out" / "model.safetensors"), wanted, 1e-5)
    assert f"an epoch has {len(samples)} samples of the mixture" in str(
        muster.job("mixture")["events"]
    )


def test_a_validation_is_the_mean_over_all_trained_tokens(muster, tmp_path):
    model = save(tmp_path, "gpt2")
    documents = random_documents(70, seed=7)
    data = {"path": str(write(tmp_path / "train.safetensors", documents))}
    spec = job(
        tmp_path,
        data,
        data={"validate": {"documents": data}},
        stages=[{"validate": {}}],
        batch={"per_rank": 4},
    )
    del spec["export"]
    with torch.no_grad():
        total, terms = sum_and_terms(model, documents)
    done = muster.run(spec, "validate")
    assert done["validation_loss"] == pytest.approx(total.item() / terms, abs=1e-6)


def test_the_prompt_of_a_document_is_continued_after_each_validation(muster, tmp_path):
    model = save(tmp_path, "qwen3")
    documents = random_documents(60, seed=9)
    tokens, trained = documents[4] = random_documents(1, seed=1)[0]
    trained[:] = 0
    trained[9:] = 1
    assert len(tokens) > 12
    data = {"path": str(write(tmp_path / "train.safetensors", documents))}
    stage = {"steps": 4, "validate_every": 2}
    ends = []
    for sample in ({}, {"sample": {"document": 4, "max_tokens": 5}}):
        held_out = {"validate": {"documents": data}}
        stages = [{"fit": stage | sample}]
        spec = job(tmp_path, data, data=held_out, strategy={"fsdp": {}}, stages=stages)
        spec["export"]["path"] = str(tmp_path / f"out{len(ends)}" / "model.safetensors")
        muster.run(spec, f"sample-{len(ends)}")
        ends.append(exports.contents(tmp_path / f"out{len(ends)}" / "model.safetensors"))
    assert ends[0] == ends[1]
    events = [
        event for event in muster.job("sample-1")["events"] if event["reason"] == "SAMPLE"
    ]
    assert [int(event["step"]) for event in events][-1] == 4
    model.load_state_dict(load_file(tmp_path / "out1" / "model.safetensors"), strict=False)
    prompt = torch.from_numpy(tokens[:9].astype("int64"))[None]
    made = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=5,
        do_sample=False,
        pad_token_id=0,
        eos_token_id=None,
    )[0, 9:]
    said = " ".join(str(token) for token in made.tolist())
    asked = " ".join(str(token) for token in tokens[:9].tolist())
    assert events[-1]["message"] == f"after {asked} the model writes: {said}"


def test_documents_that_do_not_fit_are_refused_by_their_number(muster, tmp_path):
    save(tmp_path, "qwen3")
    documents = random_documents(10, seed=8)
    path = write(tmp_path / "train.safetensors", documents)
    longest = max(len(tokens) for tokens, _ in documents)
    spec = job(tmp_path, {"path": str(path)})
    spec["model"]["context"] = longest - 2
    number = next(at for at, (tokens, _) in enumerate(documents) if len(tokens) == longest)
    with pytest.raises(cluster.JobFailed) as failed:
        muster.run(spec, "long")
    assert f"document {number} has {longest} tokens; expected at most" in str(failed.value)
