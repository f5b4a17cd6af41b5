import itertools

import pytest

from tests import cases

FACTORS = ([1, 2, 4], ["a", "b"], [None, 0.5], "xy")


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.delenv("MUSTER_ALL_CASES", raising=False)


def test_every_pair_of_values_occurs_in_fewer_combinations_than_all():
    chosen = cases.every_pair(*FACTORS)
    for (i, one), (j, other) in itertools.combinations(enumerate(FACTORS), 2):
        assert {(c[i], c[j]) for c in chosen} == set(itertools.product(one, other))
    assert len(set(chosen)) == len(chosen) < 24


def test_every_value_occurs():
    chosen = cases.every_value(*FACTORS)
    for i, factor in enumerate(FACTORS):
        assert {c[i] for c in chosen} == set(factor)
    assert len(chosen) == 3


def test_the_first_ones_are_run(monkeypatch):
    assert cases.first_ones((3, 1, 2), 2) == [3, 1]
    monkeypatch.setenv("MUSTER_ALL_CASES", "1")
    assert cases.first_ones((3, 1, 2), 2) == [3, 1, 2]


def test_all_combinations_are_run_where_asked_for(monkeypatch):
    monkeypatch.setenv("MUSTER_ALL_CASES", "1")
    everything = list(itertools.product(*FACTORS))
    assert cases.every_pair(*FACTORS) == cases.every_value(*FACTORS) == everything
