"""Settings of a job file that are given beside it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

Settings = Mapping[str, Any] | Iterable[str]


def json_of(value: Any) -> str:
    """As JSON, which is YAML. YAML has no pairs of escapes for one character, as JSON has."""
    return json.dumps(value, ensure_ascii=False)


def settings_of(given: Settings | None) -> list[str]:
    """KEY=VALUE for each. Values of a mapping stay what they are: a string is in quotes."""
    if given is None:
        return []
    if isinstance(given, str):
        raise ValueError(
            f"set: found the string {given!r}; expected a mapping or a list of 'KEY=VALUE'"
        )
    if isinstance(given, Mapping):
        return [f"{key}={json_of(value)}" for key, value in given.items()]
    return list(given)
