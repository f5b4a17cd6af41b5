"""Tests that the programs of docs/reference/sampler.md give the orders and steps of sampler.py,
with which the losses of real jobs are compared. The examples in the page are the programs'
results."""

import itertools
import pathlib
import re

import pytest

from tests.bazel import runfile
from tests.parity import sampler

PAGE = pathlib.Path(runfile("docs/reference/sampler.md")).read_text()


def functions():
    """The functions of the page's programs, by name in the order of the page: two have one name."""
    known, found = {}, {}
    for program in re.findall(r"^```python\n(.*?)^```", PAGE, re.S | re.M):
        before = dict(known)
        exec(program, known)  # one program uses functions of those above
        for name, value in known.items():
            if callable(value) and before.get(name) is not value:
                found.setdefault(name, []).append(value)
    return found


FUNCTIONS = functions()
(PERMUTATION,), (SHUFFLED_V2,) = FUNCTIONS["permutation"], FUNCTIONS["shuffled_v2"]
STEP, OWN_STEP = FUNCTIONS["step"]
(UNEVEN_STEP,) = FUNCTIONS["uneven_step"]
SEEDS = [(0, 0), (1, 0), (1, 1), (9, 3), (2**64 - 1, 2**40)]


def order_of(order, seed, epoch, size, rank=None):
    if order == "sequential":
        return list(range(size))
    if order == "shuffled":
        return PERMUTATION(seed, epoch, size, rank)
    return [SHUFFLED_V2(seed, epoch, size, place, rank) for place in range(size)]


ORDERS = ["sequential", "shuffled", "shuffled_v2"]


@pytest.mark.parametrize("order", ORDERS)
def test_orders(order):
    for (seed, epoch), size, rank in itertools.product(
        SEEDS, [1, 2, 3, 4, 5, 6, 8, 9, 16, 17, 36, 37, 100], [None, 0, 1]
    ):
        found = order_of(order, seed, epoch, size, rank)
        assert found == sampler.order_of(order, seed, epoch, size, rank), (seed, epoch, size, rank)
        assert sorted(found) == list(range(size))


@pytest.mark.parametrize("size", [10**8, 10**18, 2**63 - 1])
def test_an_order_of_many_samples_is_computed_place_by_place(size):
    keyed = sampler.Keyed(7, 2, size)
    for place in (0, 1, size // 2, size - 1):
        assert SHUFFLED_V2(7, 2, size, place) == keyed[place]


def test_examples():
    known = {name: found[0] for name, found in FUNCTIONS.items()}
    examples = re.findall(r"`([^`]*)` is `([^`]*)`", PAGE.replace("\n", " "))
    examples = [example for example in examples if "(" in example[0]]
    assert len(examples) >= 8
    for call, value in examples:
        assert eval(call, dict(known)) == eval(value), call


@pytest.mark.parametrize("last", ["drop", "pad", "uneven"])
@pytest.mark.parametrize("order", ORDERS)
def test_steps(order, last):
    seed, world_size, per_rank, accumulate = 5, 2, 3, 2
    step_of_all = world_size * per_rank * accumulate
    for size in (12, 13, 25, 31):
        plan = sampler.steps(size, seed, world_size, per_rank, accumulate, order, last)
        for epoch in range(2):
            places = order_of(order, seed, epoch, size)
            for cursor in range(0, size, step_of_all):
                if last == "drop" and size - cursor < step_of_all:
                    break
                ranks = next(plan)
                for rank, micro in itertools.product(range(world_size), range(accumulate)):
                    step = UNEVEN_STEP if last == "uneven" else STEP
                    expected = step(places, cursor, rank, micro, accumulate, per_rank)
                    found = ranks[rank][micro] if micro < len(ranks[rank]) else []
                    assert found == expected, (size, epoch, cursor, rank, micro)


@pytest.mark.parametrize("order", ORDERS)
def test_steps_of_own_files(order):
    seed, per_rank, accumulate, sizes = 5, 3, 2, [26, 40, 15]
    plan = sampler.own_steps(sizes, seed, per_rank, accumulate, order)
    for epoch in range(2):
        orders = [order_of(order, seed, epoch, size, rank) for rank, size in enumerate(sizes)]
        for number in range(15 // 6):
            ranks = next(plan)
            cursor = number * len(sizes) * per_rank * accumulate
            for rank, micro in itertools.product(range(len(sizes)), range(accumulate)):
                assert ranks[rank][micro] == OWN_STEP(
                    orders[rank], cursor, len(sizes), micro, accumulate, per_rank
                )
