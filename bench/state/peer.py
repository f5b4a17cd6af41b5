"""One of two ranks of the peer of bench/state: FSDP2 with the same model and optimizer. Reads one
command from each line of standard input, carries the command out with the other rank, and prints
the seconds (rank 0 only). The first line that it prints has the losses of its STEPS steps.

    peer.py RANK PORT FOLDER WIDTH LAYERS STEPS

FOLDER's parent has the weights and the rows that Muster's job has."""

import datetime
import json
import os
import pathlib
import shutil
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    get_state_dict,
    set_state_dict,
)
from safetensors.torch import load_file
from torch.distributed.fsdp import fully_shard

rank, port, folder = int(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3])
width, layers, steps = map(int, sys.argv[4:])
torch.set_num_threads(1)
dist.init_process_group(
    "gloo",
    init_method=f"tcp://127.0.0.1:{port}",
    rank=rank,
    world_size=2,
    timeout=datetime.timedelta(seconds=300),
)
modules = []
for _ in range(layers):
    modules += [torch.nn.Linear(width, width), torch.nn.ReLU()]
model = torch.nn.Sequential(*modules, torch.nn.Linear(width, 2))
linear = [module for module in model if isinstance(module, torch.nn.Linear)]
weights = load_file(folder.parent / "weights.safetensors")
for number, module in enumerate(linear):
    module.weight.data.copy_(weights.pop(f"layers.{number}.weight"))
    module.bias.data.copy_(weights.pop(f"layers.{number}.bias"))
    fully_shard(module)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
rows = load_file(folder.parent / "rows.safetensors")
losses = []
for step in range(steps):
    mine = slice(4 * step + 2 * rank, 4 * step + 2 * rank + 2)
    loss = torch.nn.functional.cross_entropy(model(rows["inputs"][mine]), rows["labels"][mine])
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    total = loss.detach().clone()
    dist.all_reduce(total)
    losses.append(total.item() / 2)


def sync(path):
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def gather():
    """The full state on rank 0, as torch.save writes it."""
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = get_optimizer_state_dict(model, optimizer, options=options)
    if rank == 0:
        torch.save(state, folder / "gathered.pt")
        sync(folder / "gathered.pt")


whole = None


def save():
    """torch.save alone, of a state that is whole on rank 0 already."""
    global whole
    if whole is None:
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        whole = get_optimizer_state_dict(model, optimizer, options=options)
        dist.barrier()
    began = time.monotonic()
    if rank == 0:
        torch.save(whole, folder / "alone.pt")
        sync(folder / "alone.pt")
    return time.monotonic() - began


def everything():
    parameters, moments = get_state_dict(model, optimizer)
    return {"model": parameters, "optimizer": moments}


def async_save():
    """Returns the time for which dcp.async_save holds training up. It is waited for before this
    returns."""
    checkpoint = folder / "async"
    if rank == 0:
        shutil.rmtree(checkpoint, ignore_errors=True)
    dist.barrier()
    began = time.monotonic()
    future = dcp.async_save(everything(), checkpoint_id=checkpoint, process_group=background)
    seconds = time.monotonic() - began
    future.result()
    return seconds


def load():
    state = everything()
    began = time.monotonic()
    dcp.load(state, checkpoint_id=folder / "async")
    set_state_dict(
        model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
    )
    return time.monotonic() - began


def copy():
    """One memory copy of what this rank holds, into new memory and again into the same."""
    tensors = [parameter.detach().to_local() for parameter in model.parameters()]
    for state in optimizer.state.values():
        tensors += [
            value.to_local() if hasattr(value, "to_local") else value
            for value in state.values()
            if torch.is_tensor(value)
        ]
    began = time.monotonic()
    copies = [tensor.clone() for tensor in tensors]
    first = time.monotonic() - began
    began = time.monotonic()
    for copied, tensor in zip(copies, tensors):
        copied.copy_(tensor)
    again = time.monotonic() - began
    return f"{first} {again}"


background = dist.new_group(backend="gloo")
COMMANDS = {
    "gather": gather,
    "save": save,
    "async_save": async_save,
    "load": load,
    "copy": copy,
}
print(json.dumps(losses), flush=True)
for line in sys.stdin:
    dist.barrier()
    began = time.monotonic()
    told = COMMANDS[line.strip()]()
    dist.barrier()
    print(told if told is not None else time.monotonic() - began, flush=True)
