#!/usr/bin/env python3
"""Step time of Muster's fsdp beside PyTorch's FSDP2: `bench/fsdp/run.py` builds, measures and
prints the tables. The method stands in bench/harness.py and bench/table.py; bench/README.md says
why. Links other than loopback need root."""

import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = pathlib.Path.home() / ".cache/muster/venv/bin/python"
if __name__ == "__main__" and pathlib.Path(sys.executable) != PYTHON:
    os.execv(PYTHON, [PYTHON, *sys.argv])
sys.path.insert(0, str(ROOT))

from bench.fsdp.cases import CASES  # noqa: E402
from bench.sharded_ddp.comparison import Muster, PyTorch, run  # noqa: E402

ARMS = [
    Muster("Muster fsdp", {"fsdp": {}}),
    PyTorch("PyTorch FSDP2 tuned", "fsdp"),
    PyTorch("PyTorch FSDP2 default", "fsdp-default"),
    Muster("Muster fsdp, again", {"fsdp": {}}),
]

if __name__ == "__main__":
    run(__doc__.split("\n")[0], CASES, list(CASES), ARMS, "Muster's", base=1)
