"""Exports a model from the command line: python -m muster.export module:factory --out FOLDER.

The factory is a function without arguments that returns (model, example) or (model, example, loss),
as muster.export.export takes them."""

from __future__ import annotations

import argparse
import importlib
import os
import sys

from muster.export import NotExportable, export


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m muster.export", description=__doc__)
    parser.add_argument(
        "factory", help="module:function; the function returns (model, example[, loss])"
    )
    parser.add_argument("--out", required=True, metavar="FOLDER", help="the folder to write")
    parser.add_argument(
        "--unit",
        action="append",
        metavar="PATTERN",
        help="modules that become units, instead of those found by themselves; may be repeated",
    )
    parser.add_argument(
        "--precision",
        default="float32",
        help="the precision of jobs: float32 (default), bfloat16 or float16",
    )
    parser.add_argument(
        "--dynamic",
        choices=["sequence"],
        action="append",
        default=[],
        help="leave the length of sequences free",
    )
    parser.add_argument(
        "--weights",
        metavar="FOLDER",
        help="the values of a model that was made in the scope muster.export.parameters_on_meta()",
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="replace what an earlier export wrote"
    )
    arguments = parser.parse_args()
    module, _, name = arguments.factory.partition(":")
    if not name:
        parser.error(f"factory: found '{arguments.factory}'; expected module:function")
    sys.path.insert(0, os.getcwd())
    model, example, *loss = getattr(importlib.import_module(module), name)()
    try:
        export(
            model,
            example,
            arguments.out,
            loss=loss[0] if loss else None,
            units=arguments.unit or "auto",
            precision=arguments.precision,
            dynamic=dict.fromkeys(arguments.dynamic, True),
            weights=arguments.weights,
            overwrite=arguments.overwrite,
        )
    except (NotExportable, FileExistsError) as error:
        text = str(error).replace("overwrite=True", "--overwrite")
        print(f"muster.export: {text}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
