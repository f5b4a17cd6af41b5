#!/usr/bin/env python3
"""Step time of Muster's sharded_ddp beside Muster's ddp and PyTorch's ZeRO:
`bench/sharded_ddp/run.py` builds, measures and prints the tables. The method stands in
bench/harness.py and bench/table.py; bench/README.md says why. Links other than loopback need root.
"""

import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = pathlib.Path.home() / ".cache/muster/venv/bin/python"
if __name__ == "__main__" and pathlib.Path(sys.executable) != PYTHON:
    os.execv(PYTHON, [PYTHON, *sys.argv])
sys.path.insert(0, str(ROOT))

from bench.ddp.cases import CASES  # noqa: E402
from bench.sharded_ddp.comparison import Muster, PyTorch, run  # noqa: E402

ARMS = [
    Muster("Muster sharded_ddp", {"sharded_ddp": {}}),
    Muster("Muster ddp", {"ddp": {}}),
    PyTorch("PyTorch DDP + ZeroRedundancyOptimizer", "zero"),
    PyTorch("PyTorch FSDP2, no reshard", "fsdp-keep"),
    Muster("Muster sharded_ddp, again", {"sharded_ddp": {}}),
]

if __name__ == "__main__":
    run(__doc__.split("\n")[0], CASES, ["gpt-4x256", "mlp-8x1024"], ARMS, "sharded_ddp's", base=1)
