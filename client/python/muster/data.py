"""Training data for jobs, made with the tokenizers of Hugging Face.

    made = muster.data.pack("tokenizer.json", files=["a.txt", "b.txt"], out="train.bin")
    made.tokens, made.dtype, made.vocab_size

The file is a plain list of token numbers, as the job file's `data: {train: {tokens: ...}}` names it
(docs/data.md). Beside it lies `train.bin.tokenizer.json`, which says with which tokenizer it was
made. Needs the package `tokenizers`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import tempfile
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy
import xxhash

if TYPE_CHECKING:
    import tokenizers

# Texts that are tokenized at a time.
_BATCH = 1000


@dataclasses.dataclass(frozen=True)
class Packed:
    """A file of tokens."""

    path: pathlib.Path
    # How many tokens it has.
    tokens: int
    # "uint16" or "uint32", as `data.train.tokens.dtype` of the job file.
    dtype: str
    # The smallest `vocab_size` that a model for these tokens may have.
    vocab_size: int
    # The 128-bit XXH3 hash of the tokenizer's file.
    tokenizer_xxh3_128: str


def pack(
    tokenizer: str | os.PathLike[str],
    *,
    out: str | os.PathLike[str],
    texts: Iterable[str] | None = None,
    files: Iterable[str | os.PathLike[str]] | None = None,
    dataset: Any = None,
    column: str = "text",
    separator: str | None = None,
    overwrite: bool = False,
) -> Packed:
    """Makes a file of tokens from texts, which are tokenized one by one and laid end to end.

    tokenizer: the path of a tokenizer.json.
    texts, files, dataset: one of them. texts: strings. files: paths of files in UTF-8, each one
        text. dataset: a datasets.Dataset, of which each row's `column` is a text.
    out: the file. It is complete, or it is not there.
    separator: a token that is added after each text, such as "<|endoftext|>".
    overwrite: replace `out` if it exists.

    ValueError: a wrong argument, or no text has a token. FileExistsError: `out` exists."""
    sources = {"texts": texts, "files": files, "dataset": dataset}
    given = [name for name, value in sources.items() if value is not None]
    if len(given) != 1:
        raise ValueError(f"give one of texts, files and dataset; found {given or 'none'}")
    out = pathlib.Path(out)
    if out.exists() and not overwrite:
        raise FileExistsError(f"{out} exists; overwrite=True replaces it")
    content = pathlib.Path(tokenizer).read_bytes()
    model = _load(tokenizer, content)
    vocab_size = model.get_vocab_size(with_added_tokens=True)
    after: list[int] = []
    if separator is not None:
        number = model.token_to_id(separator)
        if number is None:
            raise ValueError(f"separator: the tokenizer has no token {separator!r}")
        after = [number]
    dtype = numpy.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")
    if files is not None:
        texts = (pathlib.Path(path).read_text(encoding="utf-8") for path in files)
    elif dataset is not None:
        texts = (row[column] for row in dataset)

    count = 0
    with _Replacing(out) as file:
        for batch in _batches(texts):
            for encoded in model.encode_batch(batch, add_special_tokens=False):
                tokens = numpy.array(encoded.ids + after, dtype)
                file.write(tokens.tobytes())
                count += len(tokens)
        if count == 0:
            raise ValueError("the texts have no token")
    packed = Packed(
        path=out,
        tokens=count,
        dtype={2: "uint16", 4: "uint32"}[dtype.itemsize],
        vocab_size=vocab_size,
        tokenizer_xxh3_128=xxhash.xxh3_128_hexdigest(content),
    )
    with _Replacing(out.with_name(out.name + ".tokenizer.json")) as file:
        file.write(
            json.dumps(
                {
                    "format": "muster-tokens",
                    "tokens": packed.tokens,
                    "dtype": packed.dtype,
                    "vocab_size": packed.vocab_size,
                    "tokenizer": {
                        "path": os.path.abspath(tokenizer),
                        "xxh3_128": packed.tokenizer_xxh3_128,
                    },
                },
                indent=1,
            ).encode()
            + b"\n"
        )
    return packed


def _load(path: str | os.PathLike[str], content: bytes) -> tokenizers.Tokenizer:
    try:
        import tokenizers
    except ImportError as error:
        raise ImportError(
            "muster.data.pack needs the package tokenizers (`pip install tokenizers`)"
        ) from error
    try:
        return tokenizers.Tokenizer.from_str(content.decode())
    except Exception as error:  # the package raises plain Exceptions
        raise ValueError(f"{os.fspath(path)} is no tokenizer of the package tokenizers: {error}")


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    for text in texts:
        batch.append(text)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


class _Replacing:
    """A file that takes its place only when all of it is on the disk."""

    def __init__(self, path: pathlib.Path):
        self._path = path

    def __enter__(self):
        self._file = tempfile.NamedTemporaryFile(
            dir=self._path.parent, prefix=f".{self._path.name}.", suffix=".tmp", delete=False
        )
        return self._file

    def __exit__(self, kind, *_) -> None:
        try:
            if kind is None:
                self._file.flush()
                os.fsync(self._file.fileno())
                os.chmod(self._file.name, 0o644)
                os.replace(self._file.name, self._path)
        finally:
            self._file.close()
            pathlib.Path(self._file.name).unlink(missing_ok=True)
