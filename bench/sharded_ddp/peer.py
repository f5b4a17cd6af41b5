"""One rank of PyTorch training a case in slices, step after step without end: `peer.py CASE KIND
RANK WORLD_SIZE FOLDER STORE OUT`.

KIND: ddp (with gradient_as_bucket_view), ddp-join (the same under join()), zero (DDP with
gradient_as_bucket_view and static_graph, ZeroRedundancyOptimizer with parameters_as_bucket_view),
fsdp (FSDP2 by block, which gathers the next block ahead), fsdp-keep (FSDP2 by block with
reshard_after_forward=False); these with fused AdamW; fsdp-default (FSDP2 by block, and AdamW, as
they are). After each step a line "<monotonic nanoseconds> <loss>" goes to OUT. The harness stops
and continues the process."""

import contextlib
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer

from bench.ddp.cases import CASES
from bench.ddp.stepping import train
from bench.fsdp.cases import CASES as FROZEN_CASES


def shard(model, blocks, world_size, reshard_after_forward=False):
    mesh = init_device_mesh("cpu", (world_size,))
    for module in blocks:
        fully_shard(module, mesh=mesh, reshard_after_forward=reshard_after_forward)
    # Right after its forward comes its backward.
    fully_shard(model, mesh=mesh, reshard_after_forward=False)
    return model


def gather_ahead(model, blocks):
    """Gathers the next block's parameters while a block runs. FSDP2 does this by streams, which a
    CPU does not have."""
    model._set_unshard_async_op(True)
    blocks = list(blocks)
    model.set_modules_to_forward_prefetch(blocks[:1])
    for one, after in zip(blocks, blocks[1:]):
        one.set_modules_to_forward_prefetch([after])
        after.set_modules_to_backward_prefetch([one])


def blocks_of(model):
    return model.layers if hasattr(model, "layers") else model.transformer["h"]


def prepare(kind, model, adamw, world_size):
    """(what forward is called on, optimizer)"""
    if kind in ("ddp", "ddp-join"):  # join() does not go with static_graph
        model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
        return model, torch.optim.AdamW(model.parameters(), **adamw, fused=True)
    if kind == "zero":
        model = torch.nn.parallel.DistributedDataParallel(
            model, gradient_as_bucket_view=True, static_graph=True
        )
        optimizer = ZeroRedundancyOptimizer(
            [parameter for parameter in model.parameters() if parameter.requires_grad],
            torch.optim.AdamW,
            parameters_as_bucket_view=True,
            fused=True,
            **adamw,
        )
        return model, optimizer
    blocks = blocks_of(model)
    model = shard(model, blocks, world_size, reshard_after_forward=kind != "fsdp-keep")
    if kind == "fsdp":
        gather_ahead(model, blocks)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return model, torch.optim.AdamW(
        trained, **adamw, fused=None if kind == "fsdp-default" else True
    )


def main(case, kind, rank, world_size, folder, store, out):
    torch.set_num_threads(1)
    case, rank, world_size = (CASES | FROZEN_CASES)[case], int(rank), int(world_size)
    model = case.load(folder)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world_size)
    model, optimizer = prepare(kind, model, case.adamw, world_size)
    data = case.open(folder)
    with model.join() if kind == "ddp-join" else contextlib.nullcontext():
        train(model, optimizer, data, case.batches(rank, len(data), world_size), out)


if __name__ == "__main__":
    main(*sys.argv[1:])
