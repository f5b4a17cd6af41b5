"""The steps of PyTorch that every peer is timed by."""

import os
import time

import torch.nn.functional as F


def train(model, optimizer, data, batches, out):
    """A step for each of `batches` (the samples of a batch in `data`); after each a line
    "<monotonic nanoseconds> <loss>" to the file `out`."""
    log = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for samples in batches:
        inputs, targets = data.read(samples)
        logits = model(inputs)
        loss = F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        os.write(log, f"{time.monotonic_ns()} {loss.item()!r}\n".encode())
