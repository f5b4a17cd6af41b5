"""The combinations of several factors that a test runs.

By default few of them, chosen so that they still meet what is asked for here; with
MUSTER_ALL_CASES=1 (./test.sh --all) every combination."""

import itertools
import os


def every_pair(*factors):
    """Every value together with every value of each other factor. Greedily: each combination is the
    one with the most pairs that no combination before it has."""

    def pairs(combination):
        return set(itertools.combinations(enumerate(combination), 2))

    product, chosen = list(itertools.product(*factors)), []
    if all_are_run():
        return product
    missing = set().union(*map(pairs, product))
    while missing:
        chosen.append(max(product, key=lambda combination: len(pairs(combination) & missing)))
        missing -= pairs(chosen[-1])
    return chosen


def every_value(*factors):
    """Every value of each factor at least once."""
    if all_are_run():
        return list(itertools.product(*factors))
    factors = [list(factor) for factor in factors]
    longest = max(map(len, factors))
    return [tuple(factor[i % len(factor)] for factor in factors) for i in range(longest)]


def first_ones(values, count):
    """The first `count` of some values that each show the same in another place."""
    return list(values) if all_are_run() else list(values)[:count]


def all_are_run():
    """Returns True if this run of the tests has every combination and every seed."""
    return os.environ.get("MUSTER_ALL_CASES") == "1"
