"""Every learning-rate schedule against torch.optim.lr_scheduler, over 200 steps of a real job.

Both sides compute in float64, torch mostly by recurrences. The bound, 1e-9 of the whole rate, is
far above torch's rounding. It is far below an error of one step, which is at least 1e-6 of the rate
in each case."""

import pytest
import torch
from torch.optim import lr_scheduler

from tests.parity import shared_cluster, workloads

STEPS = 200
LR = 0.02


muster = shared_cluster.with_slots(1)


def after_warmup(steps, main):
    """torch's warm-up whose step s has (s + 1) / steps of the rate, and then `main`."""

    def scheduler(optimizer):
        warmup = lr_scheduler.LinearLR(optimizer, start_factor=1 / steps, total_iters=steps - 1)
        return lr_scheduler.SequentialLR(optimizer, [warmup, main(optimizer)], milestones=[steps])

    return scheduler


def constant(optimizer):
    return lr_scheduler.ConstantLR(optimizer, factor=1.0)


def cosine(steps, ratio):
    return lambda optimizer: lr_scheduler.CosineAnnealingLR(
        optimizer, T_max=steps, eta_min=LR * ratio
    )


def linear(steps, ratio):
    return lambda optimizer: lr_scheduler.LinearLR(
        optimizer, start_factor=1.0, end_factor=ratio, total_iters=steps
    )


def step(size, gamma):
    return lambda optimizer: lr_scheduler.StepLR(optimizer, size, gamma)


def one_cycle(**options):
    return lambda optimizer: lr_scheduler.OneCycleLR(
        optimizer, LR, total_steps=STEPS, cycle_momentum=False, **options
    )


# The job's `schedule`, and torch's.
SCHEDULES = {
    "constant": ({"constant": {}}, constant),
    "constant_warmup": ({"constant": {"warmup_steps": 17}}, after_warmup(17, constant)),
    "warmup_cosine": (
        {"warmup_cosine": {"warmup_steps": 20, "min_ratio": 0.1}},
        after_warmup(20, cosine(STEPS - 20, 0.1)),
    ),
    "cosine": ({"warmup_cosine": {}}, cosine(STEPS, 0.0)),
    "linear": ({"linear": {"warmup_steps": 10}}, after_warmup(10, linear(STEPS - 10, 0.0))),
    "linear_early": ({"linear": {"total_steps": 150, "min_ratio": 0.25}}, linear(150, 0.25)),
    "step": (
        {"step": {"warmup_steps": 5, "step_size": 30, "gamma": 0.5}},
        after_warmup(5, step(30, 0.5)),
    ),
    "step_default": ({"step": {"step_size": 70}}, step(70, 0.1)),
    "one_cycle": ({"one_cycle": {}}, one_cycle()),
    "one_cycle_linear": (
        {
            "one_cycle": {
                "pct_start": 0.123,
                "div_factor": 10,
                "final_div_factor": 7,
                "anneal": "linear",
            }
        },
        one_cycle(pct_start=0.123, div_factor=10, final_div_factor=7, anneal_strategy="linear"),
    ),
    "one_cycle_three_phase": (
        {"one_cycle": {"pct_start": 0.4, "three_phase": True}},
        one_cycle(pct_start=0.4, three_phase=True),
    ),
    "one_cycle_three_phase_linear": (
        {"one_cycle": {"three_phase": True, "anneal": "linear"}},
        one_cycle(three_phase=True, anneal_strategy="linear"),
    ),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_step_has_torchs_rate(muster, tmp_path, name):
    schedule, scheduler_of = SCHEDULES[name]
    spec = workloads.mlp(tmp_path) | {
        "world_size": 1,
        "optimizer": {"sgd": {"lr": LR}},
        "schedule": schedule,
        "batch": {"per_rank": 1},
        "stages": [{"fit": {"steps": STEPS}}],
    }
    job = name.replace("_", "-")
    muster.run(spec, job)
    found = [metrics["learning_rate"] for metrics in muster.metrics(job)]

    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=LR)
    scheduler = scheduler_of(optimizer)
    expected = []
    for _ in range(STEPS):
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    assert len(found) == STEPS
    assert found == pytest.approx(expected, rel=0, abs=1e-9 * LR)
