"""The model of join_test, and its training by PyTorch's own DistributedDataParallel under join(),
in processes that import no more than they need."""

import os
import time

import torch

from tests.bazel import bound

INPUTS, CLASSES = 6, 5


class Block(torch.nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = torch.nn.Linear(
            inputs, outputs, bias=False
        )  # a bias before BatchNorm has no gradient but noise
        self.norm = torch.nn.BatchNorm1d(outputs)
        self.unused = torch.nn.Linear(3, 5)

    def forward(self, x):
        return torch.relu(self.norm(self.linear(x)))


def build():
    torch.manual_seed(4)
    return torch.nn.Sequential(Block(INPUTS, 17), Block(17, 12), torch.nn.Linear(12, CLASSES))


def build_plain():
    torch.manual_seed(4)
    return torch.nn.Sequential(
        torch.nn.Linear(INPUTS, 17), torch.nn.Tanh(), torch.nn.Linear(17, CLASSES)
    )


def train_rank(rank, folder, epochs, sgd, divide_by):
    torch.set_num_threads(1)
    store = torch.distributed.FileStore(str(folder / f"store-{divide_by}"), len(epochs))
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=len(epochs))
    model = torch.nn.parallel.DistributedDataParallel(build().train(), find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), **sgd)
    with model.join(divide_by_initial_world_size=divide_by == "initial"):
        for inputs, labels in epochs[rank]:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
    if rank == 0:  # join() ends by sending all ranks the model of the last one with input
        torch.save(dict(model.module.named_parameters()), folder / f"{divide_by}.pt")
    torch.distributed.barrier()
    # No destructors: DistributedDataParallel's waits, with Python's lock held, for a thread of Gloo
    # that wants that lock to let go of a tensor (pytorch/pytorch#56297), about once in thirty
    # times.
    os._exit(0)


def train_with_ddp(folder, epochs, sgd):
    """The parameters at the end of an epoch: {"initial" or "active": {name: tensor}}. `epochs`: by
    rank, (inputs, labels) of each micro-batch."""
    ends, longest = {}, bound(30)
    for divide_by in ("initial", "active"):
        ranks = torch.multiprocessing.spawn(
            train_rank, (folder, epochs, sgd, divide_by), len(epochs), join=False
        )
        end_of_wait = time.monotonic() + longest
        while not ranks.join(timeout=5):
            if time.monotonic() > end_of_wait:
                for process in ranks.processes:
                    process.kill()
                raise TimeoutError(
                    f"PyTorch's ranks under join(), divide by {divide_by}, have not ended in "
                    f"{longest} seconds"
                )
        ends[divide_by] = torch.load(folder / f"{divide_by}.pt")
    return ends
