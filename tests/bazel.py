"""pytest under Bazel: where things are, how long to wait for them, shards (--shard_count) and
filters (--test_filter)."""

import gc
import os
import pathlib
import shutil


def runfile(path):
    """The absolute path of a file of this repository, built or not:
    runfile("coordinator/musterd")."""
    found = pathlib.Path(os.environ["TEST_SRCDIR"], os.environ["TEST_WORKSPACE"], path)
    if not found.exists():
        raise FileNotFoundError(f"{path} is not in the test's runfiles; add it to `data`")
    return found


# A test on a machine with twenty others, or with sanitizers, is so much slower than alone.
SLOWER = 10


def bound(seconds):
    """Returns the seconds to wait for something that takes at most `seconds` on an idle machine.

    Every wait of a test takes its bound from here. No test shows how fast something is: the bound
    is reached only where something hangs. It stays below the time that Bazel gives to the whole
    test (.bazelrc: --test_timeout), so that the test itself says for what it waited."""
    whole = float(os.environ.get("TEST_TIMEOUT", "3600"))
    return min(SLOWER * seconds, 0.75 * whole)


def pytest_configure(config):
    # PyTorch and transformers make millions of objects while they are imported. Python's default
    # looks for garbage after each 700 of them, which takes a ninth of the time of the import.
    gc.set_threshold(100_000, 20, 100)
    wanted = os.environ.get("TESTBRIDGE_TEST_ONLY")
    if wanted:
        config.option.keyword = wanted
    status_file = os.environ.get("TEST_SHARD_STATUS_FILE")
    if status_file:
        pathlib.Path(status_file).touch()


def pytest_collection_modifyitems(config, items):
    shards = int(os.environ.get("TEST_TOTAL_SHARDS", "1"))
    index = int(os.environ.get("TEST_SHARD_INDEX", "0"))
    mine = items[index::shards]
    others = [item for number, item in enumerate(items) if number % shards != index]
    if others:
        config.hook.pytest_deselected(items=others)
    items[:] = mine


def pytest_sessionfinish(session, exitstatus):
    # A shard that gets no case is no failure.
    if exitstatus == 5 and int(os.environ.get("TEST_TOTAL_SHARDS", "1")) > 1:
        session.exitstatus = 0
    # Bazel keeps the folder, and those of all tests together fill a disk. After a failure it helps.
    if session.exitstatus == 0:
        shutil.rmtree(session.config.option.basetemp, ignore_errors=True)
