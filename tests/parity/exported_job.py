"""Jobs that train exported models."""

from tests.parity import exported_models
from tests.python import package  # noqa: F401 (makes `muster` importable)

import muster.export  # isort: skip


def job(folder, name, **more):
    """Returns the job of one of exported_models. Exports the model once into `folder`."""
    case = (exported_models.MODELS | exported_models.FURTHER)[name]
    exported = folder / "exported"
    if not exported.exists():
        muster.export(case.build(), case.example(), exported, **case.options)
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
