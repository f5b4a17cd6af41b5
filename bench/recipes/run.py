#!/usr/bin/env python3
"""The table of recipes: memory and speed of fine-tunes with models of known sizes.

    bench/recipes/run.py [--programs DIR] [--models a,b] [--recipes a,b] [--steps 5]

Makes folders of the sizes of public models with random weights, and conversations as documents.
Each job is trained for some steps on two ranks, alone on the machine. Prints the largest memory of
a rank (LibTorch's allocator, and the process), and the tokens of a second, from the median of the
steps after the first. Needs a Python that finds the package `muster`. bench/README.md has the
figures."""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from bench import harness  # noqa: E402
from bench.documents import run as documents  # noqa: E402
from tests.parity import cluster  # noqa: E402

CONTEXT = 512
LLAMA_LIKE = {"tie_word_embeddings": True, "bos_token_id": 0, "eos_token_id": 1}
# The sizes in the config.json of each model.
MODELS = {
    "gpt2": ("gpt2", {"bos_token_id": 0, "eos_token_id": 1}),
    "SmolLM2-135M": (
        "llama",
        LLAMA_LIKE
        | {
            "vocab_size": 49152,
            "hidden_size": 576,
            "intermediate_size": 1536,
            "num_hidden_layers": 30,
            "num_attention_heads": 9,
            "num_key_value_heads": 3,
            "max_position_embeddings": 8192,
        },
    ),
    "Qwen3-0.6B": (
        "qwen3",
        LLAMA_LIKE
        | {
            "vocab_size": 151936,
            "hidden_size": 1024,
            "intermediate_size": 3072,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "max_position_embeddings": 40960,
        },
    ),
}
# What a job has in addition. "lower half": the blocks of the lower half are frozen.
RECIPES = {
    "ddp": {"strategy": {"ddp": {}}},
    "fsdp": {"strategy": {"fsdp": {}}},
    "fsdp, activation_checkpointing": {
        "strategy": {"fsdp": {}},
        "activation_checkpointing": {},
    },
    "fsdp, lower half frozen": {"strategy": {"fsdp": {}}, "trainable": "lower half"},
}


def make_model(folder, name):
    import torch
    import transformers

    kind, options = MODELS[name]
    config = transformers.AutoConfig.for_model(kind, **options)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    parameters = sum(one.numel() for one in model.parameters())
    model = model.to_empty(device="cpu")
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.02)
    model.save_pretrained(folder)
    return parameters


def job(folder, name, recipe, steps):
    made = dict(RECIPES[recipe])
    if "trainable" in made:
        kind, sizes = MODELS[name]
        blocks = "transformer.h" if kind == "gpt2" else "model.layers"
        half = sizes.get("num_hidden_layers", 12) // 2
        made["trainable"] = {"rules": [{"freeze": f"{blocks}.{i}.*"} for i in range(half)]}
    return {
        "name": "recipe",
        "world_size": 2,
        "model": {"hf": str(folder / name), "context": CONTEXT},
        "data": {"train": {"documents": {"path": str(folder / f"{name}.safetensors")}}},
        "batch": {"per_rank": 1, "accumulate": 4},
        "optimizer": {"adamw": {"lr": 1e-5}},
        "stages": [{"fit": {"steps": steps}}],
        **made,
    }


def measure(programs, folder, name, recipe, steps):
    """The largest allocated and resident bytes of a rank, and the tokens of a second."""
    spec = job(folder, name, recipe, steps)
    with cluster.Cluster(programs, folder / "cluster", slots=2) as muster:
        muster.submit(spec, "recipe")
        peak = resident = 0
        while (now := muster.job("recipe"))["state"] in ("QUEUED", "STARTING", "RUNNING"):
            for rank in now.get("ranks", []):
                memory = rank.get("memory", {})
                peak = max(peak, int(memory.get("total", {}).get("peak_bytes", 0)))
                resident = max(resident, int(memory.get("resident_bytes", 0)))
            subprocess.run(["sleep", "0.5"], check=True)
        assert now["state"] == "SUCCEEDED", muster.log("recipe")
        rows = muster.metrics("recipe")[1:]
    seconds = statistics.median(float(row["duration"].rstrip("s")) for row in rows)
    tokens = 2 * spec["batch"]["accumulate"] * CONTEXT
    return peak, resident, tokens / seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--recipes", default=";".join(RECIPES), help="separated by ;")
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    with harness.programs_of(options.programs) as programs, tempfile.TemporaryDirectory() as work:
        folder = pathlib.Path(work)
        chats = folder / "chats.jsonl"
        documents.write_chats(chats, 2_000_000)
        print("| model | parameters | recipe | GiB allocated | GiB of the process | tokens/s |")
        print("|---|---|---|---|---|---|")
        for name in options.models.split(","):
            parameters = make_model(folder / name, name)
            documents.make_tokenizer(folder / name, chats)
            import muster.data

            muster.data.pack_documents(
                folder / name, files=[chats], out=folder / f"{name}.safetensors", context=CONTEXT
            )
            for recipe in options.recipes.split(";"):
                peak, resident, speed = measure(programs, folder, name, recipe, options.steps)
                print(
                    f"| {name} | {parameters / 1e6:.0f} M | {recipe} | {peak / 2**30:.2f} | "
                    f"{resident / 2**30:.2f} | {speed:.0f} |",
                    flush=True,
                )
            subprocess.run(["rm", "-rf", folder / name], check=True)


if __name__ == "__main__":
    main()
