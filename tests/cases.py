"""The combinations of several factors that a test runs.

The environment variable MUSTER_CASES says how many. Unset (./test.sh): every value of each factor
occurs. `all` (./test.sh --all): every three values of different factors occur together, and every
fixed seed runs. `every_combination` (./test.sh --long): nothing is left out."""

import itertools
import os


def every_value(*factors):
    """Every value of each factor at least once; with MUSTER_CASES more of the combinations."""
    factors = [list(dict.fromkeys(factor)) if all_are_run() else list(factor) for factor in factors]
    if asked_for() == "every_combination":
        return list(itertools.product(*factors))
    if all_are_run():
        return every_three(factors)
    longest = max(map(len, factors))
    return [tuple(factor[i % len(factor)] for factor in factors) for i in range(longest)]


def every_three(factors):
    """Returns combinations in which every three values of different factors occur together: each
    one is the combination with the most triples that no combination before it has."""

    def triples(combination):
        return set(itertools.combinations(enumerate(combination), min(3, len(factors))))

    left = {combination: triples(combination) for combination in itertools.product(*factors)}
    missing, chosen = set().union(*left.values()), []
    while missing:
        chosen.append(max(left, key=lambda combination: len(left[combination] & missing)))
        missing -= left.pop(chosen[-1])
    return chosen


def first_ones(values, count, with_all=None):
    """The first `count` of some values that each show the same in another place. With `all` the
    first `with_all` of them; without this number, all."""
    if asked_for() == "every_combination":
        return list(values)
    return list(values)[: with_all if all_are_run() else count]


def all_are_run():
    """Returns True if this run of the tests has every fixed seed."""
    return asked_for() != ""


def asked_for():
    asked = os.environ.get("MUSTER_CASES", "")
    if asked not in ("", "all", "every_combination"):
        raise ValueError(f"MUSTER_CASES is '{asked}'; expected: all, every_combination, or unset")
    return asked
