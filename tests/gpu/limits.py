"""A plugin of pytest for runs on another machine, of which only the results come back. No test
takes longer than MUSTER_GPU_TEST_SECONDS, and none begins after MUSTER_GPU_END (seconds since
1970). Failures are in MUSTER_GPU_FAILURES at once, with the output of the programs."""

import os
import signal
import time

import pytest

from tests.gpu import stacks

SECONDS = float(os.environ.get("MUSTER_GPU_TEST_SECONDS", "90"))
END = float(os.environ.get("MUSTER_GPU_END", "inf"))
FAILURES = os.environ.get("MUSTER_GPU_FAILURES")


def _expired(*_):
    said = "\n".join(stacks.of(pid) for pid in stacks.computing(os.getpid()))
    pytest.fail(f"not over after {SECONDS:.0f} s; what runs:\n{said}")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item):
    signal.signal(signal.SIGALRM, _expired)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def pytest_runtest_setup(item):
    if time.time() > END:
        pytest.fail("not run: the time for this part is over")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    muster = item.funcargs.get("muster") if hasattr(item, "funcargs") else None
    if report.failed and call.when == "call" and muster is not None:
        report.sections.append(("what the programs say", muster.describe()))


def pytest_runtest_logreport(report):
    if report.failed and FAILURES:
        with open(FAILURES, "a") as file:
            file.write(f"==== {report.nodeid}, {report.when}\n{report.longreprtext}\n")
            for title, text in report.sections:
                file.write(f"---- {title}\n{text}\n")
