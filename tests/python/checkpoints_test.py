"""muster.checkpoints: what it reads equals what Muster itself writes for Python."""

import json
import pathlib

import numpy
import pytest
import safetensors.numpy
import torch

from tests.process import harness, jobs
from tests.python import package  # noqa: F401

import muster as m  # isort: skip

STRATEGIES = {
    "ddp": {"ddp": {}},
    "sharded_ddp": {"sharded_ddp": {}},
    "fsdp": {"fsdp": {}},
}


def train(muster, **changes):
    """A job of ten steps: its newest checkpoint."""
    path = jobs.write_job(muster.folder, stages=[{"fit": {"steps": 10}}], **changes)
    muster.cli("run", path)
    (folder,) = (muster.folder / "checkpoints").iterdir()
    paths = m.checkpoints.list(folder)
    assert list(paths) == [5, 10]
    return paths[10]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_parameters_and_optimizer_state_equal_the_export_and_the_gathered_state(muster, strategy):
    path = train(muster, strategy=STRATEGIES[strategy])
    checkpoint = m.checkpoints.open(path)
    assert (checkpoint.step, checkpoint.generation) == (10, 1)

    exported = safetensors.numpy.load_file(muster.folder / "model.safetensors")
    tied = set(exported) - set(checkpoint.parameters)
    assert tied <= {"lm_head.weight"} and set(checkpoint.parameters) <= set(exported)
    for name, tensor in checkpoint.parameters.items():
        assert tensor.shape == exported[name].shape and tensor.dtype == exported[name].dtype
        numpy.testing.assert_array_equal(tensor.numpy(), exported[name])
        numpy.testing.assert_array_equal(numpy.asarray(tensor), exported[name])
        assert torch.equal(tensor.torch(), torch.from_numpy(exported[name]))

    order = [one["name"] for one in checkpoint.manifest["parameters"]]
    assert set(checkpoint.optimizer_state) == set(order)
    for name in order:
        state = checkpoint.optimizer_state[name]
        assert set(state) == {"exp_avg", "exp_avg_sq", "step"}
        assert state["step"].numpy() == 10 and state["step"].shape == ()
        assert state["exp_avg"].shape == checkpoint.parameters[name].shape
        assert (state["exp_avg_sq"].numpy() >= 0).all() and state["exp_avg"].numpy().any()
    checkpoint.verify()


def test_the_optimizer_state_continues_in_pytorch_as_the_gathered_one_does(muster):
    """The same numbers as in the file for torch.optim, which other tests compare with PyTorch."""
    daemon = muster.musterd(local_slots=2)
    with m.Client(muster.address) as client:
        job = client.submit(jobs.write_job(muster.folder), id="one")
        gathered = job.gather_optimizer_state(muster.folder / "state.pt", key="name", at_step=10)
        saved = job.checkpoint(at_step=10).result(harness.BOUND)
        gathered.result(harness.BOUND)
        job.wait(harness.BOUND, check=True)
    muster.stop(daemon)
    state = torch.load(muster.folder / "state.pt", weights_only=True)["state"]
    checkpoint = m.checkpoints.open(saved.path)
    assert set(state) == set(checkpoint.optimizer_state)
    for name, slots in state.items():
        for slot, tensor in slots.items():
            assert torch.equal(checkpoint.optimizer_state[name][slot].torch(), tensor), name


def test_every_changed_byte_of_a_checkpoint_is_found(muster):
    path = train(muster)
    for file in sorted(path.iterdir()):
        content = file.read_bytes()
        for place in range(0, len(content), max(1, len(content) // 40)):
            changed = bytearray(content)
            changed[place] ^= 0x10
            file.write_bytes(changed)
            with pytest.raises(m.DataLoss):
                m.checkpoints.open(path).verify()
        file.write_bytes(content[:-1])
        with pytest.raises(m.DataLoss):
            m.checkpoints.open(path).verify()
        file.unlink()
        with pytest.raises(m.NotFound):
            m.checkpoints.open(path).verify()
        file.write_bytes(content)
    m.checkpoints.open(path).verify()


def test_what_is_no_checkpoint_of_this_format_is_refused(muster, tmp_path):
    with pytest.raises(m.NotFound, match="no complete checkpoint"):
        m.checkpoints.open(tmp_path / "nowhere")
    manifest = tmp_path / "MANIFEST.json"
    for text in ("", "[", "[]", "{}", '{"format": "another"}'):
        manifest.write_text(text)
        with pytest.raises(m.DataLoss):
            m.checkpoints.open(tmp_path)
    manifest.write_text(json.dumps({"format": "muster-checkpoint", "version": 4}))
    with pytest.raises(m.FailedPrecondition, match="version 4"):
        m.checkpoints.open(tmp_path)
    assert isinstance(m.checkpoints.list(tmp_path), dict)
    assert pathlib.Path(tmp_path).exists()
