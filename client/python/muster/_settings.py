"""Settings of a job file that are given beside it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

Settings = Mapping[str, Any] | Iterable[str]


def json_of(value: Any) -> str:
    """Returns the value as JSON, which is also YAML. YAML does not have JSON's pairs of escapes for
    one character."""
    return json.dumps(value, ensure_ascii=False)


def settings_of(given: Settings | None) -> list[str]:
    """Returns KEY=VALUE for each setting. Values of a mapping keep their types: a string is in
    quotes."""
    if given is None:
        return []
    if isinstance(given, str):
        raise ValueError(
            f"set: found the string {given!r}; expected a mapping or a list of 'KEY=VALUE'"
        )
    if isinstance(given, Mapping):
        return [f"{key}={json_of(value)}" for key, value in given.items()]
    return list(given)
