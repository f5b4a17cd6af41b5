"""Training goes on under PyTorch's FSDP2 from what gather-optimizer-state writes
(set_optimizer_state_dict), and in Muster from what FSDP2 gathers (get_optimizer_state_dict); the
next steps are the same.

Some parameters are frozen while their state is gathered. A parameter is freed late, with fewer
steps than others. Another parameter is trained only after the way back. The tolerance is for the
largest difference of a parameter after any step: FSDP2 adds the gradients of two halves of a step's
samples, Muster those of its ranks. With AdamW's eps of 1e-5 the rounding of a small gradient does
not become a whole step.
"""

import fnmatch

import pytest
import torch

from tests import cases
from tests.parity import checkpoints, fsdp2, reference, sessions, workloads
from tests.parity.refresh_test import largest_difference

GATHERED, SAVED = 7, 11  # the first steps are Muster's, then FSDP2's
STEPS_BACK = 4
TOLERANCE = 1e-6
LATE = "transformer.h.0.mlp.c_fc.weight"
NEVER = "transformer.wpe.weight"
TURNS = "transformer.h.1.attn.*"
FIRST = [{"freeze": LATE}, {"freeze": NEVER}]
CHANGES = {3: [{"unfreeze": LATE}], 5: [{"freeze": TURNS}], 9: [{"unfreeze": TURNS}]}
BACK = [{"freeze": LATE}]
CHANGES_BACK = {2: [{"unfreeze": LATE}]}
STRATEGIES = {
    "sharded_ddp": {"sharded_ddp": {"bucket_mb": 0.01}},
    "fsdp": {"fsdp": {}},
    "ddp": {"ddp": {"bucket_mb": 0.01}},
}
OPTIMIZERS = {
    "adamw": {
        "adamw": {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-5, "weight_decay": 0.1},
        "groups": [{"match": "*ln_*", "weight_decay": 0.0, "lr_scale": 0.5}],
    },
    "sgd": {"sgd": {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.05}},
}
CASES = cases.every_value(STRATEGIES, OPTIMIZERS, [1, 2, 3, 4])


def frozen_at(names, rules, changes, steps):
    """{step: names of what is not trained in it}"""
    found = {}
    for step in range(1, steps + 1):
        found[step] = set()
        for rule in rules + [r for done in sorted(changes) if done < step for r in changes[done]]:
            ((action, pattern),) = rule.items()
            fitting = set(fnmatch.filter(names, pattern))
            found[step] = found[step] | fitting if action == "freeze" else found[step] - fitting
    return found


@pytest.mark.parametrize("strategy, optimizer, world_size", CASES)
def test_training_goes_on_under_fsdp2_and_comes_back(tmp_path, strategy, optimizer, world_size):
    first = workloads.gpt2(tmp_path) | {
        "strategy": STRATEGIES[strategy],
        "world_size": world_size,
        "optimizer": OPTIMIZERS[optimizer],
        "schedule": {"warmup_cosine": {"warmup_steps": 4, "min_ratio": 0.1}},
        "trainable": {"rules": FIRST},
        "batch": {"per_rank": 12 // world_size},
        "stages": [{"fit": {"steps": SAVED}}],
    }
    state = tmp_path / "state.pt"
    gather = {"file": {"path": str(state), "key": "NAME", "hold": True}}
    found = sessions.run(
        first,
        tmp_path / "first",
        CHANGES,
        commands=[{"at_step": GATHERED, "gather_optimizer_state": gather}],
    )
    # The job that goes on from what FSDP2 has saved begins anew, but for that.
    back = first | {
        "schedule": {"constant": {}},
        "trainable": {"rules": BACK},
        "stages": [{"fit": {"steps": STEPS_BACK}}],
    }
    names = [name for name, _ in reference.build(first).named_parameters()]
    went_on, came_back = fsdp2.train(
        tmp_path,
        checkpoints.parameters(found[GATHERED]),
        state,
        [
            fsdp2.Stretch(first, GATHERED, frozen_at(names, FIRST, CHANGES, SAVED)),
            fsdp2.Stretch(back, 0, frozen_at(names, BACK, CHANGES_BACK, STEPS_BACK)),
        ],
    )
    assert list(went_on) == list(range(GATHERED + 1, SAVED + 1))
    for step, parameters in went_on.items():
        own = checkpoints.parameters(found[step])
        assert largest_difference(own, parameters, f"step {step}") <= TOLERANCE

    saved = torch.load(tmp_path / "trained.pt", weights_only=True)
    assert saved["state"].keys() == set(names) - {NEVER}
    if optimizer == "adamw":
        assert len(saved["param_groups"]) == 2
        steps = {name: slots["step"].item() for name, slots in saved["state"].items()}
        assert (steps[LATE], max(steps.values())) == (SAVED - 3, SAVED)
        assert steps["transformer.h.1.attn.c_attn.weight"] == SAVED - 4
    back["model"] = back["model"] | {"weights": str(tmp_path / "trained.safetensors")}
    back["optimizer"] = back["optimizer"] | {"state": str(tmp_path / "trained.pt")}
    found = sessions.run(back, tmp_path / "back", CHANGES_BACK)
    assert list(found) == list(came_back) == list(range(1, STEPS_BACK + 1))
    for step, parameters in came_back.items():
        own = checkpoints.parameters(found[step])
        assert largest_difference(own, parameters, f"back, step {step}") <= TOLERANCE
