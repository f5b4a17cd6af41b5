"""Makes a small pretrained GPT-2, as transformers writes it: a stand-in for weights of your own.

    python3 pretrain.py --out FOLDER TEXT...

trains on the bytes of the texts (the tokens of `muster data pack --tokenizer bytes`).
"""

import argparse
import pathlib

import numpy
import torch
from transformers import GPT2Config, GPT2LMHeadModel

CONTEXT = 64


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", required=True, help="folder for config.json and model.safetensors")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("texts", nargs="+")
    arguments = parser.parse_args()

    torch.manual_seed(1)
    data = b"".join(pathlib.Path(text).read_bytes() for text in sorted(arguments.texts))
    tokens = torch.from_numpy(numpy.frombuffer(data, dtype=numpy.uint8).astype(numpy.int64))
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=256,
            n_positions=CONTEXT,
            n_embd=96,
            n_layer=2,
            n_head=4,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=None,
            eos_token_id=None,
        )
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    for step in range(arguments.steps):
        starts = torch.randint(len(tokens) - CONTEXT, (16,))
        batch = torch.stack([tokens[start : start + CONTEXT] for start in starts])
        loss = model(batch, labels=batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if (step + 1) % 40 == 0:
            print(f"step {step + 1}: loss {loss.item():.4f}", flush=True)
    model.save_pretrained(arguments.out)


if __name__ == "__main__":
    main()
