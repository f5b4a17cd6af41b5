"""Plain lists of token numbers (docs/reference/data.md, "Tokens")."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
from collections.abc import Iterable, Iterator
from typing import IO, Any

import numpy
import xxhash

from muster.data import _tokenizer
from muster.data._staged import Staged, check_targets

# The limits of one call of the tokenizer: at most so many texts, and no further text after so many
# characters.
_BATCH_TEXTS = 1000
_BATCH_CHARACTERS = 16 << 20


@dataclasses.dataclass(frozen=True)
class Packed:
    """A file of tokens."""

    path: pathlib.Path
    # The number of tokens in the file.
    tokens: int
    # "uint16" or "uint32", for `data.train.tokens.dtype` of the job file.
    dtype: str
    # The smallest `vocab_size` that a model for these tokens may have.
    vocab_size: int
    # The 128-bit XXH3 hash of the tokenizer's file.
    tokenizer_xxh3_128: str
    # The entropy of the tokens' frequencies, in nats per token: the loss of a model that knows only
    # these frequencies.
    unigram_entropy: float
    # The file of the other tokens, with `split`.
    rest: Packed | None = None


def pack(
    tokenizer: str | os.PathLike[str],
    *,
    out: str | os.PathLike[str],
    texts: Iterable[str] | None = None,
    files: Iterable[str | os.PathLike[str]] | None = None,
    dataset: Any = None,
    column: str = "text",
    separator: str | None = None,
    split: float | None = None,
    out_rest: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
) -> Packed:
    """Makes a file of tokens from texts. The texts are tokenized one by one and joined.

    tokenizer: the path of a tokenizer.json.
    texts, files, dataset: one of them. texts: strings. files: paths of files in UTF-8, each one
        text. dataset: a datasets.Dataset; the `column` of each row is a text.
    out: the file, which only exists when it is complete.
    separator: a token that is added after each text, such as "<|endoftext|>".
    split, out_rest: only this part of the tokens, such as 0.9, goes to `out`; the other tokens go
        to `out_rest`.
    overwrite: replace files that exist.

    Each single text must fit into memory, together with its tokens. Limits of length and padding in
    the tokenizer's file do not apply.

    ValueError: a wrong argument, a file that is not UTF-8, or a result without any token.
    FileExistsError: a file, or the description beside it, exists, or is no regular file (which is
    never replaced)."""
    sources = {"texts": texts, "files": files, "dataset": dataset}
    given = [name for name, value in sources.items() if value is not None]
    if len(given) != 1:
        raise ValueError(f"give one of texts, files and dataset; found {given or 'none'}")
    if (split is None) != (out_rest is None):
        raise ValueError("split and out_rest belong together; found one of them")
    if split is not None and not 0 < split < 1:
        raise ValueError(f"split: expected a number above 0 and below 1, found {split}")
    targets = [pathlib.Path(path) for path in (out, out_rest) if path is not None]
    files = None if files is None else list(files)
    written = [path for target in targets for path in (target, _sidecar(target))]
    check_targets(written, [tokenizer, *(files or ())], overwrite)
    content = pathlib.Path(tokenizer).read_bytes()
    model = _tokenizer.load(tokenizer, content)
    vocab_size = _tokenizer.vocab_size(model)
    after: list[int] = []
    if separator is not None:
        number = model.token_to_id(separator)
        if number is None:
            raise ValueError(f"separator: the tokenizer has no token {separator!r}")
        after = [number]
    dtype = numpy.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")
    if files is not None:
        texts = map(_text_of, files)
    elif dataset is not None:
        texts = (row[column] for row in dataset)

    with contextlib.ExitStack() as stack:
        staged = [stack.enter_context(Staged(path)) for path in targets]
        for batch in _batches(() if texts is None else texts):
            for encoded in model.encode_batch(batch, add_special_tokens=False):
                staged[0].file.write(numpy.array(encoded.ids + after, dtype).tobytes())
        if split is not None:
            tokens = staged[0].file.tell() // dtype.itemsize
            _move_tail(staged[0].file, int(tokens * split) * dtype.itemsize, staged[1].file)
        made = [
            Packed(
                path=one.path,
                tokens=one.file.tell() // dtype.itemsize,
                dtype={2: "uint16", 4: "uint32"}[dtype.itemsize],
                vocab_size=vocab_size,
                tokenizer_xxh3_128=xxhash.xxh3_128_hexdigest(content),
                unigram_entropy=_entropy(one.file, dtype, vocab_size),
            )
            for one in staged
        ]
        for packed in made:
            if packed.tokens == 0:
                raise ValueError(f"{packed.path} would have no token")
        for one in staged:
            one.sync()
        for one, packed in zip(staged, made, strict=True):
            # An older description must not stand beside the new tokens.
            sidecar = _sidecar(one.path)
            sidecar.unlink(missing_ok=True)
            one.publish()
            with Staged(sidecar) as description:
                description.file.write(_describe(packed, tokenizer))
                description.sync()
                description.publish()
    return dataclasses.replace(made[0], rest=made[1] if len(made) > 1 else None)


def _sidecar(path: pathlib.Path) -> pathlib.Path:
    return path.with_name(path.name + ".tokenizer.json")


def _text_of(path: str | os.PathLike[str]) -> str:
    """Returns the exact contents of the file: line ends are not translated."""
    content = pathlib.Path(path).read_bytes()
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{os.fspath(path)} is no text in UTF-8: found 0x{content[error.start]:02x} at byte "
            f"{error.start} ({error.reason})"
        ) from error


def _describe(packed: Packed, tokenizer: str | os.PathLike[str]) -> bytes:
    """Writes the sidecar (common/tokenizer/sidecar.h)."""
    description = {
        "format": "muster-tokens",
        "tokens": packed.tokens,
        "dtype": packed.dtype,
        "vocab_size": packed.vocab_size,
        "tokenizer": {
            "path": os.path.abspath(tokenizer),
            "xxh3_128": packed.tokenizer_xxh3_128,
        },
    }
    return json.dumps(description, indent=1).encode() + b"\n"


def _move_tail(source: IO[bytes], begin: int, target: IO[bytes]) -> None:
    source.seek(begin)
    shutil.copyfileobj(source, target)
    source.seek(begin)
    source.truncate()


def _entropy(file: IO[bytes], dtype: numpy.dtype, vocab_size: int) -> float:
    """Returns the entropy of the tokens in a file. Leaves the file's position at its end."""
    counts = numpy.zeros(vocab_size, numpy.int64)
    file.seek(0)
    while chunk := file.read(1 << 22):
        counts += numpy.bincount(numpy.frombuffer(chunk, dtype), minlength=vocab_size)
    share = counts[counts > 0] / max(1, counts.sum())
    return float(-(share * numpy.log(share)).sum())


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    characters = 0
    for text in texts:
        if not isinstance(text, str):
            raise ValueError(f"texts: expected strings, found {text!r}")
        batch.append(text)
        characters += len(text)
        if len(batch) == _BATCH_TEXTS or characters >= _BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch
