"""Files of documents, with a mark for each token that is trained (docs/reference/data.md)."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import hashlib
import importlib.metadata
import os
import pathlib
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import xxhash

from muster._version import VERSION as __version__
from muster.data import _encode, _records, _shapes, _tokenizer
from muster.data._bar import Bar
from muster.data._format import FORMAT, VERSION, describe
from muster.data._parts import Journal, Parts
from muster.data._report import NAMED, Report
from muster.data._staged import Staged, check_targets
from muster.data._workers import Workers

# The seconds between two entries of the journal.
_NOTED = 5.0


def pack_documents(
    tokenizer: str | os.PathLike[str],
    *,
    out: str | os.PathLike[str],
    files: Iterable[str | os.PathLike[str]] | None = None,
    records: Iterable[Mapping[str, Any]] | None = None,
    shape: str | None = None,
    columns: Mapping[str, str] | None = None,
    train: str | None = None,
    chat_template: str | os.PathLike[str] | None = None,
    end: str | None = None,
    context: int | None = None,
    longer: str | None = None,
    allow_untrained: float = 0.01,
    split: float | None = None,
    out_rest: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    processes: int | None = None,
    progress: bool = False,
) -> Report:
    """Makes a file of documents: tokens, with a mark for each that is trained.

    tokenizer: the folder of a model or tokenizer, or a tokenizer.json. The chat template and the
        special tokens are read from the files beside it.
    files, records: one of them. files: .json, .jsonl, .csv, .tsv, .parquet and .arrow. records:
        mappings, such as a datasets.Dataset.
    shape: "messages", "sharegpt", "prompt", "alpaca" or "text"; without it, the first record says.
    columns: fields with other names: {"text": "body"}.
    train: what is trained: "assistant" (all turns of the assistant; for conversations), "last" (the
        last turn, if it is the assistant's), "completion" (what comes after the prompt; for
        prompts, and the same as "all" for texts), "all".
    chat_template: a file with a template, in place of the tokenizer's.
    end: the token after a text; without it the tokenizer's end token; "": none. Only for texts:
        chat templates write their own.
    context: the context of the model: a document has at most one token more.
    longer: what becomes of longer documents: "cut" (the default for conversations and prompts),
        "split" into several (the default for texts), "drop".
    allow_untrained: the share of records without any trained token that may be left out.
    split, out_rest: this share of the records goes to `out`, the others to `out_rest`. Which goes
        where depends only on the number of the record.
    processes: the number of processes that make tokens; without it one for each processor.
    progress: draw a bar on the standard error (with the package tqdm).

    If a run is ended before it is complete, the next run with the same files and settings goes on
    where it was.

    ValueError: a wrong argument, a record that cannot be read, or too many records without trained
    tokens: nothing is made. FileExistsError: a file exists. RuntimeError: a process that makes
    tokens has ended."""
    if (files is None) == (records is None):
        raise ValueError("give one of files and records")
    if (split is None) != (out_rest is None):
        raise ValueError("split and out_rest belong together; found one of them")
    if split is not None and not 0 < split < 1:
        raise ValueError(f"split: expected a number above 0 and below 1, found {split}")
    if not 0 <= allow_untrained <= 1:
        raise ValueError(f"allow_untrained: expected a share of 0 to 1, found {allow_untrained}")
    for name, value, allowed in (
        ("shape", shape, _shapes.SHAPES),
        ("train", train, _encode.TRAINED),
        ("longer", longer, _encode.LONGER),
    ):
        if value is not None and value not in allowed:
            raise ValueError(f"{name}: expected one of {', '.join(allowed)}, found {value!r}")
    for name, number in (("context", context), ("processes", processes)):
        if number is not None and number < 1:
            raise ValueError(f"{name}: expected at least 1, found {number}")
    if longer is not None and context is None:
        raise ValueError("longer says what becomes of documents beyond the context; give context")
    _shapes.check_columns(columns or {}, shape)
    paths = None if files is None else [pathlib.Path(one) for one in files]
    targets = [pathlib.Path(path) for path in (out, out_rest) if path is not None]
    check_targets(targets, [tokenizer, *(paths or ())], overwrite)
    source = _tokenizer.read(tokenizer, chat_template)

    chunks = _chunks(paths, records)
    first = next(chunks, None)
    if first is None:
        raise ValueError("there is no record")
    example, found = _first_shape(first, columns or {}, shape)
    settings = _settings(source, found, example, train, end, context, longer)
    if chat_template is not None and found.name == "text":
        raise ValueError("chat_template is for conversations, and the records are texts")
    encoder = _encode.Encoder(settings)  # says what is wrong before anything starts
    report = Report(
        shape=found.name,
        train=settings.train,
        ignored=found.unused(example),
        dtype={2: "uint16", 4: "uint32"}[settings.dtype(encoder.vocab_size).itemsize],
        vocab_size=encoder.vocab_size,
        tokenizer_xxh3_128=xxhash.xxh3_128_hexdigest(source.content),
    )
    fingerprint = None
    if paths is not None:
        fingerprint = _fingerprint(paths, settings, split, [str(path) for path in targets])
    journal = Journal(targets[0], fingerprint, len(targets))
    keep = paths is not None
    began = time.monotonic()
    try:
        if journal.state:
            report = Report(**journal.state["report"])
            report.continued = report.records
            settings = dataclasses.replace(
                settings, date=datetime.date.fromisoformat(journal.state["date"])
            )
        total = sum(path.stat().st_size for path in paths or ())
        with Workers(processes or _processors(), settings) as workers:
            _run(workers, chunks, first, journal, report, settings, split, Bar(progress, total))
        share = report.untrained / max(1, report.records)
        if share > allow_untrained:
            # More may be allowed next time, and then nothing needs to be done again.
            worth = paths is not None and time.monotonic() - began > _NOTED
            if worth:
                journal.note(_state(report, settings, None))
            raise _TooManyUntrained(
                worth,
                f"{report.untrained} of {report.records} records ({share:.1%}) have no trained "
                f"token, and at most {allow_untrained:.1%} may have none (--allow-untrained):\n  "
                + "\n  ".join(report.untrained_first),
            )
        _publish(report, settings, journal.parts, targets, context, allow_untrained)
        keep = False
    except ValueError as error:
        keep = isinstance(error, _TooManyUntrained) and error.keep
        raise
    finally:
        journal.close(remove=not keep)
    return report


class _TooManyUntrained(ValueError):
    def __init__(self, keep: bool, message: str):
        super().__init__(message)
        self.keep = keep  # what was done is kept


def _settings(
    source: _tokenizer.TokenizerFiles,
    shape: _shapes.Shape,
    example: Any,
    train: str | None,
    end: str | None,
    context: int | None,
    longer: str | None,
) -> _encode.Settings:
    text = shape.name == "text"
    if train is None:
        train = {"text": "all", "prompt": "completion"}.get(shape.name, "assistant")
    if train in ("assistant", "last") and shape.name in ("text", "prompt"):
        raise ValueError(f"train: {train} is for conversations, and the records are {shape.name}")
    if train == "completion" and shape.name not in ("text", "prompt"):
        raise ValueError(f"train: completion is for prompts; the records are {shape.name}")
    if longer is None:
        longer = "split" if text else "cut"
    try:
        plain = isinstance(shape.read(example), _shapes.Text)
    except _records.RecordError:  # it will be named with all others
        plain = shape.name == "text"
    if plain:
        if end is None and source.end is None:
            raise ValueError(
                f"{source.path} names no token that ends a text (`eos_token` in "
                "tokenizer_config.json beside it); name one (--separator TOKEN), or say that texts "
                'have none (--separator "")'
            )
    elif end is not None:
        raise ValueError("end (--separator) is for texts; a chat template writes its own tokens")
    return _encode.Settings(
        files=source,
        shape=shape,
        train=train,
        limit=0 if context is None else context + 1,
        longer=longer,
        end=(source.end or "") if end is None else end,
        date=datetime.date.today(),
    )


def _processors() -> int:
    return len(os.sched_getaffinity(0))


def _chunks(
    paths: list[pathlib.Path] | None, records: Iterable[Any] | None
) -> Iterator[_records.Chunk]:
    if paths is not None:
        return _records.chunks_of_files(paths)
    return _records.chunks_of_records(records or ())


def _first_shape(
    chunk: _records.Chunk, columns: Mapping[str, str], wanted: str | None
) -> tuple[Any, _shapes.Shape]:
    """Returns the first record that shows a shape, and the shape."""
    first: ValueError | None = None
    for place, record in _records.records_of(chunk):
        if isinstance(record, _records.RecordError):
            raise ValueError(f"{place}: {record}")
        try:
            return record, _shapes.recognise(record, columns, wanted)
        except _records.RecordError as error:
            first = first or ValueError(f"{place}: {error}")
    raise first or ValueError(f"{chunk.source}: there is no record")


def _fingerprint(
    paths: list[pathlib.Path], settings: _encode.Settings, split: float | None, out: list[str]
) -> str:
    """Returns a text that differs if another file would be made."""
    about = dataclasses.asdict(dataclasses.replace(settings, date=datetime.date.min))
    inputs = [
        [os.path.abspath(path), status.st_size, status.st_mtime_ns]
        for path in paths
        for status in [path.stat()]
    ]
    programs = [
        VERSION,
        __version__,
        importlib.metadata.version("tokenizers"),
        importlib.metadata.version("jinja2") if _has_template(settings) else "",
        _records.LIMITS,
    ]
    return hashlib.sha256(repr([programs, about, inputs, split, out]).encode()).hexdigest()


def _has_template(settings: _encode.Settings) -> bool:
    return settings.shape.name != "text" and settings.files.chat_template is not None


def _state(report: Report, settings: _encode.Settings, chunks: int | None) -> dict[str, Any]:
    """Returns what a journal notes. chunks: the number that is done; None: all."""
    return {
        "chunks": chunks,
        "report": dataclasses.asdict(report),
        "date": settings.date.isoformat(),
    }


def _run(
    workers: Workers,
    chunks: Iterator[_records.Chunk],
    first: _records.Chunk,
    journal: Journal,
    report: Report,
    settings: _encode.Settings,
    split: float | None,
    bar: Bar,
) -> None:
    """Encodes all chunks that the journal does not have yet."""
    done = journal.state.get("chunks", 0)
    if done is None:
        return
    damaged: list[str] = []

    def left() -> Iterator[_records.Chunk]:
        for number, chunk in enumerate(_with_first(first, chunks)):
            if number >= done:
                yield chunk

    noted = time.monotonic()
    finished = done
    with bar:
        for chunk, encoded in workers.encode(left()):
            damaged += [f"{place}: {why}" for place, why in encoded.damaged]
            if len(damaged) >= NAMED:
                break
            _append(journal.parts, report, encoded, split)
            report.add(encoded, settings.date)
            finished += 1
            bar.reach(chunk.passed, report.records)
            # A run that goes on must find the damaged records again.
            if time.monotonic() - noted > _NOTED and not damaged:
                journal.note(_state(report, settings, finished))
                noted = time.monotonic()
    if damaged:
        count = len(damaged[:NAMED])
        some = f"{count} or more" if count == NAMED else str(count)
        raise ValueError(
            f"{some} record{'s' * (count > 1)} cannot be read:\n  " + "\n  ".join(damaged[:NAMED])
        )


def _with_first(
    first: _records.Chunk, others: Iterator[_records.Chunk]
) -> Iterator[_records.Chunk]:
    yield first
    yield from others


def _append(
    parts: list[Parts], report: Report, encoded: _encode.Encoded, split: float | None
) -> None:
    if split is None:
        parts[0].append(encoded.tokens, encoded.trained, encoded.lengths)
        return
    width = len(encoded.tokens) // max(1, len(encoded.trained))
    at = 0
    for length, origin in zip(encoded.lengths, encoded.origins, strict=True):
        number = xxhash.xxh3_64_intdigest((report.records + origin).to_bytes(8, "little"))
        part = parts[0 if number < split * 2.0**64 else 1]
        end = at + length
        part.append(encoded.tokens[at * width : end * width], encoded.trained[at:end], [length])
        at = end


def _publish(
    report: Report,
    settings: _encode.Settings,
    parts: list[Parts],
    targets: list[pathlib.Path],
    context: int | None,
    allow_untrained: float,
) -> None:
    metadata = {
        "format": FORMAT,
        "version": VERSION,
        "shape": report.shape,
        "train": report.train,
        "vocab_size": str(report.vocab_size),
        "tokenizer": os.path.abspath(settings.files.path),
        "tokenizer_xxh3_128": report.tokenizer_xxh3_128,
        "records": str(report.records),
        "untrained": str(report.untrained),
        "allow_untrained": str(allow_untrained),
        "longer": f"{report.longer} {settings.longer}" if context is not None else "",
        "context": "" if context is None else str(context),
        "date": report.date,
    }
    for part, path in zip(parts, targets, strict=True):
        if part.documents == 0:
            raise ValueError(f"{path} would have no document")
    with contextlib.ExitStack() as stack:
        staged = [stack.enter_context(Staged(path)) for path in targets]
        for part, file in zip(parts, staged, strict=True):
            part.join(file, {"uint16": "U16", "uint32": "U32"}[report.dtype], metadata)
            file.sync()
        for file in staged:
            file.publish()
    report.files += [describe(path) for path in targets]
