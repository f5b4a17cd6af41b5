"""The programs behind `muster data pack` and `muster data show` (client/cli/python/run_python.h):

    python -m muster.data pack OPTIONS | documents OPTIONS | show OPTIONS

Each prints one JSON object: its result, or `error` and its `kind`."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable
from typing import Any

from muster import data
from muster._answer import Parser, answered


def _pack(options: argparse.Namespace) -> dict[str, Any]:
    packed = data.pack(
        options.tokenizer,
        files=options.inputs,
        out=options.out,
        separator=options.separator,
        split=options.split,
        out_rest=options.out_rest,
        overwrite=True,
    )
    made = [packed] if packed.rest is None else [packed, packed.rest]
    keys = ("path", "tokens", "dtype", "unigram_entropy")
    return {"files": [{key: getattr(one, key) for key in keys} for one in made]}


def _documents(options: argparse.Namespace) -> dict[str, Any]:
    columns = {}
    for given in options.column or ():
        name, equals, field = given.partition("=")
        if not equals:
            raise ValueError(f"--column {given}: expected NAME=FIELD, such as text=body")
        columns[name] = field
    report = data.pack_documents(
        options.tokenizer,
        files=options.inputs,
        out=options.out,
        shape=options.shape,
        columns=columns,
        train=options.train,
        chat_template=options.chat_template,
        end=options.separator,
        context=options.context,
        longer=options.longer,
        allow_untrained=options.allow_untrained,
        split=options.split,
        out_rest=options.out_rest,
        overwrite=True,
        processes=options.processes,
        progress=sys.stderr.isatty(),
    )
    return dataclasses.asdict(report) | _shown(report.files[0].path, None, 5)


def _shown(path: Any, numbers: list[int] | None, count: int) -> dict[str, Any]:
    found = data.show_documents(path, documents=numbers, count=count)
    return {"documents": [dataclasses.asdict(one) for one in found]}


def _show(options: argparse.Namespace) -> dict[str, Any]:
    return _shown(options.path, options.document, options.count)


def _options() -> argparse.ArgumentParser:
    parser = Parser(prog="muster data", allow_abbrev=False)
    commands = parser.add_subparsers(required=True, parser_class=Parser)

    def command(name: str, run: Callable[[argparse.Namespace], dict[str, Any]]) -> Any:
        added = commands.add_parser(name, allow_abbrev=False)
        added.set_defaults(run=run)
        return added

    pack, documents = command("pack", _pack), command("documents", _documents)
    for one in (pack, documents):
        one.add_argument("--tokenizer", required=True)
        one.add_argument("--out", required=True)
        one.add_argument("--split", type=float)
        one.add_argument("--out-rest")
        one.add_argument("--separator")
        one.add_argument("inputs", nargs="+")
    documents.add_argument("--shape")
    documents.add_argument("--column", action="append")
    documents.add_argument("--train")
    documents.add_argument("--chat-template")
    documents.add_argument("--context", type=int)
    documents.add_argument("--longer")
    documents.add_argument("--allow-untrained", type=float, default=0.01)
    documents.add_argument("--processes", type=int)
    show = command("show", _show)
    show.add_argument("path")
    show.add_argument("--document", type=int, action="append")
    show.add_argument("--count", type=int, default=5)
    return parser


def main() -> int:
    def run() -> dict[str, Any]:
        options = _options().parse_args()
        found: dict[str, Any] = options.run(options)
        return found

    return answered(run)


if __name__ == "__main__":
    sys.exit(main())
