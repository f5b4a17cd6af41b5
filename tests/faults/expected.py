"""Tests that are known to fail: not_yet.txt, one line each: a kind or a kind and a seed, a colon,
the reason."""

import pathlib


def _lines():
    for line in (
        (pathlib.Path(__file__).parent / "not_yet.txt").read_text(encoding="utf-8").splitlines()
    ):
        if line and not line.startswith("#"):
            name, _, reason = line.partition(":")
            yield name.split(), reason.strip()


def reason(kind, seed=None):
    """Why it is known to fail; None: it must pass."""
    for name, text in _lines():
        if name == [kind] or name == [kind, str(seed)]:
            return text
    return None
