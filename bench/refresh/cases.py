"""MLPs of equal square layers."""

import dataclasses

import torch
from safetensors.torch import save_file

CLASSES = 10


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    width: int
    layers: int

    @property
    def parameters(self):
        return self.layers * self.width * (self.width + 1) + CLASSES * (self.width + 1)

    def half(self):
        """The first half of the layers: in one bucket half of what is left changes its owner."""
        return [f"layers.{i}.*" for i in range(self.layers // 2)]

    def write(self, folder):
        rows = torch.randn(8, self.width, generator=torch.Generator().manual_seed(1))
        save_file(
            {"inputs": rows, "labels": torch.arange(8) % CLASSES}, folder / "rows.safetensors"
        )

    def job(self, folder, world_size):
        return {
            "name": self.name,
            "world_size": world_size,
            "model": {
                "mlp": {
                    "inputs": self.width,
                    "hidden": [self.width] * self.layers,
                    "classes": CLASSES,
                }
            },
            "data": {"train": {"safetensors": {"path": str(folder / "rows.safetensors")}}},
            "optimizer": {"adamw": {"lr": 1e-5}},
            "batch": {"per_rank": 1},
            "stages": [{"fit": {"steps": 10_000_000}}],
        }

    def build(self):
        """The same in PyTorch."""
        modules = []
        for _ in range(self.layers):
            modules += [torch.nn.Linear(self.width, self.width), torch.nn.ReLU()]
        return torch.nn.Sequential(*modules, torch.nn.Linear(self.width, CLASSES))


CASES = {
    case.name: case
    for case in [
        Case("10m", 1024, 10),
        Case("29m", 1024, 28),
        Case("100m", 2048, 24),
        Case("300m", 4096, 18),
    ]
}
