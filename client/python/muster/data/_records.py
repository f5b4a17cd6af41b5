"""Records of data files, in chunks that a worker process can take (_encode.py).

A record is one example: a line of JSON, an element of a list of JSON, or a row of a table. """

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

# The limits of a chunk. A record that is larger is a chunk of its own.
_BYTES = 1 << 20
_RECORDS = 1000
# The limits, for journals that count chunks.
LIMITS = (_BYTES, _RECORDS)


class RecordError(Exception):
    """A record that cannot be read, or that a chat template refuses."""


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Records that follow one another in a file."""

    source: str
    # The place of the first record for people, counted from 1: a line, an element, or a row.
    unit: str
    first: int
    # The number of records; blank lines are counted, too.
    count: int
    # "lines": the bytes of lines. "arrow": a table in Arrow's format of streams. "objects": a list.
    kind: str
    payload: Any
    # The bytes of all files up to the end of this chunk, as a measure of progress.
    passed: int


# What a line without anything is; `null` is a record.
_BLANK = object()


def records_of(chunk: Chunk) -> Iterator[tuple[str, Any]]:
    """Yields the place of each record, such as "a.jsonl: line 7", and the record, which is a
    RecordError if it cannot be read. Blank lines are left out."""
    for number, found in enumerate(_decoded(chunk), chunk.first):
        if found is not _BLANK:
            yield f"{chunk.source}: {chunk.unit} {number}", found


def _decoded(chunk: Chunk) -> Iterable[Any]:
    if chunk.kind == "lines":
        return map(_record_of_line, chunk.payload.split(b"\n"))
    if chunk.kind == "arrow":
        import pyarrow

        with pyarrow.ipc.open_stream(chunk.payload) as stream:
            return list(_rows_of(stream.read_all()))
    return chunk.payload  # type: ignore[no-any-return]


def _rows_of(table: Any) -> Iterator[Any]:
    for at in range(table.num_rows):
        try:
            yield _without_nothing(table.slice(at, 1).to_pylist()[0])
        except UnicodeDecodeError as error:
            yield RecordError(f"no text in UTF-8: {error.reason} at byte {error.start} of a text")


def _without_nothing(value: Any) -> Any:
    """Returns a value without the fields that hold nothing: a table gives every message every
    field that one of them has."""
    if isinstance(value, dict):
        return {key: _without_nothing(one) for key, one in value.items() if one is not None}
    return [_without_nothing(one) for one in value] if isinstance(value, list) else value


def _record_of_line(line: bytes) -> Any:
    if not line or line.isspace():
        return _BLANK
    try:
        return json.loads(line)
    except UnicodeDecodeError as error:
        return RecordError(f"no text in UTF-8: {error.reason} at byte {error.start} of the line")
    except (ValueError, RecursionError) as error:
        return RecordError(f"no JSON: {error}")


def chunks_of_files(paths: Iterable[str | os.PathLike[str]]) -> Iterator[Chunk]:
    """Yields the records of files, one file after the other. ValueError, with the file's name: a
    file of another kind."""
    before = 0
    for given in paths:
        path = pathlib.Path(given)
        try:
            for chunk in _reader(path)(path):
                yield dataclasses.replace(chunk, passed=before + chunk.passed)
        except ValueError as error:  # also of pyarrow, and of texts that are not UTF-8
            named = str(error).startswith(str(path))
            raise ValueError(str(error) if named else f"{path}: {error}") from error
        before += path.stat().st_size


def chunks_of_records(records: Iterable[Any]) -> Iterator[Chunk]:
    passed = 0

    def sized() -> Iterator[tuple[Any, int]]:
        nonlocal passed
        for record in records:
            passed += _size(record)
            yield record, passed

    for chunk in _batched(pathlib.Path("records"), "record", sized()):
        yield dataclasses.replace(chunk, passed=0)


def _size(value: Any) -> int:
    """Returns about how many bytes a value takes."""
    if isinstance(value, (str, bytes)):
        return len(value)
    if isinstance(value, dict):
        return sum(_size(one) for one in value.values())
    if isinstance(value, (list, tuple)):
        return sum(_size(one) for one in value)
    return 8


def _reader(path: pathlib.Path) -> Callable[[pathlib.Path], Iterator[Chunk]]:
    readers: dict[str, Callable[[pathlib.Path], Iterator[Chunk]]] = {
        ".jsonl": _lines,
        ".ndjson": _lines,
        ".json": _json,
        ".csv": lambda path: _table(path, ","),
        ".tsv": lambda path: _table(path, "\t"),
        ".parquet": _parquet,
        ".arrow": _arrow,
        ".feather": _arrow,
    }
    found = readers.get(path.suffix.lower())
    if found is None:
        more = " (unpack it first)" if path.suffix.lower() in (".gz", ".zst", ".xz", ".bz2") else ""
        raise ValueError(
            f"{path}: expected a file with one of the endings {', '.join(readers)}, found "
            f"{path.suffix or 'no ending'}{more}"
        )
    return found


def _lines(path: pathlib.Path) -> Iterator[Chunk]:
    first = 1
    passed = 0
    with path.open("rb") as file:
        if file.read(3) == b"\xef\xbb\xbf":  # the mark of UTF-8 that some programs write
            passed = 3
        file.seek(passed)
        while content := file.read(_BYTES):
            content += file.readline() if not content.endswith(b"\n") else b""
            passed += len(content)
            text = content[:-1] if content.endswith(b"\n") else content
            count = text.count(b"\n") + 1
            yield Chunk(str(path), "line", first, count, "lines", text, passed)
            first += count


def _json(path: pathlib.Path) -> Iterator[Chunk]:
    """Reads a list of objects, or lines under the name of .json."""
    start = b""
    with path.open("rb") as file:
        while not start and (part := file.read(4096)):
            start = part.lstrip(b"\xef\xbb\xbf \t\r\n")
    if not start.startswith(b"["):
        return _lines(path)
    return _batched(path, "element", _elements(path))


def _elements(path: pathlib.Path) -> Iterator[tuple[Any, int]]:
    """Yields the elements of a list in a file, which is not read as a whole, with the number of
    characters up to the end of each."""
    decoder = json.JSONDecoder()
    with path.open(encoding="utf-8-sig") as file:
        text, at, passed = "", 0, 0

        def more() -> bool:
            nonlocal text, at, passed
            added = file.read(max(_BYTES, len(text) - at))  # a long element is not read over often
            passed += at
            text, at = text[at:] + added, 0
            return bool(added)

        def next_sign() -> str:
            nonlocal at
            while True:
                while at < len(text) and text[at] in " \t\r\n":
                    at += 1
                if at < len(text):
                    return text[at]
                if not more():
                    raise ValueError(f"{path}: the list ends without a ]")

        number = 0
        next_sign()
        at += 1  # the [
        while next_sign() != "]":
            number += 1
            while True:
                try:
                    element, end = decoder.raw_decode(text, at)
                    # A number at the end of what was read may go on.
                    if end < len(text) or not more():
                        break
                except json.JSONDecodeError as error:
                    # What is wrong far before the end of what was read stays wrong.
                    cut = error.pos > len(text) - 16 or error.msg.startswith("Unterminated")
                    if not cut or not more():
                        raise ValueError(f"{path}: element {number}: no JSON: {error}") from error
            at = end
            yield element, passed + at
            if next_sign() == ",":
                at += 1
            elif text[at] != "]":
                raise ValueError(
                    f"{path}: after element {number}: expected , or ], found {text[at]!r}"
                )
        at += 1  # the ]
        while text[at:].isspace() or at == len(text):
            at = len(text)
            if not more():
                return
        rest = text[at:].strip()[:20]
        raise ValueError(f"{path}: after the list: expected nothing, found {rest!r}")


def _table(path: pathlib.Path, delimiter: str) -> Iterator[Chunk]:
    csv.field_size_limit(1 << 30)
    with path.open("rb") as raw, io.TextIOWrapper(raw, "utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter=delimiter, strict=True)

        def rows() -> Iterator[tuple[Any, int]]:
            try:
                names = next(reader, [])
                if len(set(names)) < len(names):
                    raise ValueError(f"{path}: line 1: a field appears twice: {', '.join(names)}")
                for row in reader:
                    if len(names) == 1 and not row:
                        row = [""]  # an empty line is the only field of this row
                    if not row:
                        continue
                    if len(row) == len(names):
                        yield dict(zip(names, row, strict=True)), raw.tell()
                    else:
                        yield RecordError(
                            f"expected {len(names)} fields as in the first line, found {len(row)}"
                        ), raw.tell()
            except (csv.Error, UnicodeDecodeError) as error:
                raise ValueError(f"{path}: line {reader.line_num + 1}: {error}") from error

        yield from _batched(path, "row", rows())


def _batched(path: pathlib.Path, unit: str, found: Iterator[tuple[Any, int]]) -> Iterator[Chunk]:
    first = 1
    begin = 0
    some: list[Any] = []
    for record, passed in found:
        some.append(record)
        if len(some) == _RECORDS or passed - begin >= _BYTES:
            yield Chunk(str(path), unit, first, len(some), "objects", some, passed)
            first, begin, some = first + len(some), passed, []
    if some:
        yield Chunk(str(path), unit, first, len(some), "objects", some, begin)


def _parquet(path: pathlib.Path) -> Iterator[Chunk]:
    parquet = _pyarrow(path, "parquet")
    with parquet.ParquetFile(path) as file:
        meta = file.metadata
        bytes_ = sum(meta.row_group(at).total_byte_size for at in range(meta.num_row_groups))
        rows = max(1, min(_RECORDS, _BYTES * meta.num_rows // max(1, bytes_)))
        yield from _tables(path, file.iter_batches(rows), meta.num_rows)


def _arrow(path: pathlib.Path) -> Iterator[Chunk]:
    """Reads both formats of Arrow: files, and streams, as `datasets` writes them."""
    ipc = _pyarrow(path, "ipc")
    with path.open("rb") as file:
        is_file = file.read(6) == b"ARROW1"
        file.seek(0)
        if is_file:
            reader = ipc.open_file(file)
            found = (reader.get_batch(index) for index in range(reader.num_record_batches))
        else:
            found = iter(ipc.open_stream(file))
        for chunk in _tables(path, found, 0):
            yield dataclasses.replace(chunk, passed=file.tell())


def _tables(path: pathlib.Path, batches: Iterable[Any], rows: int) -> Iterator[Chunk]:
    import pyarrow

    first = 1
    for batch in batches:
        size = max(1, min(_RECORDS, _BYTES * batch.num_rows // max(1, batch.nbytes)))
        for begin in range(0, batch.num_rows, size):
            some = batch.slice(begin, size)
            sink = pyarrow.BufferOutputStream()
            with pyarrow.ipc.new_stream(sink, some.schema) as writer:
                writer.write_batch(some)
            count = some.num_rows
            passed = path.stat().st_size * (first - 1 + count) // rows if rows else 0
            payload = sink.getvalue().to_pybytes()
            yield Chunk(str(path), "row", first, count, "arrow", payload, passed)
            first += count


def _pyarrow(path: pathlib.Path, module: str) -> Any:
    try:
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(f"{path} needs the package pyarrow (`pip install pyarrow`)") from error
    return getattr(pyarrow, module)
