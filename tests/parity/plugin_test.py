"""The example of a plug-in: trained as PyTorch trains its twin, exported, resumed.

Tolerances as in torchscript_test.py.
"""

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

from examples import spirals
from tests import bazel, exports
from tests.parity import cluster, shared_cluster, twin

OPTIONS = {"inputs": 2, "width": 48, "layers": 2, "classes": 3}


@pytest.fixture(scope="module")
def plugin():
    return bazel.runfile("examples/plugin/focal.so").resolve()


muster = shared_cluster.with_slots(2)


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


class Focal(torch.nn.Module):
    def __init__(self, inputs, width, layers, classes):
        super().__init__()
        widths = [inputs] + layers * [width]
        self.layers = torch.nn.ModuleList(torch.nn.Linear(a, b) for a, b in zip(widths, widths[1:]))
        self.head = torch.nn.Linear(width, classes)

    def forward(self, x):
        for layer in self.layers:
            x = F.gelu(layer(x))
        return self.head(x)


def focal_loss(gamma):
    def loss(logits, labels):
        p = F.softmax(logits.float(), 1)[torch.arange(len(labels)), labels]
        return -((1 - p) ** gamma * p.log()).mean()

    return loss


def keep_within(max_norm):
    @torch.no_grad()
    def before_step(model):
        for layer in [*model.layers, model.head]:
            layer.weight.copy_(torch.renorm(layer.weight, 2, 0, max_norm))

    return before_step


def twin_model():
    torch.manual_seed(4)
    return Focal(**OPTIONS)


def job(folder, plugin, name, more_options={}, **more):
    spirals.write(folder, train=220, validate=40)
    save_file(twin_model().state_dict(), folder / "initial.safetensors")
    return {
        "name": "plugin-rows",
        "seed": 13,
        "world_size": 2,
        "model": {
            "plugin": {"path": str(plugin), "name": name, "options": OPTIONS | more_options},
            "weights": str(folder / "initial.safetensors"),
        },
        "data": {
            which: {
                "npy": {
                    "inputs": str(folder / f"{which}-inputs.npy"),
                    "labels": str(folder / f"{which}-labels.npy"),
                }
            }
            for which in ("train", "validate")
        },
        "batch": {"per_rank": 5, "accumulate": 2},
        "optimizer": {"sgd": {"lr": 0.05, "momentum": 0.9}},
        "stages": [{"fit": {"steps": 20}}],
        "export": {"path": str(folder / "out" / "model.safetensors")},
        **more,
    }


def test_its_loss_and_step_hook_train_as_in_pytorch(muster, plugin, tmp_path):
    spec = job(tmp_path, plugin, "focal", {"gamma": 2, "max_norm": 0.6})
    muster.run(spec, "focal")
    model = twin_model()
    expected = twin.train(spec, model, loss=focal_loss(2), before_step=keep_within(0.6))
    # Without the hook it would be another run.
    without = twin.train(spec, twin_model(), loss=focal_loss(2))
    assert max(abs(a - b) for a, b in zip(without.losses, expected.losses)) > 1e-3
    twin.assert_close(muster.losses("focal"), expected.losses, 1e-6)
    twin.assert_close(load_file(tmp_path / "out" / "model.safetensors"), expected.tensors, 1e-6)


def test_without_a_loss_of_its_own_it_takes_the_jobs(muster, plugin, tmp_path):
    loss = {"cross_entropy": {"label_smoothing": 0.1}}
    spec = job(tmp_path, plugin, "plain", loss=loss)
    muster.run(spec, "plain")
    expected = twin.train(
        spec, twin_model(), loss=lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1)
    )
    twin.assert_close(muster.losses("plain"), expected.losses, 1e-6)
    with pytest.raises(cluster.JobFailed, match="model 'focal': the model has a loss of its own"):
        muster.run(job(tmp_path, plugin, "focal", loss=loss), "two-losses")


@pytest.mark.parametrize("precision", twin.HALF_PRECISION)
@pytest.mark.parametrize("name, loss", [("focal", focal_loss(2)), ("plain", twin.cross_entropy)])
def test_it_trains_in_half_precision_as_pytorch_does(
    muster, plugin, tmp_path, name, loss, precision
):
    spec = job(tmp_path, plugin, name, precision=precision)
    spec["stages"].append({"validate": {}})
    muster.run(spec, f"{name}-{precision}")
    spec["stages"].pop()
    twin.assert_trained_in_half_precision(
        muster.losses(f"{name}-{precision}"), spec, twin_model, loss
    )


def test_a_killed_and_resumed_run_equals_an_undisturbed_one(muster, plugin, tmp_path):
    ends = []
    for disturb in (False, True):
        job_id = "disturbed" if disturb else "undisturbed"
        # Wide, so that the kill after the first checkpoint comes long before the end; values from
        # the seed.
        spec = job(
            tmp_path,
            plugin,
            "focal",
            {"width": 700, "max_norm": 1},
            batch={"per_rank": 40},
            stages=[{"fit": {"steps": 40}}],
            checkpoint={"directory": str(tmp_path / "checkpoints"), "every_steps": 4, "keep": 100},
        )
        del spec["model"]["weights"]
        muster.submit(spec, job_id)
        if disturb:
            folder = tmp_path / "checkpoints" / job_id
            cluster.kill_a_worker_after_the_first_checkpoint(muster, folder)
        found = muster.wait(job_id)
        assert int(found.get("restarts", 0)) == (1 if disturb else 0), found
        ends.append(
            (muster.losses(job_id), exports.contents(tmp_path / "out" / "model.safetensors"))
        )
    assert len(ends[0][0]) == 40
    assert ends[0] == ends[1]


def faulty_job(folder, fault):
    faults = bazel.runfile("worker/models/plugin/plugin_faults.so").resolve()
    rows = torch.randn(40, 3, generator=torch.Generator().manual_seed(1))
    save_file({"inputs": rows, "labels": torch.arange(40) % 2}, folder / "rows.safetensors")
    return job(folder, faults, "faulty") | {
        "model": {"plugin": {"path": str(faults), "name": "faulty", "options": {"fault": fault}}},
        "data": {"train": {"safetensors": {"path": str(folder / "rows.safetensors")}}},
        "batch": {"per_rank": 5},
        "restart": {"max_restarts": 3},
    }


# The ways in which a rank of fsdp gets its slices of a model that no rank makes whole.
@pytest.mark.parametrize("how", ["values", "draws", "reads"])
def test_with_fsdp_it_is_bitwise_the_model_of_ddp(muster, tmp_path, how):
    ends = []
    for strategy in ({"ddp": {}}, {"fsdp": {"unit": ["layer.*"]}}):
        spec = faulty_job(tmp_path, how) | {"strategy": strategy}
        job_id = f"{how}-{next(iter(strategy))}"
        muster.run(spec, job_id)
        export = tmp_path / "out" / "model.safetensors"
        ends.append((muster.losses(job_id), exports.contents(export)))
        export.unlink()
    said = "is made whole on every rank" in muster.log(job_id)
    assert said == (how == "reads"), muster.log(job_id)
    assert len(ends[0][0]) == 20
    assert ends[0] == ends[1]


# A failure of the plug-in itself would happen again, so the job ends without a restart.
@pytest.mark.parametrize(
    "fault, said",
    {
        "hook-throws": "before step 3: plug-in FILE: model 'faulty': step hook: no third step",
        "forward-throws-when-training": "plug-in FILE: model 'faulty': root: threw something "
        "that is no std::exception",
        "loss-no-gradient": "plug-in FILE: model 'faulty': loss: expected a mean that depends on "
        "the parameters",
    }.items(),
)
def test_code_that_fails_ends_the_job_with_rank_and_plugin(muster, tmp_path, fault, said):
    spec = faulty_job(tmp_path, fault)
    with pytest.raises(cluster.JobFailed) as failed:
        muster.run(spec, fault)
    assert said.replace("FILE", spec["model"]["plugin"]["path"]) in str(failed.value)
    assert "rank 0" in str(failed.value) or "rank 1" in str(failed.value)
    assert int(muster.job(fault).get("restarts", 0)) == 0
    assert len(muster.losses(fault)) <= 2
