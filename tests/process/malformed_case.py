"""A malformed input: a valid input (inputs.py) with a single change, and the expected error."""

import copy
import dataclasses
from typing import Callable

from tests.process import inputs

# name -> Case, of all modules that are imported.
CASES = {}


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    build: Callable  # (folder) -> the job, a dict, or the job file's text
    path: str  # the file or key that is to blame
    expected: str
    found: str
    # "reading": told by `muster validate`, which looks at the files but does not read them;
    # "session": by the worker.
    by: str
    arguments: tuple  # for `muster validate`


def case(name, path, expected, found, by="session", arguments=()):
    def add(build):
        assert name not in CASES, name
        CASES[name] = Case(name, build, path, expected, found, by, tuple(arguments))
        return build

    return add


def changed_file(name, good, file, change, expected, found, by="session"):
    """A valid job with one changed file: change(bytes) -> bytes."""

    @case(name, file, expected, found, by)
    def build(folder):
        job = inputs.GOOD[good](folder)
        (folder / file).write_bytes(change((folder / file).read_bytes()))
        return job


def replaced_file(name, good, file, contents, expected, found, by="session"):
    changed_file(
        name,
        good,
        file,
        lambda _: contents() if callable(contents) else contents,
        expected,
        found,
        by=by,
    )


def changed_job(name, good, changes, path, expected, found, by="reading"):
    """A valid job with changed keys: {"a.b.0.c": value}; None removes."""

    @case(name, path, expected, found, by)
    def build(folder):
        job = copy.deepcopy(inputs.GOOD[good](folder))
        for key, value in changes.items():
            *above, last = [int(step) if step.isdigit() else step for step in key.split(".")]
            target = job
            for step in above:
                target = target.setdefault(step, {}) if isinstance(target, dict) else target[step]
            if value is None:
                del target[last]
            else:
                target[last] = value
        return job


def cut(count):
    """The contents without the last bytes."""
    return lambda data: data[:-count]


def first(count):
    return lambda data: data[:count]
