"""Small jobs for tests: seconds, not minutes."""

import copy
import random
import struct

import yaml

TINY = {
    "name": "tiny",
    "world_size": 2,
    "device": "cpu",
    "seed": 7,
    "model": {
        "gpt2": {
            "vocab_size": 256,
            "context": 16,
            "layers": 2,
            "heads": 2,
            "width": 32,
            "dropout": 0.1,
        }
    },
    "data": {"train": {"tokens": {"path": "train.bin", "dtype": "uint16"}}},
    "optimizer": {"adamw": {"lr": 1.0e-3, "weight_decay": 0.1}},
    "schedule": {"warmup_cosine": {"warmup_steps": 5}},
    "batch": {"per_rank": 2, "accumulate": 2},
    "clip_grad_norm": 1.0,
    "stages": [{"fit": {"steps": 20}}],
    "checkpoint": {"directory": "checkpoints", "every_steps": 5, "keep": 3},
    "export": {"path": "model.safetensors"},
}


def write_tokens(path, count, vocabulary=256, seed=1):
    source = random.Random(seed)
    path.write_bytes(
        struct.pack(f"<{count}H", *(source.randrange(vocabulary) for _ in range(count)))
    )


def write_job(folder, name="job.yaml", **changes):
    """TINY with `changes` to its top level (None removes), and its training data, in a folder."""
    job = copy.deepcopy(TINY)
    for key, value in changes.items():
        if value is None:
            job.pop(key, None)
        else:
            job[key] = value
    if not (folder / "train.bin").exists():
        write_tokens(folder / "train.bin", 4096)
    path = folder / name
    path.write_text(yaml.safe_dump(job, sort_keys=False))
    return path
