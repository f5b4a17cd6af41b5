"""The answer of a program that `muster` runs (client/cli/python/run_python.h): one JSON object."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any, NoReturn


class Parser(argparse.ArgumentParser):
    """A parser whose errors are answers, too."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def answered(run: Callable[[], dict[str, Any]]) -> int:
    """Prints what `run` returns, or its error, and returns the exit code."""
    try:
        _print(run())
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
    return 0


def _print(document: dict[str, Any]) -> None:
    """Prints JSON. Bytes of a path that are not UTF-8 become "?", because JSON cannot contain
    them."""
    text = json.dumps(document, ensure_ascii=False, default=str).encode(errors="replace")
    sys.stdout.buffer.write(text + b"\n")
    sys.stdout.flush()
