"""docs/reference/sampler.md in Python: which samples a step takes. Written from that page, not
from the C++ code."""

import math

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15


def _mix(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def _start(seed, epoch, rank):
    state = _mix((_mix((seed + _GAMMA) & _MASK) + epoch) & _MASK)
    return state if rank is None else _mix((state + rank + 1) & _MASK)


def permutation(seed, epoch, size, rank=None):
    """The order of an epoch: Fisher-Yates from the end, driven by splitmix64. `rank`: that of its
    own file."""
    order = list(range(size))
    state = _start(seed, epoch, rank)
    for i in range(size - 1, 0, -1):
        state = (state + _GAMMA) & _MASK
        j = (_mix(state) * (i + 1)) >> 64
        order[i], order[j] = order[j], order[i]
    return order


class Keyed:
    """The order of an epoch with shuffled_v2, as a list without memory: rows and columns of a grid
    are shifted in turn."""

    def __init__(self, seed, epoch, size, rank=None):
        self._size = size
        state = _start(seed, epoch, rank)
        keys = [_mix((state + _GAMMA * number) & _MASK) for number in range(1, 33)]
        self._rounds = list(zip(keys[::2], keys[1::2]))
        self._columns = 2
        if size > 4:
            self._columns = 2 * ((math.isqrt(size - 1) + 2) // 2)
        self._rows = (size + self._columns - 1) // self._columns

    def __len__(self):
        return self._size

    def __getitem__(self, place):
        if not 0 <= place < self._size:
            raise IndexError(place)
        while True:
            row, column = place // self._columns, place % self._columns
            for of_rows, of_columns in self._rounds:
                by = (_mix((of_rows + _GAMMA * (row + 1)) & _MASK) * self._columns) >> 64
                column = (column + by) % self._columns
                by = (_mix((of_columns + _GAMMA * (column + 1)) & _MASK) * self._rows) >> 64
                row = (row + by) % self._rows
            place = row * self._columns + column
            if place < self._size:
                return place


def order_of(order, seed, epoch, size, rank=None):
    """The samples at the places of an epoch."""
    if order == "sequential":
        return list(range(size))
    if order == "shuffled":
        return permutation(seed, epoch, size, rank)
    assert order == "shuffled_v2", order
    return list(Keyed(seed, epoch, size, rank))


def steps(size, seed, world_size, per_rank, accumulate=1, order="shuffled", last="drop"):
    """Yields, for each step without end, a list over ranks of lists over micro-batches of sample
    indices."""
    global_batch = world_size * accumulate * per_rank
    if last == "drop" and size < global_batch:
        raise ValueError(f"{size} samples are less than a step takes, {global_batch}")
    epoch = 0
    while True:
        places = order_of(order, seed, epoch, size)
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
        orders = [order_of(order, seed, epoch, size, rank) for rank, size in enumerate(sizes)]
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
