"""The program that `muster data pack --tokenizer FILE` runs (client/cli/pack.h). It prints one JSON
object, with `files` or with `error` and its `kind`."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from muster import data


def _print(document: dict[str, Any]) -> None:
    """Prints JSON. Bytes of a path that are not UTF-8 become "?", because JSON cannot contain
    them."""
    text = json.dumps(document, ensure_ascii=False).encode(errors="replace")
    sys.stdout.buffer.write(text + b"\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="muster data pack", allow_abbrev=False)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--split", type=float)
    parser.add_argument("--out-rest")
    parser.add_argument("--separator")
    parser.add_argument("inputs", nargs="+")
    options = parser.parse_args()
    try:
        packed = data.pack(
            options.tokenizer,
            files=options.inputs,
            out=options.out,
            separator=options.separator,
            split=options.split,
            out_rest=options.out_rest,
            overwrite=True,
        )
    except KeyboardInterrupt:
        return 130
    except (ImportError, OSError, ValueError) as error:
        kind = {ImportError: "package", ValueError: "argument"}
        found = next((name for of, name in kind.items() if isinstance(error, of)), "file")
        _print({"error": str(error), "kind": found})
        return 1
    except BaseException as error:  # a panic of the package tokenizers is no Exception
        _print({"error": f"{type(error).__name__}: {error}", "kind": "other"})
        return 1
    made = [packed] if packed.rest is None else [packed, packed.rest]
    files = [
        {
            "path": str(one.path),
            "tokens": one.tokens,
            "dtype": one.dtype,
            "unigram_entropy": one.unigram_entropy,
        }
        for one in made
    ]
    _print({"files": files})
    return 0


if __name__ == "__main__":
    sys.exit(main())
