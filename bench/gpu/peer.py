"""One rank of eager PyTorch training a case: `peer.py FOLDER CASE KIND DEVICE STEPS [TRACE]`.

KIND: ddp (DistributedDataParallel as its users tune it: gradient_as_bucket_view, static_graph,
fused optimizer), fsdp (FSDP2: fully_shard of each block and of the root, fused optimizer). The last
output is one line of JSON with the losses, and with seconds per step over all steps but the first
ten. There is no wait for the GPU in between. TRACE: the kernels of steps 11 to 20 go to this file,
and nothing is timed."""

import json
import pathlib
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F

from bench.gpu.cases import ADAMW, CASES
from tests.gpu import models, reference, weights_file

WARM_UP = 10
TRACED = 10


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


def main(folder, name, kind, device, steps, trace=None):
    folder, case, steps = pathlib.Path(folder), CASES[name], int(steps)
    backend = "nccl" if device == "cuda" else "gloo"
    dist.init_process_group(backend, init_method=f"file://{folder}/peer", rank=0, world_size=1)
    model = models.build(case.model)
    model.load_state_dict(weights_file.load(folder / "weights.safetensors"))
    model.to(device)
    if kind == "fsdp":
        from torch.distributed.fsdp import fully_shard

        mesh = dist.device_mesh.init_device_mesh(device, (1,))
        for block in model.blocks():
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        trained = model
    else:
        trained = torch.nn.parallel.DistributedDataParallel(
            model, gradient_as_bucket_view=True, static_graph=True
        )
    optimizer = torch.optim.AdamW(model.parameters(), **ADAMW, fused=True)
    samples = reference.read_tokens(folder / "train.bin", case.options["context"])
    if device == "cuda":
        samples = samples.pin_memory()
    losses, begin, profile = [], None, None
    for step in range(steps):
        if step == WARM_UP:
            wait(device)
            begin = time.perf_counter()
            if trace:
                profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
                profile.__enter__()
        if trace and step == WARM_UP + TRACED:
            wait(device)
            profile.__exit__(None, None, None)
            profile.export_chrome_trace(trace)
            return
        first = step * case.per_rank % (len(samples) // case.per_rank * case.per_rank)
        tokens = samples[first : first + case.per_rank].to(device, non_blocking=True)
        with torch.autocast(device, torch.bfloat16):
            logits = trained(tokens[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    wait(device)
    seconds = (time.perf_counter() - begin) / (steps - WARM_UP)
    print(json.dumps({"seconds": seconds, "losses": [loss.item() for loss in losses]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
