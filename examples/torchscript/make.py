"""Writes the example's TorchScript file: make.py [FILE], by default model.pt beside this file."""

import pathlib
import sys

import torch


def model(seed=1):
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(2, 64),
        torch.nn.LayerNorm(64),
        torch.nn.GELU(),
        torch.nn.Linear(64, 64),
        torch.nn.GELU(),
        torch.nn.Linear(64, 3),
    )


def write(path, module):
    torch.jit.script(module).save(str(path))


if __name__ == "__main__":
    here = pathlib.Path(__file__).parent
    write(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "model.pt", model())
