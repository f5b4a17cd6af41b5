"""The peer of bench/recovery: PyTorch DDP under torchrun, with a checkpoint every so many steps.

    torchrun ... peer.py FOLDER EVERY_STEPS

Rank 0 appends "<monotonic nanoseconds> <step>" to FOLDER/steps after each step; every rank writes
its process id to FOLDER/pid-<rank>.

As shipped, Gloo does not come up again after a restart: the ranks find the addresses of the killed
generation in the store, which torchrun's agent keeps. So each generation has a prefix of its own
here; that is the workaround."""

import datetime
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist

folder, every = pathlib.Path(sys.argv[1]), int(sys.argv[2])
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.set_num_threads(1)
(folder / f"pid-{rank}").write_text(str(os.getpid()))

store = dist.TCPStore(
    os.environ["MASTER_ADDR"],
    int(os.environ["MASTER_PORT"]),
    is_master=False,
    timeout=datetime.timedelta(seconds=60),
)
generation = os.environ["TORCHELASTIC_RESTART_COUNT"]
if os.environ.get("MUSTER_BENCH_AS_SHIPPED") == "1":
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
else:
    dist.init_process_group(
        "gloo",
        store=dist.PrefixStore(generation, store),
        rank=rank,
        world_size=world,
        timeout=datetime.timedelta(seconds=60),
    )

torch.manual_seed(7)
model = torch.nn.Sequential(
    torch.nn.Linear(8, 32),
    torch.nn.ReLU(),
    torch.nn.Linear(32, 32),
    torch.nn.ReLU(),
    torch.nn.Linear(32, 4),
)
model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
checkpoint, step = folder / "checkpoint.pt", 0
if checkpoint.exists():
    state = torch.load(checkpoint, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    step = state["step"]

random = torch.Generator().manual_seed(5)
inputs, labels = torch.randn(96, 8, generator=random), torch.arange(96) % 4
told = open(folder / "steps", "a", encoding="utf-8", buffering=1)
while True:
    first = (step * world + rank) * 4 % 96
    loss = torch.nn.functional.cross_entropy(
        model(inputs[first : first + 4]), labels[first : first + 4]
    )
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    if rank == 0:
        told.write(f"{time.monotonic_ns()} {step}\n")
    if step % every == 0:
        if rank == 0:
            temporary = checkpoint.with_suffix(".tmp")
            with open(temporary, "wb") as file:
                torch.save(
                    {
                        "model": model.state_dict(),
                        "optimizer": optimizer.state_dict(),
                        "step": step,
                    },
                    file,
                )
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, checkpoint)
        dist.barrier()
    # Both arms train at the same pace, so that as many steps are lost in a second.
    time.sleep(0.01)
