"""Training by PyTorch's FSDP2 in two processes, from a job file: it goes on from what Muster
writes, and writes what a job begins with.

Each step takes the samples that reference.py takes, half of them on each rank."""

import copy
import dataclasses
import itertools
import os
import time

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.fsdp import fully_shard

from tests.bazel import bound
from tests.parity import reference, sampler

RANKS = 2


@dataclasses.dataclass
class Stretch:
    """Some steps of a job, which follow what the stretch before has left."""

    spec: dict
    done: int  # steps of the job before the first of these
    frozen: dict  # step -> names of the parameters that are not trained in it; up to the last step


def train(folder, parameters, state, stretches):
    """[{step: {name: parameter}}, ...] of the stretches. Begins with `parameters` ({name: tensor})
    and the state of the optimizer in the file `state` (torch.save, by name). After the first
    stretch, what a job reads is in folder/trained.safetensors and folder/trained.pt."""
    save_file(parameters, folder / "begin.safetensors")
    # Imports once what is imported here, and no process inherits threads of the test.
    torch.multiprocessing.set_forkserver_preload([__name__])
    ranks = torch.multiprocessing.start_processes(
        train_rank, (folder, state, stretches), RANKS, join=False, start_method="forkserver"
    )
    longest = bound(30)
    end_of_wait = time.monotonic() + longest
    try:
        while not ranks.join(timeout=5):
            if time.monotonic() > end_of_wait:
                raise TimeoutError(f"the ranks of FSDP2 have not ended in {longest} seconds")
    finally:
        for process in ranks.processes:
            process.kill()
            process.join()
    found = torch.load(folder / "steps.pt", weights_only=True)
    assert len(found) == len(stretches)
    return found


def train_rank(rank, folder, state, stretches):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", store=dist.FileStore(str(folder / "store"), RANKS), rank=rank, world_size=RANKS
    )
    model = reference.build(stretches[0].spec).train()
    parameters = load_file(folder / "begin.safetensors")
    missing, unexpected = model.load_state_dict(parameters, strict=False)
    assert not unexpected and missing == ["lm_head.weight"]  # it is transformer.wte.weight
    for block in model.transformer.h:
        fully_shard(block)
    fully_shard(model)
    optimizer = reference.grouped_optimizer(stretches[0].spec["optimizer"], model)
    rates = [group["lr"] for group in optimizer.param_groups]
    load(model, optimizer, torch.load(state, weights_only=True), rank)
    found = []
    for stretch in stretches:
        found.append({})
        for step in take_steps(stretch, rank, model, optimizer, rates):
            found[-1][step] = parameters = whole(get_model_state_dict, model)
            parameters.pop("lm_head.weight", None)  # on others than rank 0 there is nothing
        if len(found) == 1:
            optimizer_state = whole(get_optimizer_state_dict, model, optimizer)
            if rank == 0:
                save_file(parameters, folder / "trained.safetensors")
                torch.save(optimizer_state, folder / "trained.pt")
    if rank == 0:
        torch.save(found, folder / "steps.pt")
    dist.barrier()
    os._exit(0)  # as in join_model.py: no destructors


def load(model, optimizer, state, rank):
    """Rank 0 has the whole state. PyTorch leaves out the state of a parameter that is frozen during
    the load, and requires a state for every other parameter."""
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in state["state"])
    set_optimizer_state_dict(
        model,
        optimizer,
        state if rank == 0 else {},
        options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True),
    )


def whole(get, *arguments):
    """A state_dict on rank 0, nothing on others. A copy: whole tensors may be the model's own."""
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    return copy.deepcopy(get(*arguments, options=options))


def take_steps(stretch, rank, model, optimizer, rates):
    """Yields the number of each step that is done."""
    spec, batch = stretch.spec, stretch.spec["batch"]
    data = reference.open_data(spec, "train")
    plan = sampler.steps(len(data), spec["seed"], spec["world_size"], batch["per_rank"])
    last = max(stretch.frozen)
    factor = reference.rate_factor(spec["schedule"], spec["stages"][0]["fit"]["steps"])
    for step, shares in itertools.islice(zip(range(1, last + 1), plan), stretch.done, None):
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name not in stretch.frozen[step])
        optimizer.zero_grad()
        samples = [sample for share in shares for part in share for sample in part]
        own = samples[rank * len(samples) // RANKS : (rank + 1) * len(samples) // RANKS]
        reference.mean_loss(model, *data[own]).backward()
        for group, rate in zip(optimizer.param_groups, rates):
            group["lr"] = rate * factor(step - 1)
        optimizer.step()
        yield step
