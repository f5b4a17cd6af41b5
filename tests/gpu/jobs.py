"""Small jobs of GPT-2, and how near to PyTorch they must be.

Bounds. In float32 both compute with the same kernels up to the order of sums. So after ten steps of
SGD losses differ by a few roundings of their size (5.5): 1e-4 is 200 roundings. In bfloat16 an
activation is rounded to 8 bits, and a kernel of another shape rounds differently: 2e-2."""

import torch

from tests.gpu import models, ranks, weights_file

STRATEGIES = {
    "ddp": {"ddp": {"bucket_mb": 0.1}},
    "sharded_ddp": {"sharded_ddp": {"bucket_mb": 0.1}},
    "fsdp": {"fsdp": {}},
}
GPT2 = {"vocab_size": 256, "context": 32, "layers": 3, "heads": 4, "width": 64}
STEPS = 10


def bound(spec):
    return 2e-2 if spec.get("precision") == "bfloat16" else 1e-4


def write_tokens(path, samples, context, seed):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, 256, (samples * context + 1,), generator=generator)
    path.write_bytes(b"".join(token.to_bytes(2, "little") for token in tokens.tolist()))


def job(folder, strategy, world_size, changes=None, model=None):
    model = model or GPT2
    write_tokens(folder / "train.bin", 60, model["context"], 1)
    weights_file.save(
        dict(models.build({"gpt2": model}).named_parameters()), folder / "weights.safetensors"
    )
    return {
        "name": "gpu",
        "world_size": world_size,
        "device": ranks.device(),
        "seed": 3,
        "model": {"gpt2": model, "weights": str(folder / "weights.safetensors")},
        "data": {"train": {"tokens": {"path": str(folder / "train.bin"), "dtype": "uint16"}}},
        "strategy": STRATEGIES[strategy],
        "optimizer": {"sgd": {"lr": 0.1, "momentum": 0.9}},
        "batch": {"per_rank": 2},
        "stages": [{"fit": {"steps": STEPS}}],
        "export": {"path": str(folder / "out.safetensors")},
    } | (changes or {})
