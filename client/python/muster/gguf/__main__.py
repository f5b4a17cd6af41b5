"""The program behind `muster export gguf`: python -m muster.gguf OPTIONS FOLDER. It prints one JSON
object: `notes`, or `error` and its `kind`."""

from __future__ import annotations

import sys
from typing import Any

from muster import gguf
from muster._answer import Parser, answered


def _run() -> dict[str, Any]:
    parser = Parser(prog="muster export gguf", allow_abbrev=False)
    parser.add_argument("folder")
    parser.add_argument("--out", required=True)
    parser.add_argument("--type", required=True)
    parser.add_argument("--pre")
    parser.add_argument("--overwrite", action="store_true")
    options = parser.parse_args()
    notes = gguf.write(
        options.folder,
        options.out,
        dtype=options.type,
        pre=options.pre,
        overwrite=options.overwrite,
    )
    return {"notes": notes}


if __name__ == "__main__":
    sys.exit(answered(_run))
