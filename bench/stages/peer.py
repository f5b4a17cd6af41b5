"""One rank of PyTorch that evaluates a case, pass after pass: `peer.py KIND RANK FOLDER STORE
PASSES`.

KIND: ddp (each rank holds the model, as DistributedDataParallel's module does), fsdp (FSDP2, each
block sharded) or fsdp-keep (the same with reshard_after_forward=False). Prints for each pass a line
"<seconds> <loss> <accuracy>"; the totals of the ranks are added up at the end of a pass."""

import os
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard

from bench.stages.case import CASE, WORLD_SIZE


def model_of(kind, folder):
    model = CASE.load(folder)
    if kind != "ddp":
        more = {"reshard_after_forward": False} if kind == "fsdp-keep" else {}
        for block in model.transformer["h"]:
            fully_shard(block, **more)
        fully_shard(model, **more)
    return model.eval()


def evaluate(model, data, rank):
    """The batches of a rank: every WORLD_SIZE-th one."""
    totals = torch.zeros(3, dtype=torch.float64)
    with torch.no_grad():
        for begin in range(rank * CASE.per_rank, len(data), WORLD_SIZE * CASE.per_rank):
            inputs, targets = data.read(slice(begin, begin + CASE.per_rank))
            logits = model(inputs).flatten(0, 1)
            targets = targets.flatten()
            totals[0] += F.cross_entropy(logits, targets, reduction="sum")
            totals[1] += (logits.argmax(1) == targets).sum()
            totals[2] += len(targets)
    dist.all_reduce(totals)
    return (totals[0] / totals[2]).item(), (totals[1] / totals[2]).item()


def main(kind, rank, folder, store, passes):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=int(rank), world_size=WORLD_SIZE
    )
    model, data = model_of(kind, folder), CASE.open(folder)
    for _ in range(int(passes)):
        dist.barrier()
        start = time.monotonic()
        loss, accuracy = evaluate(model, data, int(rank))
        print(time.monotonic() - start, loss, accuracy, flush=True)
    dist.barrier()
    # Gloo's threads sometimes abort a process of FSDP2 that ends in the usual way.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
