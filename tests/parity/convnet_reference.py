"""The PyTorch twin of the model `convnet`, and its training on several ranks, in one process.

Each rank normalizes with its own micro-batches and updates its own BatchNorm statistics. After a
step all ranks continue with the statistics of the last rank (docs/internals/collectives.md,
"Buffers")."""

import dataclasses
import math

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from tests.parity import reference, sampler

torch.set_num_threads(1)


class Block(torch.nn.Module):
    """torchvision's BasicBlock."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(outputs)
        self.conv2 = torch.nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = torch.nn.BatchNorm2d(outputs)
        self.downsample = torch.nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.downsample = torch.nn.Sequential(
                torch.nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                torch.nn.BatchNorm2d(outputs),
            )

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.downsample(x))


class Convnet(torch.nn.Module):
    def __init__(self, inputs, widths, blocks, classes):
        super().__init__()
        self.image = inputs
        self.conv1 = torch.nn.Conv2d(inputs[0], widths[0], 3, padding=1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(widths[0])
        self.layers = []
        for stage, (width, count) in enumerate(zip(widths, blocks)):
            first = Block(widths[max(stage - 1, 0)], width, stride=2 if stage else 1)
            layer = torch.nn.Sequential(first, *(Block(width, width, 1) for _ in range(count - 1)))
            self.add_module(f"layer{stage + 1}", layer)
            self.layers.append(layer)
        self.fc = torch.nn.Linear(widths[-1], classes)

    def forward(self, rows):
        x = F.relu(self.bn1(self.conv1(rows.reshape(-1, *self.image))))
        for layer in self.layers:
            x = layer(x)
        return self.fc(x.mean((2, 3)))


def build(spec):
    model = Convnet(**spec["model"]["convnet"])
    model.load_state_dict(load_file(spec["model"]["weights"]))
    return model


@dataclasses.dataclass
class Result:
    losses: list  # mean over all micro-batches, one for each step
    parameters: dict  # step -> {name: tensor}
    buffers: dict  # step -> for each rank {name: tensor}, as its own forwards left them
    agreed: dict  # step -> {name: tensor}, what all ranks go on with


def copy_of(named):
    return {name: tensor.detach().clone() for name, tensor in named}


def step_optimizer(model, optimizer, micro_batches):
    for parameter in model.parameters():
        parameter.grad /= micro_batches
    optimizer.step()


def train(spec):
    """Runs the job's one fit stage with torch.optim.SGD; a step whose loss is not finite is left
    out."""
    model = build(spec).train()
    data = load_file(spec["data"]["train"]["safetensors"]["path"])
    batch = spec["batch"]
    plan = sampler.steps(
        len(data["labels"]),
        spec["seed"],
        spec["world_size"],
        batch["per_rank"],
        batch["accumulate"],
        last=batch["last"],
    )
    (stage,) = spec["stages"]
    optimizer = torch.optim.SGD(model.parameters(), **spec["optimizer"]["sgd"])
    result = Result([], {}, {}, {})
    for step, ranks in zip(range(1, stage["fit"]["steps"] + 1), plan):
        optimizer.zero_grad()
        agreed = copy_of(model.named_buffers())
        losses, result.buffers[step] = [], []
        for micro_batches in ranks:
            model.load_state_dict(agreed, strict=False)
            for samples in micro_batches:
                with reference.autocast(spec):
                    loss = F.cross_entropy(model(data["inputs"][samples]), data["labels"][samples])
                loss.backward()
                losses.append(loss.item())
            result.buffers[step].append(copy_of(model.named_buffers()))
        result.losses.append(sum(losses) / len(losses))
        if math.isfinite(result.losses[-1]):
            step_optimizer(
                model, optimizer, len(losses)
            )  # the last rank's statistics stay in the model
        else:
            model.load_state_dict(agreed, strict=False)  # the step is left out
        result.parameters[step] = copy_of(model.named_parameters())
        result.agreed[step] = copy_of(model.named_buffers())
    return result


@torch.no_grad()
def validation_loss(spec, parameters, buffers):
    """The mean over all rows with the statistics, not the batch's own."""
    model = build(spec).eval()
    model.load_state_dict({**parameters, **buffers})
    data = load_file(spec["data"]["validate"]["safetensors"]["path"])
    return F.cross_entropy(model(data["inputs"]), data["labels"]).item()
