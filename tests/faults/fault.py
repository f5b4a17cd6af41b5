"""What faults are made of. Each is a function (run, strike) that does it, proves that it happened,
and takes it back; what it cannot prove it refuses: NotHappened. Skipped: the machine cannot do
it."""

from tests.faults.world import ENDED


class NotHappened(AssertionError):
    """The fault was not one: the run proves nothing."""


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
