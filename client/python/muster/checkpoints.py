"""Checkpoints of jobs, read without a coordinator.

    checkpoint = muster.checkpoints.open("checkpoints/first/step-200-g1")
    checkpoint.step                                             # 200
    checkpoint.parameters["transformer.wte.weight"]             # a Tensor: nothing is read yet
    checkpoint.parameters["transformer.wte.weight"].numpy()     # or .torch()
    checkpoint.optimizer_state["transformer.wte.weight"]["exp_avg"].numpy()

Tensors are whole, whatever the strategy and the number of ranks of the job. Only requested tensors
are read. Each block that is read is checked against the hash in the checkpoint's manifest
(docs/reference/checkpoint-format.md).
"""

from __future__ import annotations

import os
import pathlib
import re

from muster import _checkpoint
from muster._checkpoint import Checkpoint, Tensor

__all__ = ["Checkpoint", "Tensor", "list", "open"]


def open(directory: str | os.PathLike[str]) -> Checkpoint:
    """Opens the checkpoint in this directory. Only its manifest is read. NotFound: there is no
    checkpoint. DataLoss: the manifest is damaged. FailedPrecondition: the program that wrote the
    checkpoint is newer, or too old for this package (`muster checkpoints reshard` writes the
    checkpoint anew)."""
    return _checkpoint.read(directory)


def list(directory: str | os.PathLike[str]) -> dict[int, pathlib.Path]:
    """Returns the complete checkpoints in a job's folder, by step, in the order of steps. If
    several have the same step, the newest generation counts."""
    found: dict[int, tuple[int, pathlib.Path]] = {}
    for path in pathlib.Path(directory).iterdir():
        match = re.fullmatch(r"step-(\d+)-g(\d+)", path.name)
        if match is None:
            continue
        step, generation = int(match[1]), int(match[2])
        if step not in found or found[step][0] < generation:
            found[step] = (generation, path)
    return {step: found[step][1] for step in sorted(found)}
