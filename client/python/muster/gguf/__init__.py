"""GGUF files, for llama.cpp and programs that are built on it, from model folders of Hugging Face.

    muster.gguf.write("tuned", "tuned.gguf", dtype="f16")

Needs the packages `gguf` and `safetensors`. docs/how-to/hugging-face.md says which models."""

from __future__ import annotations

import json
import os
import pathlib
from typing import TYPE_CHECKING, Any

from muster.gguf._model import Plan, plan_of
from muster.gguf._tokenizer import Vocabulary, vocabulary_of

if TYPE_CHECKING:
    import gguf

DTYPES = ("f32", "f16", "bf16")
_LARGEST_F16 = 65504.0

__all__ = ["DTYPES", "write"]


def write(
    folder: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    dtype: str = "f16",
    pre: str | None = None,
    overwrite: bool = False,
) -> list[str]:
    """Writes a GGUF file of a model folder. Returns sentences on what of the model the file does
    not hold.

    dtype: "f32", "f16" or "bf16", the type of matrices; vectors are float32. pre: llama.cpp's name
    for how the tokenizer splits texts, such as "qwen2"; without it, the tokenizer says.

    ValueError: a model that llama.cpp would compute in another way, or a tokenizer that it does not
    have. FileExistsError: the file exists. ImportError: a package is missing."""
    if dtype not in DTYPES:
        raise ValueError(f"dtype: expected one of {', '.join(DTYPES)}, found {dtype!r}")
    out = pathlib.Path(out)
    if out.exists() and not overwrite:
        raise FileExistsError(f"{out} exists")
    try:
        import gguf
    except ImportError as error:
        raise ImportError("muster.gguf needs the package gguf (`pip install gguf`)") from error
    folder = pathlib.Path(folder)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    plan = plan_of(config, folder)
    vocabulary = vocabulary_of(folder, plan.vocab_size, pre)
    temporary = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        _write(gguf, temporary, folder, plan, vocabulary, dtype)
        os.replace(temporary, out)
    finally:
        temporary.unlink(missing_ok=True)
    return plan.notes


def _write(
    gguf_: Any, path: pathlib.Path, folder: pathlib.Path, plan: Plan, words: Vocabulary, dtype: str
) -> None:
    kinds = gguf_.GGMLQuantizationType
    kind = {"f32": kinds.F32, "f16": kinds.F16, "bf16": kinds.BF16}[dtype]
    files = gguf_.LlamaFileType
    writer: gguf.GGUFWriter = gguf_.GGUFWriter(path, plan.arch)
    try:
        writer.add_name(folder.resolve().name)
        writer.add_file_type(
            {"f32": files.ALL_F32, "f16": files.MOSTLY_F16, "bf16": files.MOSTLY_BF16}[dtype]
        )
        plan.add_to(writer)
        words.add_to(writer)
        tensors = plan.tensors(folder)
        for one in tensors:
            of = kind if len(one.shape) > 1 else kinds.F32
            width = 4 if of is kinds.F32 else 2
            elements = 1
            for size in one.shape:
                elements *= size
            writer.add_tensor_info(
                one.name, one.shape, one.numpy_type(width), elements * width, raw_dtype=of
            )
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        # One tensor after the other, so that the memory is that of the largest one.
        for one in tensors:
            values = one.read()
            of = kind if len(one.shape) > 1 else kinds.F32
            if of is kinds.F16 and not (abs(values) <= _LARGEST_F16).all():
                raise ValueError(
                    f"{one.name} has numbers that f16 cannot hold; expected the type bf16 or f32"
                )
            writer.write_tensor_data(gguf_.quants.quantize(values, of))
    finally:
        writer.close()
