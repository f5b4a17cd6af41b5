"""Training goes on in Python from what gather-optimizer-state writes (torch.load, load_state_dict),
and in Muster from what Python writes (`optimizer: {state: FILE}`); the next steps are the same.

One schedule has parameters that were frozen and freed again, a parameter that is freed late (with
fewer steps than the others), and a parameter that is never trained. The tolerance is
training_test's: 1e-6, with AdamW at eps 1e-5.
"""

import fnmatch
import json
import zipfile

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from tests import cases
from tests.parity import checkpoints, reference, sessions, workloads
from tests.parity.refresh_test import largest_difference

STEPS = 12
GATHERED = 8
TOLERANCE = 1e-6
WORKLOADS = {"gpt2": workloads.gpt2, "llama": workloads.llama}
NEVER = {"gpt2": "transformer.wpe.weight", "llama": "model.layers.1.mlp.up_proj.weight"}
LATE = {
    "gpt2": "transformer.h.0.mlp.c_fc.weight",
    "llama": "model.layers.0.self_attn.k_proj.weight",
}
TURNS = {"gpt2": "transformer.h.1.*", "llama": "model.layers.1.self_attn.*"}
STRATEGIES = {
    "ddp": {"ddp": {"bucket_mb": 0.01}},
    "sharded_ddp": {"sharded_ddp": {"bucket_mb": 0.01}},
    "fsdp": {"fsdp": {}},
}
OPTIMIZERS = {
    "adamw": {
        "adamw": {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-5, "weight_decay": 0.1},
        "groups": [
            {"match": "*norm*", "weight_decay": 0.0, "lr_scale": 0.5},
            {"match": "*ln_*", "weight_decay": 0.0, "lr_scale": 0.5},
            # After the norms in Muster's llama, before them in Hugging Face's.
            {"match": "*q_proj*", "weight_decay": 0.3},
        ],
    },
    # As in groups_test.
    "adam": {"adam": {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-3, "weight_decay": 0.1}},
    "several": {
        "adamw": {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-5, "weight_decay": 0.1},
        "groups": [
            {"match": "*norm*", "optimizer": {"adadelta": {"lr": 1.0, "eps": 1e-5}}},
            {"match": "*ln_*", "optimizer": {"adadelta": {"lr": 1.0, "eps": 1e-5}}},
            {"match": "*q_proj*", "optimizer": {"sgd": {"lr": 0.05, "momentum": 0.9}}},
            {"match": "*c_attn*", "optimizer": {"sgd": {"lr": 0.05, "momentum": 0.9}}},
            {"match": "*mlp*", "lr": 2e-3, "betas": [0.8, 0.9]},
        ],
    },
    "sgd": {"sgd": {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.05, "nesterov": True}},
    "sgd_plain": {"sgd": {"lr": 0.05}},
}
CASES = cases.every_value(STRATEGIES, [1, 2, 3, 4], OPTIMIZERS, WORKLOADS)


def changes(kind):
    return {
        2: [{"freeze": TURNS[kind]}],
        4: [{"unfreeze": LATE[kind]}],
        6: [{"unfreeze": TURNS[kind]}, {"freeze": NEVER[kind]}],
        7: [{"freeze": "*o_proj*"}, {"freeze": "*h.0.attn*"}],
        10: [{"unfreeze": "*o_proj*"}, {"unfreeze": "*h.0.attn*"}],
    }


def job(folder, kind, world_size, optimizer):
    # A pattern that fits no parameter is refused.
    fitting = {
        "gpt2": ["*ln_*", "*c_attn*", "*mlp*"],
        "llama": ["*norm*", "*q_proj*", "*mlp*"],
    }[kind]
    groups = [
        group for group in OPTIMIZERS[optimizer].get("groups", []) if group["match"] in fitting
    ]
    return WORKLOADS[kind](folder) | {
        "world_size": world_size,
        "trainable": {"rules": [{"freeze": LATE[kind]}, {"freeze": NEVER[kind]}]},
        "optimizer": OPTIMIZERS[optimizer] | ({"groups": groups} if groups else {}),
        "schedule": {"warmup_cosine": {"warmup_steps": 5, "min_ratio": 0.1}},
        "batch": {"per_rank": 2},
        "stages": [{"fit": {"steps": STEPS}}],
    }


def rules_of(kind, step):
    found = [{"freeze": LATE[kind]}, {"freeze": NEVER[kind]}]
    for done, rules in sorted(changes(kind).items()):
        if done < step:
            found += rules
    return found


def set_flags_of(kind):
    def set_flags(step, model):
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(True)
            for rule in rules_of(kind, step):
                ((action, pattern),) = rule.items()
                if fnmatch.fnmatchcase(name, pattern):
                    parameter.requires_grad_(action == "unfreeze")
            if not parameter.requires_grad:
                parameter.grad = None

    return set_flags


def fitting(kind, names):
    """The rules of the schedule that fit this model."""
    def fits(rule):
        ((_, pattern),) = rule.items()
        return any(fnmatch.fnmatchcase(name, pattern) for name in names)

    return {done: [rule for rule in rules if fits(rule)] for done, rules in changes(kind).items()}


@pytest.mark.parametrize("strategy, world_size, optimizer, kind", CASES)
def test_training_goes_on_in_python(tmp_path, strategy, world_size, optimizer, kind):
    spec = job(tmp_path, kind, world_size, optimizer) | {"strategy": STRATEGIES[strategy]}
    model = reference.build(spec)
    names = [name for name, _ in model.named_parameters()]
    gathers = [
        {"path": str(tmp_path / "index.pt")},
        {"path": str(tmp_path / "name.pt"), "key": "NAME"},
        {"path": str(tmp_path / "state.safetensors"), "format": "SAFETENSORS"},
    ]
    found = sessions.run(
        spec,
        tmp_path / "run",
        fitting(kind, names),
        commands=[
            {"at_step": GATHERED, "gather_optimizer_state": {"file": file}} for file in gathers
        ],
    )
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []
    saved = checkpoints.read(found[GATHERED])
    slots = {name: value for name, value in saved.items() if not name.startswith("param/")}

    for file in gathers[:2]:
        with zipfile.ZipFile(file["path"]) as archive:
            assert archive.testzip() is None  # the checksums, put together from those of ranks
    # Every element is there, under the name and the position of its parameter.
    state = torch.load(gathers[0]["path"], weights_only=True)
    for index, entry in state["state"].items():
        for slot, value in entry.items():
            assert value.equal(slots.pop(f"{slot}/{names[index]}"))
    assert slots == {}
    groups = state["param_groups"]
    assert sorted(index for group in groups for index in group["params"]) == list(range(len(names)))
    for group in groups:
        assert group["param_names"] == [names[index] for index in group["params"]]
        assert ("optimizer" in group) == (optimizer == "several")
    by_name = torch.load(gathers[1]["path"], weights_only=True)
    assert {names[index] for index in state["state"]} == by_name["state"].keys()
    if optimizer != "sgd_plain":
        assert names.index(NEVER[kind]) not in state["state"]
        assert len(state["state"]) == len(names) - 1
    if optimizer.startswith("adam"):
        steps = {names[index]: entry["step"].item() for index, entry in state["state"].items()}
        assert steps[LATE[kind]] == GATHERED - 4 and max(steps.values()) == GATHERED
    with safe_open(gathers[2]["path"], framework="pt") as file:
        entries = set(file.keys())
        described = json.loads(file.metadata()["muster_optimizer"])
    assert entries == {name for name in saved if not name.startswith("param/")}
    assert [parameter["name"] for parameter in described["parameters"]] == names

    start = reference.Start(GATHERED, checkpoints.parameters(found[GATHERED]), state)
    went_on = reference.train(spec, before_step=set_flags_of(kind), start=start)
    for step in range(GATHERED + 1, STEPS + 1):
        own = checkpoints.parameters(found[step])
        assert largest_difference(own, went_on.parameters[step], f"step {step}") <= TOLERANCE


def test_a_file_that_exists_is_kept_unless_it_may_be_overwritten(tmp_path):
    spec = job(tmp_path, "gpt2", 2, "adamw") | {"strategy": STRATEGIES["fsdp"]}
    path = tmp_path / "state.pt"
    path.write_text("somebody's")
    gather = {"at_step": 2, "gather_optimizer_state": {"file": {"path": str(path)}}}
    (error,) = sessions.errors_of(spec, tmp_path / "run", [gather])
    assert f"{path}: there is such a file" in error
    assert path.read_text() == "somebody's"
    gather["gather_optimizer_state"]["file"]["overwrite"] = True
    assert sessions.errors_of(spec, tmp_path / "again", [gather]) == []
    assert torch.load(path, weights_only=True)["state"]


def trained_in_python(folder, kind, optimizer):
    """A job that starts from what 5 steps in Python have made, its weights in a file; the same for
    `reference.train`."""
    spec = job(folder, kind, 2, optimizer) | {"schedule": {"constant": {}}}
    never = NEVER[kind]

    def without_one(step, model):
        dict(model.named_parameters())[never].requires_grad_(False)

    first = reference.train(
        spec | {"stages": [{"fit": {"steps": 5}}]},
        before_step=without_one,
        start=reference.Start(0, {}, None),
    )
    save_file(first.parameters[5], folder / "trained.safetensors")
    spec["model"]["weights"] = str(folder / "trained.safetensors")
    return spec, reference.Start(0, first.parameters[5], first.optimizer)


def by_name(state, names):
    """The same with names instead of numbers, as FSDP's consolidated form."""
    groups = [
        group | {"params": [names[index] for index in group["params"]]}
        for group in state["param_groups"]
    ]
    return {
        "state": {names[index]: value for index, value in state["state"].items()},
        "param_groups": groups,
    }


def named(spec, state):
    """torch's numbers run from group to group: their names."""
    optimizer = reference.grouped_optimizer(spec["optimizer"], model := reference.build(spec))
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    order = [names[id(p)] for group in optimizer.param_groups for p in group["params"]]
    assert len(state["state"]) in (0, len(order) - 1)
    return order


@pytest.mark.parametrize("strategy, world_size, optimizer, kind", CASES)
def test_training_goes_on_in_muster(tmp_path, strategy, world_size, optimizer, kind):
    spec, start = trained_in_python(tmp_path, kind, optimizer)
    spec |= {"strategy": STRATEGIES[strategy], "world_size": world_size}
    # A parameter with state is frozen until step 6, and the parameter that never was trained is
    # trained.
    frozen = LATE[kind]
    spec["trainable"] = {"rules": [{"freeze": frozen}]}

    def set_flags(step, model):
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name != frozen or step > 6)
            if not parameter.requires_grad:
                parameter.grad = None

    expected = reference.train(spec, before_step=set_flags, start=start)
    order = named(spec, start.optimizer)
    double = {
        "state": {
            index: {
                slot: value.double() if torch.is_tensor(value) and value.dim() else value
                for slot, value in slots.items()
            }
            for index, slots in start.optimizer["state"].items()
        },
        "param_groups": start.optimizer["param_groups"],
    }
    for name, state in {
        "index": start.optimizer,
        "name": by_name(start.optimizer, order),
        "double": double,
    }.items():
        torch.save(state, tmp_path / f"{name}.pt")
        own = {"optimizer": spec["optimizer"] | {"state": str(tmp_path / f"{name}.pt")}}
        found = sessions.run(
            spec | own, tmp_path / name, {6: [{"unfreeze": frozen}]}
        )
        for step in range(1, STEPS + 1):
            parameters = checkpoints.parameters(found[step])
            assert (
                largest_difference(parameters, expected.parameters[step], f"{name}, {step}")
                <= TOLERANCE
            )


def test_musters_own_files_are_read(tmp_path):
    spec = job(tmp_path, "llama", 3, "adamw") | {"strategy": STRATEGIES["fsdp"]}
    files = [
        {"path": str(tmp_path / "index.pt")},
        {"path": str(tmp_path / "name.pt"), "key": "NAME"},
        {"path": str(tmp_path / "state.safetensors"), "format": "SAFETENSORS"},
    ]
    commands = [{"at_step": 4, "gather_optimizer_state": {"file": file}} for file in files]
    first = sessions.run(spec, tmp_path / "first", commands=commands)
    expected = checkpoints.read(first[4])
    for number, file in enumerate(files):
        own = {"optimizer": spec["optimizer"] | {"state": file["path"]}, "world_size": 2}
        own |= {"stages": [{"fit": {"steps": 1}}], "schedule": {"constant": {}}}
        # Nothing is trained, so what the first checkpoint holds is what was read.
        own["trainable"] = {"rules": [{"freeze": "*"}]}
        found = checkpoints.read(sessions.run(spec | own, tmp_path / f"again-{number}")[1])
        for name, value in found.items():
            if not name.startswith("param/"):
                assert value.equal(expected[name])
        assert {name for name in expected if not name.startswith("param/")} == {
            name for name in found if not name.startswith("param/")
        }


def test_a_state_that_does_not_fit_is_refused_by_name(tmp_path):
    spec, start = trained_in_python(tmp_path, "gpt2", "adamw")
    order = named(spec, start.optimizer)
    good = by_name(start.optimizer, order)
    name = order[3]

    def refusal(state):
        torch.save(state, tmp_path / "bad.pt")
        own = {"optimizer": spec["optimizer"] | {"state": str(tmp_path / "bad.pt")}}
        return sessions.failure_of(spec | own, tmp_path)

    def changed(**slots):
        return good | {"state": good["state"] | {name: good["state"][name] | slots}}

    more = refusal(changed(max_exp_avg_sq=torch.zeros(2)))
    assert f"max_exp_avg_sq of '{name}': its optimizer in the job has no such state" in more
    assert "optimizer.state: " in more
    shape = refusal(changed(exp_avg=torch.zeros(3, 5)))
    assert f"exp_avg of '{name}': expected floating-point numbers [" in shape
    assert "found F32 [3, 5]" in shape
    unknown = good | {"state": good["state"] | {"other": dict(good["state"][name])}}
    unknown["param_groups"][0]["params"].append("other")
    assert "the model has no parameter 'other'" in refusal(unknown)
    assert "expected the state_dict() of an optimizer" in refusal({"a": 1})
    # Fewer parameters, and nothing that names them.
    few = {"state": {}, "param_groups": [{"lr": 0.1, "params": [0, 1]}]}
    assert "param_groups[0] has no param_names" in refusal(few)
