import itertools

import pytest

from tests import cases

FACTORS = ([1, 2, 4], ["a", "b"], [None, 0.5], "xy")


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.delenv("MUSTER_CASES", raising=False)


def test_every_value_occurs():
    chosen = cases.every_value(*FACTORS)
    for i, factor in enumerate(FACTORS):
        assert {c[i] for c in chosen} == set(factor)
    assert len(chosen) == 3


def test_every_three_values_occur_together_in_fewer_combinations_than_all(monkeypatch):
    monkeypatch.setenv("MUSTER_CASES", "all")
    chosen = cases.every_value(*FACTORS)
    for places in itertools.combinations(range(len(FACTORS)), 3):
        together = {tuple(combination[i] for i in places) for combination in chosen}
        assert together == set(itertools.product(*(FACTORS[i] for i in places)))
    assert len(set(chosen)) == len(chosen) < 24


def test_a_value_that_stands_twice_is_taken_once_where_combinations_are_complete(monkeypatch):
    monkeypatch.setenv("MUSTER_CASES", "all")
    assert cases.every_value([1, 1, 2], "a") == [(1, "a"), (2, "a")]


def test_the_first_ones_are_run(monkeypatch):
    assert cases.first_ones((3, 1, 2), 2) == [3, 1]
    monkeypatch.setenv("MUSTER_CASES", "all")
    assert cases.first_ones((3, 1, 2), 2) == [3, 1, 2]
    assert cases.first_ones((3, 1, 2), 1, with_all=2) == [3, 1]
    monkeypatch.setenv("MUSTER_CASES", "every_combination")
    assert cases.first_ones((3, 1, 2), 1, with_all=2) == [3, 1, 2]


def test_every_combination_is_run_where_asked_for(monkeypatch):
    monkeypatch.setenv("MUSTER_CASES", "every_combination")
    assert cases.every_value(*FACTORS) == list(itertools.product(*FACTORS))


def test_another_wish_is_refused(monkeypatch):
    monkeypatch.setenv("MUSTER_CASES", "most")
    with pytest.raises(ValueError, match="MUSTER_CASES is 'most'; expected: all, every_comb"):
        cases.every_value(*FACTORS)
