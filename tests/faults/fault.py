"""The building blocks of faults. A fault is a function (run, strike). The function causes the
fault, proves that it happened, and removes the fault. If it cannot prove this, it raises
NotHappened. Skipped: the machine cannot do it."""

from tests.faults.world import ENDED


class NotHappened(AssertionError):
    """The fault did not happen, so the run proves nothing."""


class Skipped(Exception):
    pass


def happened(condition, what):
    if not condition:
        raise NotHappened(f"the fault did not happen: {what}")


# name -> (run, strike), of all modules that are imported.
FAULTS = {}


def fault(function):
    FAULTS[function.__name__] = function
    return function


def running_job(run):
    job = run.world.get()
    happened(
        job.state not in ENDED,
        f"the job had already ended when it was to be struck ({job.state_reason})",
    )
    return job
