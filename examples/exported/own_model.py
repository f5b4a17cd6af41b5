"""Exports a model of one's own, which tells apart the arms of examples/spirals.py."""

import pathlib

import muster.export
import torch

HERE = pathlib.Path(__file__).parent


class Residual(torch.nn.Module):
    def __init__(self, width, layers, classes):
        super().__init__()
        self.first = torch.nn.Linear(2, width)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(layers))
        self.head = torch.nn.Linear(width, classes)

    def forward(self, points):
        x = self.first(points)
        for layer in self.layers:
            x = x + torch.nn.functional.gelu(layer(x))
        return self.head(x)


if __name__ == "__main__":
    torch.manual_seed(1)
    muster.export(Residual(64, 3, 3), torch.randn(4, 2), HERE / "own_model", overwrite=True)
