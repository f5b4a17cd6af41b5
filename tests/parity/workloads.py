"""Small jobs with their data and initial weights, written to a folder."""

import numpy
import torch
from safetensors.torch import save_file

from tests.parity import reference


def write_tokens(path, vocab_size, count, seed):
    """Text-like tokens: each depends on the one before, so that there is something to learn."""
    random = numpy.random.default_rng(seed)
    tokens = numpy.empty(count, dtype="<u2")
    tokens[0] = 0
    jumps = random.integers(0, 5, count)
    for i in range(1, count):
        tokens[i] = (3 * int(tokens[i - 1]) + int(jumps[i])) % vocab_size
    tokens.tofile(path)


def mlp_rows(path, inputs, classes, count, seed):
    """Rows [inputs] whose label is a linear function's largest output."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(count, *inputs, generator=generator)
    teacher = torch.randn(rows[0].numel(), classes, generator=torch.Generator().manual_seed(1))
    labels = (rows.flatten(1) @ teacher).argmax(1)
    save_file({"inputs": rows, "labels": labels}, path)


def language_model(folder, kind, options, model):
    """A job (without optimizer and stages) on tokens, from the weights of a model of
    transformers."""
    write_tokens(folder / "train.bin", options["vocab_size"], 1000, seed=1)
    write_tokens(
        folder / "validate.bin", options["vocab_size"], options["context"] * 13 + 1, seed=2
    )
    model.save_pretrained(folder / "initial")
    (folder / "initial" / "model.safetensors").rename(folder / "weights.safetensors")
    return {
        "name": f"parity-{kind}",
        "seed": 11,
        "model": {kind: options, "weights": str(folder / "weights.safetensors")},
        "data": {
            name: {"tokens": {"path": str(folder / f"{name}.bin"), "dtype": "uint16"}}
            for name in ("train", "validate")
        },
    }


def gpt2(folder, weights_seed=5, **options):
    """GPT-2 with `options` over the small defaults."""
    options = {
        "vocab_size": 37,
        "context": 17,
        "layers": 2,
        "heads": 3,
        "width": 27,
        "inner": 70,
        **options,
    }
    torch.manual_seed(weights_seed)
    model = reference.GPT2LMHeadModel(reference.gpt2_config(options))
    return language_model(folder, "gpt2", options, model)


def llama(folder, weights_seed=5, **options):
    """Llama with `options` over the small defaults."""
    small = {
        "vocab_size": 37,
        "context": 17,
        "layers": 2,
        "heads": 6,
        "kv_heads": 2,
        "width": 36,
        "inner": 96,
    }
    options = small | options
    torch.manual_seed(weights_seed)
    model = reference.LlamaForCausalLM(reference.llama_config(options))
    return language_model(folder, "llama", options, model)


def mlp(folder, weights_seed=5):
    """A job (without optimizer and stages) on rows of shape [3, 5]."""
    mlp_rows(folder / "train.safetensors", (3, 5), classes=7, count=90, seed=1)
    mlp_rows(folder / "validate.safetensors", (3, 5), classes=7, count=23, seed=2)
    options = {"inputs": 15, "hidden": [33, 18], "classes": 7}
    torch.manual_seed(weights_seed)
    save_file(reference.Mlp(**options).state_dict(), folder / "weights.safetensors")
    return {
        "name": "parity-mlp",
        "seed": 2**63 + 5,
        "model": {"mlp": options, "weights": str(folder / "weights.safetensors")},
        "data": {
            name: {"safetensors": {"path": str(folder / f"{name}.safetensors")}}
            for name in ("train", "validate")
        },
    }
