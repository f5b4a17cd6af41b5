"""The measured cases: models, data and initial values, the same for Muster and for PyTorch."""

import dataclasses
import fnmatch
import pathlib

import numpy
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

from tests.parity import sampler

WORLD_SIZE = 2
SEED = 3


class Mlp(torch.nn.Module):
    def __init__(self, inputs, hidden, classes):
        super().__init__()
        widths = [inputs, *hidden, classes]
        self.layers = torch.nn.ModuleList(torch.nn.Linear(a, b) for a, b in zip(widths, widths[1:]))
        for layer in self.layers:  # He: 200 layers of the default would end in zeros and denormals
            torch.nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = F.relu(layer(x))
        return self.layers[-1](x)


class Conv1D(torch.nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(inputs, outputs) * 0.02)
        self.bias = torch.nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return torch.addmm(self.bias, x, self.weight)


class Block(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1 = torch.nn.LayerNorm(width)
        self.attn = torch.nn.ModuleDict(
            {"c_attn": Conv1D(width, 3 * width), "c_proj": Conv1D(width, width)}
        )
        self.ln_2 = torch.nn.LayerNorm(width)
        self.mlp = torch.nn.ModuleDict(
            {"c_fc": Conv1D(width, 4 * width), "c_proj": Conv1D(4 * width, width)}
        )

    def forward(self, x):
        batch, length, width = x.shape
        x = x.view(-1, width)
        q, k, v = (
            part.view(batch, length, self.heads, -1).transpose(1, 2)
            for part in self.attn["c_attn"](self.ln_1(x)).split(width, dim=1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn["c_proj"](mixed.transpose(1, 2).reshape(-1, width))
        hidden = F.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh")
        return (x + self.mlp["c_proj"](hidden)).view(batch, length, width)


class Gpt2(torch.nn.Module):
    """GPT-2 with Hugging Face's names, written as lean as PyTorch allows: transformers' own is
    slower."""

    def __init__(self, vocab_size, context, layers, heads, width):
        super().__init__()
        self.transformer = torch.nn.ModuleDict(
            {
                "wte": torch.nn.Embedding(vocab_size, width),
                "wpe": torch.nn.Embedding(context, width),
                "h": torch.nn.ModuleList(Block(width, heads) for _ in range(layers)),
                "ln_f": torch.nn.LayerNorm(width),
            }
        )
        for table in ("wte", "wpe"):
            torch.nn.init.normal_(self.transformer[table].weight, std=0.02)

    def forward(self, tokens):
        wte, wpe = self.transformer["wte"].weight, self.transformer["wpe"].weight
        x = F.embedding(tokens, wte) + wpe[: tokens.shape[1]]
        for block in self.transformer["h"]:
            x = block(x)
        return F.linear(self.transformer["ln_f"](x), wte)


class Rows:
    def __init__(self, folder):
        tensors = load_file(folder / "train.safetensors")
        self.inputs, self.labels = tensors["inputs"], tensors["labels"]

    def __len__(self):
        return len(self.labels)

    def read(self, samples):
        return self.inputs[samples], self.labels[samples]


class Tokens:
    def __init__(self, folder, context):
        tokens = numpy.fromfile(folder / "train.bin", dtype="<u2").astype("int64")
        count = (len(tokens) - 1) // context
        # Overlapping by one: inputs and targets are slices of a row.
        self.rows = torch.from_numpy(tokens).unfold(0, context + 1, context)[:count]

    def __len__(self):
        return len(self.rows)

    def read(self, samples):
        rows = self.rows[samples]
        return rows[:, :-1], rows[:, 1:]


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    kind: str
    options: dict
    per_rank: int
    samples: int
    # The rate is so low that rounding errors do not grow, so that losses can be compared.
    learning_rate: float
    # Rules of the job file; the last one that fits decides.
    trainable: tuple = ()

    @property
    def adamw(self):
        return {"lr": self.learning_rate, "betas": [0.9, 0.999], "eps": 1e-5, "weight_decay": 0.01}

    def build(self):
        return (Gpt2 if self.kind == "gpt2" else Mlp)(**self.options)

    def open(self, folder):
        folder = pathlib.Path(folder)
        return Tokens(folder, self.options["context"]) if self.kind == "gpt2" else Rows(folder)

    def load(self, folder):
        model = self.build()
        model.load_state_dict(load_file(pathlib.Path(folder) / "weights.safetensors"))
        self.freeze(model)
        return model

    def freeze(self, model):
        for rule in self.trainable:
            [(action, pattern)] = rule.items()
            for name, parameter in model.named_parameters():
                if fnmatch.fnmatchcase(name, pattern):
                    parameter.requires_grad_(action == "unfreeze")

    def write(self, folder):
        """Data and initial values."""
        torch.manual_seed(SEED)
        save_file(self.build().state_dict(), folder / "weights.safetensors")
        if self.kind == "gpt2":
            random = numpy.random.default_rng(SEED)
            words = random.integers(0, self.options["vocab_size"], (64, 8))
            tokens = words[random.integers(0, 64, self.samples * self.options["context"] // 8 + 1)]
            tokens.astype("<u2").tofile(folder / "train.bin")
            return
        rows = torch.randn(self.samples, self.options["inputs"])
        teacher = torch.randn(self.options["inputs"], self.options["classes"])
        save_file(
            {"inputs": rows, "labels": (rows @ teacher).argmax(1)}, folder / "train.safetensors"
        )

    def batches(self, rank, size, world_size=WORLD_SIZE):
        """Sample indices of a rank, step after step, as Muster takes them."""
        for step in sampler.steps(size, SEED, world_size, self.per_rank):
            yield torch.tensor(step[rank][0])

    def job(self, folder, steps, world_size=WORLD_SIZE):
        data = (
            {"tokens": {"path": str(folder / "train.bin"), "dtype": "uint16"}}
            if self.kind == "gpt2"
            else {"safetensors": {"path": str(folder / "train.safetensors")}}
        )
        return {
            "name": "bench",
            "world_size": world_size,
            "seed": SEED,
            "model": {self.kind: self.options, "weights": str(folder / "weights.safetensors")},
            "data": {"train": data},
            "optimizer": {"adamw": self.adamw},
            "batch": {"per_rank": self.per_rank},
            "stages": [{"fit": {"steps": steps}}],
            "restart": {"max_restarts": 0},
            "trainable": {"rules": list(self.trainable)},
        }


CASES = {
    case.name: case
    for case in [
        Case(
            "mlp-8x1024",
            "mlp",
            {"inputs": 1024, "hidden": [1024] * 7, "classes": 1024},
            32,
            4096,
            1e-5,
        ),
        Case(
            "linear-200x64",
            "mlp",
            {"inputs": 64, "hidden": [64] * 199, "classes": 64},
            32,
            4096,
            1e-7,
        ),
        Case(
            "gpt-4x256",
            "gpt2",
            {"vocab_size": 256, "context": 128, "layers": 4, "heads": 4, "width": 256},
            8,
            4096,
            1e-4,
        ),
    ]
}
