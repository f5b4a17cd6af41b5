"""The examples of exported models, as a user runs them: the script that exports, then the job."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests import cases
from tests.bazel import bound, runfile
from tests.parity import shared_cluster
from tests.python import package

# name: (the scripts that it needs, the largest validation loss in the end)
EXAMPLES = {
    "own_loss": (["exported/own_loss.py"], 1.5),
    "language": (["exported/language.py"], 3.0),
    "own_model": (["spirals.py", "exported/own_model.py"], 0.1),
    "vision": (["images/digits.py images --train 3000 --test 500", "exported/vision.py"], 0.9),
    "adapters": (["exported/language.py", "exported/adapters.py"], 5.4),
}

cluster = shared_cluster.with_slots(2)


@pytest.fixture
def examples(tmp_path):
    return shutil.copytree(runfile("examples"), tmp_path / "examples")


@pytest.mark.parametrize("name", cases.first_ones(EXAMPLES, 1, with_all=2))
def test_an_example_exports_its_model_and_trains_it(cluster, examples, name):
    scripts, worst = EXAMPLES[name]
    for script in scripts:
        subprocess.run(
            [sys.executable, *script.split()],
            cwd=examples,
            env={**os.environ, "PYTHONPATH": str(package.folder())},
            check=True,
            timeout=bound(60),
        )
    job = cluster.run_file(examples / f"exported/{name}.yaml", name.replace("_", "-"))
    assert float(job["validation_loss"]) < worst
    out = pathlib.Path(examples / "exported/out")
    if name == "language":
        opened = AutoModelForCausalLM.from_pretrained(out / "language").eval()
        with torch.no_grad():
            assert opened(torch.tensor([[65, 66]])).logits.isfinite().all()
    assert list(out.rglob("*.safetensors"))
