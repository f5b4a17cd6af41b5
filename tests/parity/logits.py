"""The results of Muster, through muster-logits, and of transformers for given weights and
tokens."""

import json
import subprocess

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from tests import bazel
from tests.parity import cluster


def random_values(model, seed=1):
    """Random values everywhere: transformers starts biases at 0 and norms at 1, which would hide
    mistakes."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.3, generator=generator)
    return model.eval()


def follow_the_text(model):
    """Values with which each token depends on the whole text before it: strong attention, and
    neither embeddings nor biases that outweigh it. Other models repeat one token, which would hide
    mistakes."""
    with torch.no_grad():
        for name, parameter in random_values(model).named_parameters():
            if parameter.dim() == 1:
                if name.endswith(".bias"):
                    parameter.mul_(0.1)
                else:
                    parameter.add_(1)
                if "_norm." in name and "attn" in name:  # of the heads of queries and keys
                    parameter.mul_(3)
            elif "wte" in name or "embed_tokens" in name:
                parameter.mul_(0.1)
            elif "attn" in name:
                parameter.mul_(3)
    return model


def random_tokens(options, batch=3):
    generator = torch.Generator().manual_seed(2)
    return torch.randint(options["vocab_size"], (batch, options["context"]), generator=generator)


def of_muster(folder, kind, options, weights, tokens, *more):
    """The logits; what `more` names for muster-logits is done too."""
    tokens.to(torch.uint32).numpy().astype("<u4").tofile(folder / "tokens.bin")
    command = [
        bazel.runfile("tests/parity/muster-logits"),
        *("--model", kind, "--options", json.dumps(options), "--weights", weights),
        *("--tokens", folder / "tokens.bin", "--batch", str(len(tokens))),
        *("--out", folder / "logits.safetensors"),
        *more,
    ]
    subprocess.run(command, check=True, env=cluster.environment())
    return load_file(folder / "logits.safetensors")["logits"]


@torch.no_grad()
def of_transformers(model, tokens):
    return model(tokens).logits


def gradients_of_muster(folder, kind, options, weights, tokens):
    """Returns the gradients of the mean loss of predicting each row's next token, by parameter."""
    path = folder / "gradients.safetensors"
    of_muster(folder, kind, options, weights, tokens, "--gradients", path)
    return load_file(path)


def gradients_of_transformers(model, tokens):
    model.zero_grad()
    logits = model(tokens[:, :-1]).logits
    F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def assert_close(found, expected, tolerance=1e-4):
    assert found.shape == expected.shape
    print(
        f"largest difference {(found - expected).abs().max():.1e}, largest value "
        f"{expected.abs().max():.1f}"
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)
