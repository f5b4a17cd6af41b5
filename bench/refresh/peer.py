"""One rank of fairscale's ShardedDDP with OSS on Gloo: how long a refresh of what is trained takes.
Prints seconds as JSON."""

import json
import statistics
import sys
import time

import torch
import torch.distributed as dist
from fairscale.nn.data_parallel import ShardedDataParallel
from fairscale.optim import OSS

from bench.refresh.cases import CASES

REPEATS = 5


def main():
    name, rank, world_size, store = sys.argv[1:]
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=int(rank), world_size=int(world_size)
    )
    case = CASES[name]
    torch.manual_seed(0)
    model = case.build()
    optimizer = OSS(model.parameters(), optim=torch.optim.AdamW, lr=1e-5)
    model = ShardedDataParallel(model, optimizer)
    rows = torch.randn(1, case.width)

    def step():
        optimizer.zero_grad()
        model(rows).square().mean().backward()
        optimizer.step()

    linears = [module for module in model.module if isinstance(module, torch.nn.Linear)]

    def flip(trained):
        for linear in linears[: case.layers // 2]:
            linear.requires_grad_(trained)

    def refresh():
        dist.barrier()
        start = time.perf_counter()
        model.refresh_trainable()
        return time.perf_counter() - start

    step()
    found = {"freeze": [], "unfreeze": [], "nothing": []}
    for _ in range(REPEATS):
        for kind, flags in (("freeze", False), ("unfreeze", True)):
            flip(flags)
            found[kind].append(refresh())
            found["nothing"].append(refresh())
    print(json.dumps({kind: statistics.median(times) for kind, times in found.items()}))


if __name__ == "__main__":
    main()
