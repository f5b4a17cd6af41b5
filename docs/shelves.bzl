"""The folders of the pages."""

SHELVES = [
    "concepts",
    "how-to",
    "internals",
    "reference",
    "start",
]
