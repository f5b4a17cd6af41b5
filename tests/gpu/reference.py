"""Training in plain PyTorch, one process, on the device that Muster uses: what the ranks of
tests/gpu are compared with. It takes the micro-batches of all ranks one after the other, adds up
their gradients in place, and divides once."""

import fnmatch

import torch
import torch.nn.functional as F

from tests.gpu import models, weights_file
from tests.parity import sampler


def read_tokens(path, context):
    """The samples of a file of uint16 tokens: int64 [samples, context + 1]."""
    with open(path, "rb") as file:
        tokens = torch.frombuffer(bytearray(file.read()), dtype=torch.uint16).to(torch.int64)
    count = (len(tokens) - 1) // context
    return torch.stack([tokens[i * context : (i + 1) * context + 1] for i in range(count)])


def steps_of(spec, samples):
    """The batches of all micro-batches of all ranks, for each step, as token tensors."""
    batch, seed = spec["batch"], spec.get("seed", 0)
    accumulate, last = batch.get("accumulate", 1), batch.get("last", "drop")
    if len(samples) == 1:
        plan = sampler.steps(
            len(samples[0]), seed, spec["world_size"], batch["per_rank"], accumulate, last=last
        )
        for ranks in plan:
            yield [samples[0][indices] for rank in ranks for indices in rank]
    else:
        sizes = [len(own) for own in samples]
        for ranks in sampler.own_steps(sizes, seed, batch["per_rank"], accumulate, last=last):
            yield [samples[i][indices] for i, rank in enumerate(ranks) for indices in rank]


def optimizer_of(spec, parameters):
    ((kind, settings),) = spec["optimizer"].items()
    kinds = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}
    return kinds[kind](parameters, **settings)


def is_trained(name, rules):
    """The last rule that names it counts."""
    trained = True
    for rule in rules:
        ((verb, pattern),) = rule.items()
        if fnmatch.fnmatchcase(name, pattern):
            trained = verb == "unfreeze"
    return trained


def train(spec, device, rules_after=None, after_step=lambda step, model, optimizer: None):
    """The loss of each step, and the parameters after the last one. `rules_after`: {steps done:
    rule}, as those of `trainable` in a job file."""
    model = models.build(spec["model"])
    model.load_state_dict(weights_file.load(spec["model"]["weights"]))
    model.to(device)
    rules = list(spec.get("trainable", {}).get("rules", []))
    source = spec["data"]["train"]
    files = source.get("per_rank") or [source["tokens"]["path"]]
    context = next(iter(spec["model"].values()))["context"]
    samples = [read_tokens(file, context) for file in files]
    optimizer = optimizer_of(spec, model.parameters())
    bfloat16 = spec.get("precision") == "bfloat16"
    count = spec["world_size"] * spec["batch"].get("accumulate", 1)
    losses = []
    steps = range(spec["stages"][0]["fit"]["steps"])
    for step, micro_batches in zip(steps, steps_of(spec, samples)):
        rules += [rules_after[step]] if rules_after and step in rules_after else []
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(is_trained(name, rules))
            parameter.grad = None
        total = 0.0
        for tokens in micro_batches:
            inputs, targets = tokens[:, :-1].to(device), tokens[:, 1:].to(device)
            with torch.autocast(torch.device(device).type, torch.bfloat16, enabled=bfloat16):
                logits = model(inputs)
                loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
            loss.float().backward()
            total += loss.item()
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        for parameter in trained:
            parameter.grad /= count
        if "clip_grad_norm" in spec:
            torch.nn.utils.clip_grad_norm_(trained, spec["clip_grad_norm"])
        optimizer.step()
        losses.append(total / len(micro_batches))
        after_step(step + 1, model, optimizer)
    return losses, {name: value.detach().cpu() for name, value in model.named_parameters()}
