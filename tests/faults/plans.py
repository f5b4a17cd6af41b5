"""The faults that a seed gives to a job: `plan(seed, kind)` always returns the same plan, which is
printed."""

import dataclasses
import random

STEPS = 60
EVERY = 5
# Before it the job waits for the test: no fault can come too late.
HOLD = 57

STRATEGIES = ("ddp", "fsdp")
PROGRAMS = ("worker", "workers", "agent", "musterd", "all")
# Workers leave SIGTERM to their agent.
TERMINATED = ("agent", "musterd", "all")


@dataclasses.dataclass(frozen=True)
class Strike:
    # When the first report of this step, or of a later one, has come.
    step: int
    # A fault of faults.py, and what it needs to know.
    fault: str
    how: dict


@dataclasses.dataclass(frozen=True)
class Plan:
    kind: str
    seed: int
    strategy: str
    # musterd with two slots of its own, no agents beside it.
    local: bool
    # A third node, to which ranks can go.
    spare: bool
    strikes: tuple

    def __str__(self):
        where = "local slots" if self.local else "3 nodes" if self.spare else "2 nodes"
        strikes = "; ".join(
            f"at step {s.step} {s.fault}"
            + "".join(f" {key}={value}" for key, value in s.how.items())
            for s in self.strikes
        )
        return f"{self.kind} seed {self.seed} {self.strategy} on {where}: {strikes}"


def _sigkill(dice, seed):
    count = 1 + dice.randrange(3)
    victims = [PROGRAMS[seed % len(PROGRAMS)], *(dice.choice(PROGRAMS) for _ in range(count - 1))]
    return [("kill", {"victim": victim}) for victim in victims]


def _sigterm(dice, seed):
    count = 1 + dice.randrange(2)
    others = (dice.choice(TERMINATED) for _ in range(count - 1))
    victims = [TERMINATED[seed % len(TERMINATED)], *others]
    return [("terminate", {"victim": victim}) for victim in victims]


def _sigstop(dice, seed):
    """The duration: a part of the lease, longer than the lease, or without end."""
    victim = ("worker", "agent", "musterd", "workers")[seed % 4]
    leases = dice.choice((0.4, 2.5)) if victim == "musterd" else dice.choice((0.4, 2.5, None))
    return [("stop", {"victim": victim, "leases": leases})]


def _partition(where):
    def make(dice, seed):
        way = ("both", "to", "back")[seed % 3]
        leases = dice.choice((0.4, 2.5, 2.5))
        return [(f"partition_by_{where}", {"way": way, "leases": leases})]

    return make


def _fixed(*strikes):
    return lambda dice, seed: list(strikes)


def _mount(dice, seed):
    return [("mount_away", {"how": ("rename", "unmount")[seed % 2]})]


def _slow(dice, seed):
    return [
        (
            "slow_fsync",
            {"victim": ("musterd", "worker")[seed % 2], "milliseconds": dice.choice((50, 200))},
        )
    ]


def _eio(dice, seed):
    return [
        (
            "failing_fsync",
            {"victim": ("musterd", "worker")[seed % 2], "times": 1 + dice.randrange(3)},
        )
    ]


def _nth_fsync(dice, seed):
    """Ten numbers for each seed: 20 seeds are 1 to 200."""
    return [("kill_at_fsync", {"numbers": tuple(range(seed % 20 + 1, 201, 20))})]


def _storm(dice, seed):
    victim = ("musterd", "agent")[seed % 2]
    return [("storm", {"victim": victim, "times": 6, "milliseconds": dice.choice((150, 300, 600))})]


def _old_database(dice, seed):
    # Agents and workers are killed with musterd, or continue to train and attach to a musterd with
    # an older store.
    return [("old_database", {"later": 10 + dice.randrange(15), "alive": seed % 2 == 1})]


def _outage(dice, seed):
    return [("outage", {"leases": (3, 10, 5, 20, 100)[seed % 5]})]


def _damage(dice, seed):
    return [("damage", {"how": ("byte", "cut", "manifest")[seed % 3]})]


# kind -> (what strikes, with local slots too, with a spare node: None is as the seed says)
KINDS = {
    "sigkill": (_sigkill, True, None),
    "sigterm": (_sigterm, True, None),
    "sigstop": (_sigstop, False, True),
    "partition_proxy": (_partition("proxy"), False, None),
    "partition_network": (_partition("network"), False, None),
    "mount": (_mount, False, False),
    "old_database": (_old_database, False, False),
    "enospc_checkpoints": (_fixed(("full_checkpoint_disk", {})), False, False),
    "enospc_state": (_fixed(("full_state_disk", {})), False, False),
    "eio": (_eio, False, False),
    "slow_fsync": (_slow, False, False),
    "fsync_kill": (_nth_fsync, False, False),
    "garbage": (_fixed(("garbage", {})), False, False),
    "storm": (_storm, False, None),
    "damage": (_damage, False, None),
    "outage": (_outage, False, False),
    "hang": (_fixed(("hang", {})), False, False),
}


# Faults of disks and stores.
WRITES = ("old_database", "enospc_checkpoints", "enospc_state", "eio", "slow_fsync")


def plan(seed, kind):
    # A text seeds the same numbers in every process; a tuple's hash does not.
    dice = random.Random(f"{kind} {seed}")
    make, can_be_local, spare = KINDS[kind]
    struck = make(dice, seed)
    if kind == "hang":
        steps = [20]
    else:
        # After these faults the job must continue for some steps, because their effect is visible
        # only in later writes.
        steps = sorted(dice.sample(range(2, 25 if kind in WRITES else 45), len(struck)))
    local = can_be_local and dice.random() < 0.25
    return Plan(
        kind=kind,
        seed=seed,
        strategy=STRATEGIES[(seed // 5 + seed) % 2],
        local=local,
        spare=not local and (dice.random() < 0.5 if spare is None else spare),
        strikes=tuple(Strike(step, fault, how) for step, (fault, how) in zip(steps, struck)),
    )
