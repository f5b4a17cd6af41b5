"""Documents of a file as texts, with what is trained."""

from __future__ import annotations

import dataclasses
import os
import random
from typing import Any

import numpy
import xxhash

from muster.data import _tokenizer
from muster.data._format import open_documents


@dataclasses.dataclass(frozen=True)
class Part:
    """Tokens of a document that follow one another, all of them trained or none."""

    text: str
    tokens: int
    trained: bool


@dataclasses.dataclass(frozen=True)
class Document:
    number: int
    parts: list[Part]


def show_documents(
    path: str | os.PathLike[str],
    *,
    documents: list[int] | None = None,
    count: int = 5,
    seed: int = 0,
) -> list[Document]:
    """Returns documents of a file that `pack_documents` has made: those with these numbers, or
    `count` others by chance.

    A character whose tokens are only partly trained appears as U+FFFD in both parts. ValueError: no
    file of documents, no such document, or its tokenizer's file is another one now."""
    opened = open_documents(path)
    bounds = opened["bounds"]
    total = len(bounds) - 1
    if documents is None:
        documents = sorted(random.Random(seed).sample(range(total), min(count, total)))
    for number in documents:
        if not 0 <= number < total:
            raise ValueError(f"{os.fspath(path)} has the documents 0 to {total - 1}; no {number}")
    model = _tokenizer_of(path, opened["metadata"])
    return [
        Document(number, _parts(model, opened, bounds[number], bounds[number + 1]))
        for number in documents
    ]


def _tokenizer_of(path: str | os.PathLike[str], metadata: dict[str, str]) -> Any:
    source = metadata["tokenizer"]
    with open(source, "rb") as file:
        content = file.read()
    if xxhash.xxh3_128_hexdigest(content) != metadata["tokenizer_xxh3_128"]:
        raise ValueError(f"{source} has changed since {os.fspath(path)} was made with it")
    return _tokenizer.load(source, content)


def _parts(model: Any, opened: dict[str, Any], begin: int, end: int) -> list[Part]:
    tokens, trained = opened["tokens"][begin:end], opened["trained"][begin:end]
    edges = [0, *(numpy.flatnonzero(numpy.diff(trained)) + 1).tolist(), len(tokens)]
    return [
        Part(
            model.decode(tokens[first:last].tolist(), skip_special_tokens=False),
            last - first,
            bool(trained[first]),
        )
        for first, last in zip(edges, edges[1:], strict=False)
        if first < last
    ]
