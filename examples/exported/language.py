"""Exports a language model of transformers with the loss that transformers computes, and writes its
data: lines of Debian's licences, of which the first word is no target."""

import pathlib

import muster.export
import torch
from safetensors.torch import save_file
from transformers import Qwen3Config, Qwen3ForCausalLM

HERE = pathlib.Path(__file__).parent
TEXTS = pathlib.Path("/usr/share/common-licenses")
CONTEXT, PADDING = 64, 0


def model():
    """A small Qwen 3 of bytes. Qwen3ForCausalLM.from_pretrained(FOLDER) takes one that is trained
    already."""
    torch.manual_seed(1)
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=256,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            max_position_embeddings=CONTEXT,
            bos_token_id=None,
            eos_token_id=None,
            use_cache=False,
        )
    )


def samples():
    """Returns the lines as bytes, filled up to one length. A mask says which bytes count, and
    labels of -100 are no targets."""
    texts = [path.read_text() for path in sorted(TEXTS.iterdir()) if not path.is_symlink()]
    lines = [line.strip().encode()[:CONTEXT] for text in texts for line in text.splitlines()]
    lines = [line for line in dict.fromkeys(lines) if len(line) > 20]
    tokens = torch.full((len(lines), CONTEXT), PADDING)
    labels = torch.full((len(lines), CONTEXT), -100)
    for row, line in enumerate(lines):
        first = line.index(b" ") + 1 if b" " in line else 1
        tokens[row, : len(line)] = torch.tensor(list(line))
        labels[row, first : len(line)] = tokens[row, first : len(line)]
    order = torch.randperm(len(lines), generator=torch.Generator().manual_seed(1))
    return {
        "input_ids": tokens[order],
        "attention_mask": (tokens != PADDING).long()[order],
        "labels": labels[order],
    }


if __name__ == "__main__":
    made = samples()
    for name, part in (("train", slice(300, None)), ("validate", slice(0, 300))):
        arrays = {name_: one[part].contiguous() for name_, one in made.items()}
        save_file(arrays, HERE / f"language-{name}.safetensors")
    example = {name: one[:3] for name, one in made.items()}
    muster.export(model(), example, HERE / "language", overwrite=True)
