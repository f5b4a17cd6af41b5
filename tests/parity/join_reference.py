"""Training of any torch module in one process on uneven inputs, from
docs/concepts/uneven-inputs.md: what Muster's ranks are compared with.

The process takes the micro-batches of all ranks one after the other. It adds up the gradients of
each rank, adds up these sums in the order of the ranks, and divides once by what `divide_by` says.
Each rank normalizes with its own micro-batches and updates its own BatchNorm statistics. After a
step all ranks continue with the statistics of the highest rank that had input."""

import copy
import dataclasses
import fnmatch
import math

import torch
import torch.nn.functional as F

from tests.parity import reference, sampler


def copy_of(named):
    return {name: tensor.detach().clone() for name, tensor in named}


@dataclasses.dataclass
class Step:
    loss: float
    state: dict  # {slot/name: tensor}, as checkpoints.read gives it
    joined: dict  # {rank: the first step to which it brought nothing}


def divisor_of(divide_by, world_size, accumulate, terms):
    """`terms`: of each micro-batch that was brought."""
    return {"initial": world_size * accumulate, "active": len(terms), "samples": sum(terms)}[
        divide_by
    ]


def state_of(model, optimizer):
    state = {f"param/{name}": tensor.detach().clone() for name, tensor in model.named_parameters()}
    state |= {f"buffer/{name}": tensor.clone() for name, tensor in model.named_buffers()}
    for name, parameter in model.named_parameters():
        for slot, value in optimizer.state.get(parameter, {}).items():
            if value is not None:
                state[f"{slot}/{name}"] = value.detach().clone()
    return state


def with_zeros(expected, found):
    """The expected contents of a checkpoint. A trained parameter that no step has used has no state
    in PyTorch, and zeros in a checkpoint, which mean the same."""
    unused = {
        name: torch.zeros_like(tensor)
        for name, tensor in found.items()
        if name not in expected and f"param/{name.split('/', 1)[1]}" in expected
    }
    return unused | expected


def freeze(model, rules):
    """Freezes and unfreezes parameters by rules like JobSpec's TrainableRule. A frozen parameter
    has no gradient."""
    for rule in rules:
        ((action, pattern),) = rule.items()
        for name, parameter in model.named_parameters():
            if fnmatch.fnmatchcase(name, pattern):
                parameter.requires_grad_(action == "unfreeze")


def train(spec, model, data, steps, changes, computed_in=torch.float32, reduced_as=torch.float32):
    """`data`: (inputs, labels) of each rank. `steps`: as sampler.own_steps yields them. `changes`:
    {steps done: rules}. `computed_in`: forward and backward use parameters and inputs that are
    rounded to this type. `reduced_as`: the gradients of each rank are rounded to this type. Yields
    a Step for each."""
    batch, world_size = spec["batch"], spec["world_size"]
    divide_by = spec["uneven_inputs"]["join"]["divide_by"]
    accumulate = batch.get("accumulate", 1)
    optimizer = reference.build_optimizer(spec["optimizer"], model.train())
    joined = {}
    for number, ranks in enumerate(steps, 1):
        freeze(model, changes.get(number - 1, []))
        optimizer.zero_grad(set_to_none=True)
        agreed = copy_of(model.named_buffers())
        after = agreed
        losses, terms = [], []
        gradients = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
        used = set()
        for rank, micro_batches in enumerate(ranks):
            model.load_state_dict(agreed, strict=False)
            rounded = computed_in != torch.float32
            running = copy.deepcopy(model).to(computed_in) if rounded else model
            own = {name: torch.zeros_like(gradient) for name, gradient in gradients.items()}
            for samples in micro_batches:
                inputs, labels = (part[samples] for part in data[rank])
                loss = F.cross_entropy(running(inputs.to(computed_in)).float(), labels)
                weight = len(labels) if divide_by == "samples" else 1
                if loss.requires_grad:
                    (loss * weight).backward()
                for name, parameter in running.named_parameters():
                    if parameter.grad is not None:
                        used.add(name)
                        own[name] += parameter.grad.float()
                        parameter.grad = None
                losses.append(loss.item() * weight)
                terms.append(len(labels))
            for name, gradient in own.items():
                gradients[name] += gradient.to(reduced_as).float()
            if micro_batches:
                after = copy_of(model.named_buffers())
                joined.pop(rank, None)
            else:
                joined.setdefault(rank, number)
        model.load_state_dict(after, strict=False)
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        for name, parameter in model.named_parameters():
            if parameter.requires_grad and name in used:  # by any rank
                divisor = divisor_of(divide_by, world_size, accumulate, terms)
                parameter.grad = gradients[name] / divisor
        if "clip_grad_norm" in spec:
            torch.nn.utils.clip_grad_norm_(trained, spec["clip_grad_norm"])
        optimizer.step()
        loss = sum(losses) / (sum(terms) if divide_by == "samples" else len(terms))
        yield Step(loss, state_of(model, optimizer), dict(joined))


def steps_of_an_epoch(counts, accumulate):
    """`counts`: micro-batches of each rank."""
    return max(math.ceil(count / accumulate) for count in counts)


def own_steps(spec, sizes):
    batch = spec["batch"]
    return sampler.own_steps(
        sizes,
        spec["seed"],
        batch["per_rank"],
        batch.get("accumulate", 1),
        batch.get("order", "shuffled"),
        "uneven",
    )
