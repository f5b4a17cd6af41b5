"""Jobs that train exported models."""

import functools
import pathlib
import shutil
import tempfile

from tests.parity import exported_models
from tests.python import package  # noqa: F401 (makes `muster` importable)

import muster.export  # isort: skip


_folder = tempfile.TemporaryDirectory(prefix="muster-exported-")


@functools.cache
def exported_once(name):
    """Returns the folder of the exported model, which no test may change."""
    case = (exported_models.MODELS | exported_models.FURTHER)[name]
    folder = pathlib.Path(_folder.name, name)
    return muster.export(case.build(), case.example(), folder, **case.options)


def job(folder, name, **more):
    """Returns the job of one of exported_models, whose model is exported into `folder`."""
    case = (exported_models.MODELS | exported_models.FURTHER)[name]
    exported = folder / "exported"
    if not exported.exists():
        shutil.copytree(exported_once(name), exported)
    return {
        "name": name.replace(".", "-"),
        "seed": 13,
        "world_size": 2,
        "model": {"exported": str(exported)},
        "data": {"train": case.data(folder)},
        "batch": {"per_rank": 3, "accumulate": 2},
        "optimizer": case.optimizer,
        "stages": [{"fit": {"steps": 20}}],
        "export": {"path": str(folder / "out" / "model.safetensors")},
        **more,
    }
