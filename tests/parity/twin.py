"""Training of any torch module in plain PyTorch, one process, from a job: what models from outside
are compared with.

The process takes the micro-batches of all ranks one after the other and adds up their gradients, as
in reference.py. Then it divides once and steps torch.optim, in the job's precision."""

import dataclasses

import numpy
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from tests.parity import reference, sampler


@dataclasses.dataclass
class Result:
    losses: list  # mean over all micro-batches, one for each step
    tensors: dict  # after the last step: parameters and buffers by name


class Rows:
    def __init__(self, inputs, labels):
        self.inputs = torch.from_numpy(numpy.load(inputs))
        self.labels = torch.from_numpy(numpy.load(labels))

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, samples):
        return self.inputs[samples], self.labels[samples]


class Arrays:
    """The arrays of a safetensors file: the inputs by name, and the targets (None: there are
    none, because they are among the inputs)."""

    def __init__(self, source):
        self.arrays = load_file(source["path"])
        self.inputs = source["inputs"]
        self.targets = source.get("targets")

    def __len__(self):
        return len(next(iter(self.arrays.values())))

    def __getitem__(self, samples):
        taken = {name: array[samples] for name, array in self.arrays.items()}
        inputs = {name: taken[name] for name in self.inputs}
        return inputs, None if self.targets is None else taken[self.targets]


def open_data(source, context):
    if "tokens" in source:
        return reference.Tokens(source["tokens"]["path"], context)
    if "safetensors" in source:
        return Arrays(source["safetensors"])
    return Rows(source["npy"]["inputs"], source["npy"]["labels"])


def cross_entropy(logits, targets):
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))


def train(spec, model, loss=cross_entropy, before_step=lambda model: None, context=None):
    """Runs the job's one fit stage on `model`, which keeps its end."""
    model.train()
    data = open_data(spec["data"]["train"], context)
    batch = spec["batch"]
    plan = sampler.steps(
        len(data),
        spec["seed"],
        spec["world_size"],
        batch["per_rank"],
        batch.get("accumulate", 1),
        batch.get("order", "shuffled"),
        batch.get("last", "drop"),
    )
    (stage,) = spec["stages"]
    optimizer = reference.build_optimizer(spec["optimizer"], model)
    scaler = reference.grad_scaler(spec)
    losses = []
    for _, ranks in zip(range(stage["fit"]["steps"]), plan):
        before_step(model)
        optimizer.zero_grad()
        micro_batches = [samples for rank in ranks for samples in rank]
        step_losses = []
        for samples in micro_batches:
            inputs, targets = data[samples]
            with reference.autocast(spec):
                one = loss(model(**inputs) if isinstance(inputs, dict) else model(inputs), targets)
            scaler.scale(one).backward()
            step_losses.append(one.item())
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.grad /= len(micro_batches)
        scaler.step(optimizer)
        scaler.update()
        losses.append(sum(step_losses) / len(step_losses))
    return Result(
        losses, {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    )


def assert_close(found, expected, tolerance):
    """Checks that two dicts of tensors, or two lists of losses, agree within `tolerance`."""
    if isinstance(expected, list):
        found = {str(step): torch.tensor(loss) for step, loss in enumerate(found, 1)}
        expected = {str(step): torch.tensor(loss) for step, loss in enumerate(expected, 1)}
    assert found.keys() == expected.keys()
    difference = {name: (found[name] - expected[name]).abs().max().item() for name in expected}
    worst = max(difference, key=difference.get)
    print(f"largest difference: {difference[worst]:.1e}, {worst}")
    assert difference[worst] <= tolerance, f"{worst}: {difference[worst]}"


# bfloat16 has 8 bits, float16 11: what rounds the other way somewhere is off by one unit of them,
# and 20 steps add up.
HALF_PRECISION = {"bfloat16": 1e-2, "float16": 2e-3}


def assert_trained_in_half_precision(losses, spec, build, loss=cross_entropy, context=None):
    """Checks a job's `spec` with a precision: the losses are those of PyTorch under autocast, and
    not those in float32."""
    expected = train(spec, build(), loss, context=context).losses
    full = train(spec | {"precision": "float32"}, build(), loss, context=context).losses
    assert_close(losses, expected, HALF_PRECISION[spec["precision"]])
    # The effect of the precision itself on the first loss, which no step has touched, is larger
    # than its difference.
    assert full[0] != expected[0]
    assert abs(losses[0] - expected[0]) < abs(full[0] - expected[0]) / 10
