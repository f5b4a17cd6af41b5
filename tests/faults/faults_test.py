"""Faults of every kind with real programs: the job ends with the same bits as without faults, or
with an error that names the cause.

A few fixed seeds, by default one of each kind; new ones: `./test.sh --long`. Tests that are known
to fail are in not_yet.txt, with the reason."""

import pytest

from tests.bazel import runfile
from tests.cases import first_ones
from tests.faults import expected, faults, plans, run

FIXED = {
    "sigkill": (0, 1),
    "sigterm": (1,),
    "sigstop": (0, 1),
    "partition_proxy": (0,),
    "partition_network": (2,),
    "mount": (0, 1),
    "old_database": (0, 1),
    "enospc_checkpoints": (0,),
    "enospc_state": (0,),
    "eio": (0,),
    "slow_fsync": (0,),
    "fsync_kill": (0,),
    "garbage": (0,),
    "storm": (0,),
    "damage": (0, 2),
    "outage": (0,),
    "hang": (0,),
}


@pytest.fixture(scope="module")
def plugin():
    return runfile("tests/process/paced.so")


@pytest.fixture(scope="module")
def calm(programs, plugin, tmp_path_factory):
    """The undisturbed run of a strategy, made once."""
    made = {}

    def of(strategy):
        if strategy not in made:
            made[strategy] = run.undisturbed(
                programs, plugin, tmp_path_factory.mktemp("calm") / strategy, strategy
            )
        return made[strategy]

    return of


def cases():
    for kind, seeds in FIXED.items():
        for seed in first_ones(seeds, 1):
            reason = expected.reason(kind, seed)
            marks = [pytest.mark.xfail(reason=reason, strict=False)] if reason else []
            yield pytest.param(kind, seed, marks=marks)


@pytest.mark.parametrize("kind,seed", cases())
def test_it_ends_as_if_nothing_had_happened(programs, plugin, calm, tmp_path, kind, seed):
    plan = plans.plan(seed, kind)
    print(plan)
    try:
        violated, notes, seconds = run.play(
            programs, plugin, tmp_path / "work", plan, calm(plan.strategy)
        )
    except faults.Skipped as skipped:
        pytest.skip(f"{kind}: {skipped}")
    print(*notes, f"{seconds:.1f} s", sep="\n")
    assert not violated, "\n".join([str(plan), *violated])


def test_each_kind_has_a_fixed_seed():
    assert set(FIXED) == set(plans.KINDS)


def test_a_plan_is_the_same_for_ever():
    assert str(plans.plan(0, "sigkill")) == str(plans.plan(0, "sigkill"))
    assert len({str(plans.plan(seed, "sigkill")) for seed in range(20)}) == 20


def test_twenty_seeds_strike_everything():
    for kind, victims in (("sigkill", plans.PROGRAMS), ("sigterm", plans.TERMINATED)):
        struck = {
            strike.how["victim"] for seed in range(20) for strike in plans.plan(seed, kind).strikes
        }
        assert struck == set(victims), kind
    for kind in ("partition_proxy", "partition_network"):
        assert {
            strike.how["way"] for seed in range(20) for strike in plans.plan(seed, kind).strikes
        } == {"both", "to", "back"}
    numbers = [
        number
        for seed in range(20)
        for number in plans.plan(seed, "fsync_kill").strikes[0].how["numbers"]
    ]
    assert sorted(numbers) == list(range(1, 201))
