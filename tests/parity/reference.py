"""Training in plain PyTorch, one process, from a job file: what Muster's numbers are compared with.

The process takes the micro-batches of all ranks one after the other, adds up their gradients in place,
divides once by their number and steps torch.optim. Nothing here comes from Muster but the formats.
"""

import dataclasses
import math

import numpy
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from transformers import GPT2Config, GPT2LMHeadModel

from tests.parity import sampler

torch.set_num_threads(1)


class Mlp(torch.nn.Module):
    def __init__(self, inputs, hidden, classes):
        super().__init__()
        widths = [inputs, *hidden, classes]
        self.layers = torch.nn.ModuleList(torch.nn.Linear(a, b) for a, b in zip(widths, widths[1:]))

    def forward(self, rows):
        x = rows.flatten(1)
        for layer in self.layers[:-1]:
            x = F.relu(layer(x))
        return self.layers[-1](x)


def gpt2_config(options):
    """The transformers configuration of a job file's `gpt2`."""
    dropout = options.get("dropout", 0.0)
    return GPT2Config(
        vocab_size=options["vocab_size"],
        n_positions=options["context"],
        n_embd=options["width"],
        n_layer=options["layers"],
        n_head=options["heads"],
        n_inner=options.get("inner"),
        tie_word_embeddings=options.get("tied", True),
        resid_pdrop=dropout,
        embd_pdrop=dropout,
        attn_pdrop=dropout,
        bos_token_id=None,
        eos_token_id=None,
    )


def build(spec):
    """The job's model with the values of its weights file."""
    options = spec["model"]
    if "gpt2" in options:
        model = GPT2LMHeadModel(gpt2_config(options["gpt2"]))
    else:
        model = Mlp(**options["mlp"])
    if "weights" in options:
        missing, unexpected = model.load_state_dict(load_file(options["weights"]), strict=False)
        tied = "gpt2" in options and options["gpt2"].get("tied", True)
        assert not unexpected and missing == (["lm_head.weight"] if tied else [])
    return model


class Tokens:
    def __init__(self, path, context):
        self.tokens = torch.from_numpy(numpy.fromfile(path, dtype="<u2").astype("int64"))
        self.context = context

    def __len__(self):
        return (len(self.tokens) - 1) // self.context

    def __getitem__(self, samples):
        rows = torch.stack([self.tokens[i * self.context :][: self.context + 1] for i in samples])
        return rows[:, :-1], rows[:, 1:]


class Rows:
    def __init__(self, path):
        tensors = load_file(path)
        self.inputs, self.labels = tensors["inputs"], tensors["labels"]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, samples):
        return self.inputs[samples], self.labels[samples]


def open_data(spec, which):
    source = spec["data"][which]
    if "tokens" in source:
        return Tokens(source["tokens"]["path"], spec["model"]["gpt2"]["context"])
    return Rows(source["safetensors"]["path"])


def mean_loss(model, inputs, targets):
    logits = model(inputs)
    logits = getattr(logits, "logits", logits)
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))


def rate_factor(schedule, total_steps):
    """contract.md 5 and JobSpec's warmup_cosine as a function for LambdaLR."""
    if "warmup_cosine" not in schedule:
        return lambda step: 1.0
    cosine = schedule["warmup_cosine"]
    warmup, least = cosine["warmup_steps"], cosine.get("min_ratio", 0.0)
    total = cosine.get("total_steps", total_steps)

    def factor(step):
        if step < warmup:
            return (step + 1) / warmup
        if step >= total:
            return least
        return least + (1 - least) * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))

    return factor


def build_optimizer(options, parameters):
    if "adamw" in options:
        return torch.optim.AdamW(parameters, **options["adamw"])
    return torch.optim.SGD(parameters, **options["sgd"])


@dataclasses.dataclass
class Result:
    losses: list  # mean over all micro-batches, one for each step
    norms: list  # of the gradient, before clipping
    parameters: dict  # step -> {name: tensor}


def train(spec, seed_of_sampler=None):
    """Runs the job's one fit stage. `seed_of_sampler` is for tests of the tests."""
    model = build(spec).train()
    data = open_data(spec, "train")
    batch = spec["batch"]
    plan = sampler.steps(
        len(data),
        spec.get("seed", 0) if seed_of_sampler is None else seed_of_sampler,
        spec["world_size"],
        batch["per_rank"],
        batch.get("accumulate", 1),
        batch.get("order", "shuffled"),
        batch.get("last", "drop"),
    )
    (stage,) = spec["stages"]
    total_steps = stage["fit"]["steps"]
    optimizer = build_optimizer(spec["optimizer"], model.parameters())
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, rate_factor(spec.get("schedule", {}), total_steps)
    )
    result = Result([], [], {})
    for step, ranks in zip(range(1, total_steps + 1), plan):
        optimizer.zero_grad()
        micro_batches = [samples for rank in ranks for samples in rank]
        losses = []
        for samples in micro_batches:
            loss = mean_loss(model, *data[samples])
            loss.backward()
            losses.append(loss.item())
        for parameter in model.parameters():
            parameter.grad /= len(micro_batches)
        if "clip_grad_norm" in spec:
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), spec["clip_grad_norm"])
            result.norms.append(norm.item())
        optimizer.step()
        scheduler.step()
        result.losses.append(sum(losses) / len(losses))
        result.parameters[step] = {
            name: parameter.detach().clone() for name, parameter in model.named_parameters()
        }
    return result


def validation_loss(spec):
    """The mean over all loss terms of the validation data, each sample once."""
    model = build(spec).eval()
    data = open_data(spec, "validate")
    total, terms = 0.0, 0
    with torch.no_grad():
        for sample in range(len(data)):
            inputs, targets = data[[sample]]
            total += mean_loss(model, inputs, targets).item() * targets.numel()
            terms += targets.numel()
    return total / terms
