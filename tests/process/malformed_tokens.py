"""Malformed token files."""

import struct

from tests.process import inputs
from tests.process.inputs import VOCABULARY
from tests.process.malformed_case import case, changed_file, changed_job, cut, first, replaced_file

# ---- Files of tokens ----

changed_file(
    "tokens-half-a-token", "tokens", "train.bin", cut(1), expected="multiple of 2", found="399"
)
changed_file(
    "tokens-too-short", "tokens", "train.bin", first(16), expected="9 tokens", found="found 8"
)
changed_file(
    "tokens-empty",
    "tokens",
    "train.bin",
    first(0),
    expected="data.train.tokens.path[0]",
    found="is empty",
    by="reading",
)
changed_file(
    "tokens-beyond-vocabulary",
    "tokens",
    "train.bin",
    lambda data: data[:100] + b"\x20\0" + data[102:],
    expected=f"vocabulary of {VOCABULARY}",
    found="token 32 at byte offset 100",
)
replaced_file(
    "tokens-that-are-text",
    "tokens",
    "train.bin",
    b"just words, and nothing but words.",
    f"vocabulary of {VOCABULARY}",
    "token 30058",
)
replaced_file(
    "tokens-that-are-safetensors",
    "tokens",
    "train.bin",
    lambda: inputs.safetensors(inputs.rows()),
    "token numbers",
    "found a safetensors file",
)
replaced_file(
    "tokens-with-a-header",
    "tokens",
    "train.bin",
    struct.pack("<256i", 20240520, 1, 200, *[0] * 253) + bytes(400),
    "token numbers",
    "a token file of llm.c",
)
replaced_file(
    "tokens-that-are-npy",
    "tokens",
    "train.bin",
    inputs.npy("<u2", [200], bytes(400)),
    "token numbers",
    "a .npy file",
)
changed_job(
    "tokens-labelled-uint32",
    "tokens",
    {"data.train.tokens.dtype": "uint32"},
    "train.bin",
    f"vocabulary of {VOCABULARY}",
    "token 262152 at byte offset 0",
    by="session",
)


@case(
    "tokens-that-are-a-folder",
    "train.bin",
    "data.train.tokens.path[0]",
    "is not a regular file",
    by="reading",
)
def tokens_folder(folder):
    job = inputs.tokens_job(folder)
    (folder / "train.bin").unlink()
    (folder / "train.bin").mkdir()
    return job


@case("tokens-missing", "train.bin", "cannot read", "No such file", by="reading")
def tokens_missing(folder):
    job = inputs.tokens_job(folder)
    (folder / "train.bin").unlink()
    return job


@case("tokens-second-file-cut", "second.bin", "multiple of 2", "found 33")
def tokens_second(folder):
    job = inputs.tokens_job(folder)
    (folder / "second.bin").write_bytes(b"\1" * 33)
    job["data"]["train"]["tokens"]["path"] = ["train.bin", "second.bin"]
    return job


changed_job(
    "tokens-for-rows",
    "tokens",
    {"model": {"mlp": inputs.MLP}},
    "data.train.tokens",
    "allowed: safetensors, idx, npy",
    "found tokens",
)
changed_job(
    "rows-for-tokens",
    "rows",
    {"model": {"gpt2": inputs.GPT2}},
    "data.train.safetensors",
    "allowed: tokens",
    "found rows",
)

# ---- Files of one rank each ----


@case(
    "per-rank-too-few",
    "data.train.per_rank",
    "as many paths as world_size, 2",
    "found 1",
    by="reading",
)
def per_rank_too_few(folder):
    job = inputs.tokens_job(folder, world_size=2)
    job["data"]["train"] = {"tokens": {}, "per_rank": ["train.bin"]}
    return job


@case("per-rank-one-cut", "other.bin", "multiple of 2", "found 33")
def per_rank_cut(folder):
    job = inputs.tokens_job(folder, world_size=2)
    (folder / "other.bin").write_bytes(b"\1" * 33)
    job["data"]["train"] = {"tokens": {}, "per_rank": ["train.bin", "other.bin"]}
    return job
