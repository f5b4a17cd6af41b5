"""One rank of PyTorch training a case, step after step without end: `peer.py CASE KIND RANK FOLDER
STORE OUT`.

KIND: default (DDP as most people use it), tuned (gradient_as_bucket_view, static_graph, fused
optimizer), floor (no communication, fused optimizer). After each step a line "<monotonic
nanoseconds> <loss>" goes to OUT. The harness stops and continues the process."""

import sys

import torch
import torch.distributed as dist

from bench.ddp.cases import CASES, WORLD_SIZE
from bench.ddp.stepping import train


def main(case, kind, rank, folder, store, out):
    torch.set_num_threads(1)
    case, rank = CASES[case], int(rank)
    model = case.load(folder)
    if kind != "floor":
        dist.init_process_group(
            "gloo", init_method=f"file://{store}", rank=rank, world_size=WORLD_SIZE
        )
        tuned = {"gradient_as_bucket_view": True, "static_graph": True} if kind == "tuned" else {}
        model = torch.nn.parallel.DistributedDataParallel(model, **tuned)
    fused = {} if kind == "default" else {"fused": True}
    optimizer = torch.optim.AdamW(model.parameters(), **case.adamw, **fused)
    data = case.open(folder)
    train(model, optimizer, data, case.batches(rank, len(data)), out)


if __name__ == "__main__":
    main(*sys.argv[1:])
