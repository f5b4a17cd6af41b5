"""Jobs on small model folders of transformers, for tests of `model.hf`."""

from tests.parity import hugging_face_models, logits, workloads


def save(name, folder, values=logits.random_values):
    """Writes the model's folder, in several files, and returns the model."""
    model = values(hugging_face_models.build(name))
    size = sum(parameter.nbytes for parameter in model.parameters())
    model.save_pretrained(folder, max_shard_size=size // 2)
    return model


def weights_of(folder):
    index = folder / "model.safetensors.index.json"
    return index if index.exists() else folder / "model.safetensors"


def tokens_of(name):
    context = hugging_face_models.context_of(name)
    return logits.random_tokens({"vocab_size": 61, "context": context})


def assert_close(found, expected):
    logits.assert_close(found, expected, 1e-5 * float(expected.abs().max()))


def as_initialized(model):
    """Values with which a loss has no large roundings."""
    return model


def job(folder, name, **more):
    workloads.write_tokens(folder / "train.bin", 61, 2000, seed=1)
    return {
        "name": name,
        "seed": 13,
        "world_size": 2,
        "model": {"hf": str(folder / "model")},
        "data": {"train": {"tokens": {"path": str(folder / "train.bin")}}},
        "batch": {"per_rank": 3, "accumulate": 2},
        "optimizer": {"adamw": {"lr": 1e-3, "eps": 1e-5}},
        "stages": [{"fit": {"steps": 20}}],
        "export": {"path": str(folder / "out" / "model.safetensors")},
        **more,
    }
