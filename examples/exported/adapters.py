"""Exports the model of language.py with LoRA's adapters of PEFT: only the adapters are trained.
Needs peft. The data are those of language.py."""

import pathlib

import language
import muster.export
import torch
from peft import LoraConfig, get_peft_model

HERE = pathlib.Path(__file__).parent

if __name__ == "__main__":
    torch.manual_seed(1)
    model = get_peft_model(
        language.model(), LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"])
    )
    example = {name: one[:3] for name, one in language.samples().items()}
    muster.export(model, example, HERE / "adapters", overwrite=True)
