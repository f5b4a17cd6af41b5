"""A bar of progress on the standard error, with the package tqdm."""

from __future__ import annotations

from typing import Any


class Bar:
    """Draws nothing if the package is missing."""

    def __init__(self, wanted: bool, total: int):
        self._bar: Any = None
        self._wanted = wanted
        self._total = total

    def __enter__(self) -> Bar:
        if self._wanted:
            try:
                import tqdm
            except ImportError:
                return self
            self._bar = tqdm.tqdm(total=self._total, unit="B", unit_scale=True, smoothing=0.1)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def reach(self, passed: int, records: int) -> None:
        if self._bar is not None:
            self._bar.set_postfix_str(f"{records} records", refresh=False)
            self._bar.update(passed - self._bar.n)
