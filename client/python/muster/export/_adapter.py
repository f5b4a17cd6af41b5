"""Adapters of PEFT: which tensors of a model are files of an adapter, and under which names."""

from __future__ import annotations

import json
import os
import pathlib
import sys
import tempfile
from typing import Any

import torch

from muster.export._nodes import NotExportable

# The file of an exported folder that describes the adapter of its model.
NAME = "adapter.json"


def of_model(model: torch.nn.Module) -> dict[str, Any] | None:
    """Returns the contents of adapter.json, for the active adapter of a model that PEFT wrapped.
    None: another model, or an adapter that is more than parameters."""
    if not wraps(model):
        return None
    from peft import get_peft_model_state_dict

    wrapped: Any = model
    active = wrapped.active_adapter
    names = {one.data_ptr(): name for name, one in model.named_parameters()}
    tensors = get_peft_model_state_dict(wrapped, adapter_name=active)
    found = {names.get(one.data_ptr(), ""): name for name, one in tensors.items()}
    if "" in found or not found:
        print(
            f"muster.export: there will be no files of the adapter '{active}': its tensor "
            f"'{found.get('', 'none')}' is no parameter of the model",
            file=sys.stderr,
        )
        return None
    with tempfile.TemporaryDirectory() as folder:
        wrapped.save_pretrained(folder, selected_adapters=[active])
        (file,) = pathlib.Path(folder).rglob("adapter_config.json")
        text = file.read_text()
    return {"config": json.loads(text), "names": found}


def wraps(model: torch.nn.Module) -> bool:
    """Returns whether PEFT wrapped the model."""
    return any(base.__name__ == "PeftModel" for base in type(model).__mro__)


def adapter(
    exported: str | os.PathLike[str],
    weights: str | os.PathLike[str],
    folder: str | os.PathLike[str],
) -> pathlib.Path:
    """Writes the adapter of trained weights as PEFT's files, which PeftModel.from_pretrained opens.

    exported: the folder of the exported model, which PEFT wrapped.
    weights: what a job exported: a safetensors file, or a folder that `muster consolidate` wrote.
    folder: gets adapter_model.safetensors and adapter_config.json; must not exist.

    Raises NotExportable if the model has no adapter, or if the weights have no such tensors."""
    from safetensors import safe_open
    from safetensors.torch import save_file

    target = pathlib.Path(folder)
    if target.exists():
        raise FileExistsError(f"{target}: exists; expected the name of a new folder")
    description = pathlib.Path(exported) / NAME
    if not description.is_file():
        raise NotExportable(
            f"{description}: is not there; expected the folder of a model that PEFT wrapped"
        )
    found = json.loads(description.read_text())
    source = pathlib.Path(weights)
    files = sorted(source.glob("*.safetensors")) if source.is_dir() else [source]
    tensors = {}
    for file in files:
        with safe_open(file, "pt") as opened:
            for name in set(opened.keys()) & found["names"].keys():
                tensors[found["names"][name]] = opened.get_tensor(name)
    missing = sorted(set(found["names"].values()) - tensors.keys())
    if missing:
        raise NotExportable(
            f"{source}: has no '{missing[0]}' ({len(missing)} of {len(found['names'])} tensors of "
            "the adapter are missing); expected the weights of this exported model"
        )
    # Under its name the folder is whole: a full disk or a kill leaves no part of it.
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as name:
        made = pathlib.Path(name, target.name)
        made.mkdir()
        save_file(tensors, made / "adapter_model.safetensors", metadata={"format": "pt"})
        (made / "adapter_config.json").write_text(json.dumps(found["config"], indent=2))
        made.rename(target)
    return target
