"""docs/sampler.md in Python: which samples a step takes. Written from that page, not from the C++
code."""

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15


def _mix(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def permutation(seed, epoch, size, rank=None):
    """The order of an epoch: Fisher-Yates from the end, driven by splitmix64. `rank`: that of its
    own file."""
    order = list(range(size))
    state = _mix((_mix((seed + _GAMMA) & _MASK) + epoch) & _MASK)
    if rank is not None:
        state = _mix((state + rank + 1) & _MASK)
    for i in range(size - 1, 0, -1):
        state = (state + _GAMMA) & _MASK
        j = (_mix(state) * (i + 1)) >> 64
        order[i], order[j] = order[j], order[i]
    return order


def steps(size, seed, world_size, per_rank, accumulate=1, order="shuffled", last="drop"):
    """Yields, for each step without end, a list over ranks of lists over micro-batches of sample
    indices."""
    global_batch = world_size * accumulate * per_rank
    if last == "drop" and size < global_batch:
        raise ValueError(f"{size} samples are less than a step takes, {global_batch}")
    epoch = 0
    while True:
        places = permutation(seed, epoch, size) if order == "shuffled" else list(range(size))
        for cursor in range(0, size, global_batch):
            if last == "drop" and cursor + global_batch > size:
                break
            # Past the end only when padding: the epoch's order starts over.
            count = min(global_batch, size - cursor) if last == "uneven" else global_batch
            taken = [places[(cursor + i) % size] for i in range(count)]
            micro_batches = [taken[i : i + per_rank] for i in range(0, count, per_rank)]
            yield [
                micro_batches[rank * accumulate : (rank + 1) * accumulate]
                for rank in range(world_size)
            ]
        epoch += 1


def own_steps(sizes, seed, per_rank, accumulate=1, order="shuffled", last="drop"):
    """As steps, but each rank has a file of its own with so many samples, and the indices are
    within that."""
    taken = accumulate * per_rank
    end = max(sizes) if last == "uneven" else min(sizes)
    epoch = 0
    while True:
        orders = [
            permutation(seed, epoch, size, rank) if order == "shuffled" else list(range(size))
            for rank, size in enumerate(sizes)
        ]
        for place in range(0, end, taken):
            if last == "drop" and place + taken > end:
                break
            if last == "uneven":
                rests = [own[place : place + taken] for own in orders]
                yield [
                    [rest[i : i + per_rank] for i in range(0, len(rest), per_rank)]
                    for rest in rests
                ]
                continue
            yield [
                [
                    [own[(place + micro * per_rank + i) % len(own)] for i in range(per_rank)]
                    for micro in range(accumulate)
                ]
                for own in orders
            ]
        epoch += 1
