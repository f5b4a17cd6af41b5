"""Exports a residual network of transformers for images of 28 x 28 with one channel, as
examples/images/digits.py makes them."""

import pathlib

import muster.export
import torch
from transformers import ResNetConfig, ResNetForImageClassification

HERE = pathlib.Path(__file__).parent

if __name__ == "__main__":
    torch.manual_seed(1)
    config = ResNetConfig(
        num_channels=1,
        embedding_size=16,
        hidden_sizes=[16, 32],
        depths=[1, 1],
        layer_type="basic",
        num_labels=10,
    )
    model = ResNetForImageClassification(config)
    example = {"pixel_values": torch.rand(4, 1, 28, 28)}
    muster.export(model, example, HERE / "vision", overwrite=True)
