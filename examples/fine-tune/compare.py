"""Opens models with transformers and compares their loss on held-out tokens.

    python3 compare.py TOKENS FOLDER FOLDER

TOKENS is a file of uint16 tokens, as `muster data pack` writes it. Ends with 1 unless the second
model is better."""

import sys

import numpy
import torch
from transformers import AutoModelForCausalLM


@torch.no_grad()
def held_out_loss(folder, tokens):
    """Returns the mean loss over the file's samples, which are those of Muster's validation
    (docs/reference/data.md)."""
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    context = model.config.max_position_embeddings
    samples = (len(tokens) - 1) // context
    inputs = tokens[: samples * context].view(samples, context)
    targets = tokens[1 : samples * context + 1].view(samples, context)
    total = 0.0
    for some, wanted in zip(inputs.split(64), targets.split(64)):
        logits = model(some).logits
        total += torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), wanted.flatten(), reduction="sum"
        ).item()
    return total / targets.numel()


def main():
    if len(sys.argv) != 4:
        raise SystemExit(__doc__)
    tokens = torch.from_numpy(numpy.fromfile(sys.argv[1], dtype="<u2").astype(numpy.int64))
    before, after = (held_out_loss(folder, tokens) for folder in sys.argv[2:])
    print(f"held-out loss: {sys.argv[2]} {before:.4f}, {sys.argv[3]} {after:.4f}")
    if not after < before:
        raise SystemExit(f"{sys.argv[3]} is no better than {sys.argv[2]}")


if __name__ == "__main__":
    main()
