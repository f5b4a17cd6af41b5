"""Are FSDP2's gradients on Gloo those of DDP, and not N times as large (pytorch/pytorch#162338)?
`python -m bench.sharded_ddp.gradients` says, for two ranks, what the arm's are as a multiple of
DDP's."""

import json
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from bench.ddp.cases import Mlp
from bench.sharded_ddp import peer

WORLD_SIZE = 2


def model(frozen):
    torch.manual_seed(1)
    model = Mlp(32, [32] * 2, 32)
    model.layers[1].requires_grad_(not frozen)
    return model


def gradients(wrapped, module, inputs):
    wrapped(inputs).square().mean().backward()
    return [
        gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient
        for gradient in (
            parameter.grad for parameter in module.parameters() if parameter.requires_grad
        )
    ]


def rank_main(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORLD_SIZE
    )
    inputs = torch.randn(8, 32, generator=torch.Generator().manual_seed(rank))
    ratios = []
    for frozen in (False, True):
        plain = model(frozen)
        expected = gradients(torch.nn.parallel.DistributedDataParallel(plain), plain, inputs)
        for kind in ("fsdp-keep", "fsdp", "fsdp-default"):
            sharded = model(frozen)
            wrapped, _ = peer.prepare(kind, sharded, {"lr": 0.1}, WORLD_SIZE)
            found = gradients(wrapped, sharded, inputs)
            ratios += [(mine / its)[its.abs() > 1e-6] for mine, its in zip(found, expected)]
    ratios = torch.cat(ratios)
    if rank == 0:
        with open(os.path.join(folder, "found"), "w") as file:
            json.dump([ratios.min().item(), ratios.max().item()], file)
    dist.destroy_process_group()
    # torch's own end of a process with gathers in the background sometimes aborts (seen once in two
    # runs).
    os._exit(0)


def main():
    """[lowest ratio, highest], as JSON."""
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder:
        mp.spawn(rank_main, (folder,), nprocs=WORLD_SIZE)
        with open(os.path.join(folder, "found")) as file:
            sys.stdout.write(file.read())


if __name__ == "__main__":
    main()
