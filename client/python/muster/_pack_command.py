"""What `muster data pack --tokenizer FILE` runs (client/cli/pack_with_tokenizer.h): prints one
JSON object, with `files` or with `error` and its `kind`."""

from __future__ import annotations

import argparse
import json
import sys

from muster import data


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
        print(json.dumps({"error": str(error), "kind": found}))
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
    print(json.dumps({"files": files}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
