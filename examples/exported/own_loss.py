"""Exports a model with two inputs and a loss of one's own, and writes its data: the length of a
trip from the hour and the district of its start."""

import pathlib

import muster.export
import torch
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent
DISTRICTS = 20


class Trip(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.hour = torch.nn.Linear(2, 32)
        self.district = torch.nn.Embedding(DISTRICTS, 32)
        self.layers = torch.nn.Sequential(
            torch.nn.ReLU(), torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)
        )

    def forward(self, hour, district):
        return self.layers(self.hour(hour) + self.district(district))[:, 0]


def loss(output, minutes):
    """Punishes a trip that is longer than expected twice as much."""
    off = minutes - output
    return torch.where(off > 0, 2 * off, -off).mean()


def trips(count, seed):
    draw = torch.Generator().manual_seed(seed)
    angle = torch.rand(count, generator=draw) * 2 * torch.pi
    district = torch.randint(0, DISTRICTS, (count,), generator=draw)
    minutes = 10 + district + 5 * angle.sin() + torch.randn(count, generator=draw)
    return {
        "hour": torch.stack([angle.sin(), angle.cos()], 1),
        "district": district,
        "minutes": minutes,
    }


if __name__ == "__main__":
    torch.manual_seed(1)
    for name, count, seed in (("train", 4000, 1), ("validate", 500, 2)):
        save_file(trips(count, seed), HERE / f"own_loss-{name}.safetensors")
    muster.export(Trip(), trips(4, 3), HERE / "own_loss", loss=loss, overwrite=True)
