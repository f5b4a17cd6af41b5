"""One rank of the necessary work of a refresh: the moved bytes are sent over Gloo, and the bytes
with a new layout are copied. Prints the seconds that all ranks took together, the median."""

import statistics
import sys
import time

import torch
import torch.distributed as dist

REPEATS = 5


def main():
    rank, world_size, store, moved, laid_out = sys.argv[1:]
    world_size = int(world_size)
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=int(rank), world_size=world_size
    )
    # The same to and from everybody; what a rank would send to itself does not travel.
    part = int(moved) // (world_size * (world_size - 1))
    sizes = [part if peer != int(rank) else 0 for peer in range(world_size)]
    sent, received = torch.ones(sum(sizes), dtype=torch.uint8), torch.ones(
        sum(sizes), dtype=torch.uint8
    )
    source, target = torch.ones(int(laid_out) // 4), torch.ones(int(laid_out) // 4)
    times = []
    for _ in range(REPEATS + 1):  # the first one makes the connections
        dist.barrier()
        start = time.perf_counter()
        target.copy_(source)
        if part > 0:
            dist.all_to_all_single(received, sent, sizes, sizes)
        dist.barrier()
        times.append(time.perf_counter() - start)
    print(statistics.median(times[1:]))
    sys.stdout.flush()
    # A process that ends while Gloo's threads still run is aborted.
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
