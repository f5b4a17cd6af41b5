"""One process of PyTorch training a case alone: `peer.py CASE FOLDER OUT`, else as bench/ddp's."""

import sys

import torch

from bench.ddp.cases import CASES
from bench.ddp.stepping import train


def main(case, folder, out):
    torch.set_num_threads(1)
    case = CASES[case]
    model = case.load(folder)
    optimizer = torch.optim.AdamW(model.parameters(), **case.adamw, fused=True)
    data = case.open(folder)
    train(model, optimizer, data, case.batches(0, len(data), world_size=1), out)


if __name__ == "__main__":
    main(*sys.argv[1:])
