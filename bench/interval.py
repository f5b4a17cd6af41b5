"""The median of measured ratios with its bootstrap interval."""

import random
import statistics


def interval(ratios, seed=0):
    """Median and its 95% bootstrap interval."""
    chance = random.Random(seed)
    medians = sorted(
        statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(10_000)
    )
    return statistics.median(ratios), medians[250], medians[9749]
