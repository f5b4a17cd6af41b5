"""Muster from Python: submit, follow and steer training jobs of a coordinator (`musterd`).

    import muster

    with muster.Client("127.0.0.1:7070") as client:
        job = client.submit("job.yaml", set={"optimizer.adamw.lr": 1e-4})
        for state in job.watch():
            print(state.step, state.loss)
        print(job.metrics()["loss"])

`Client` is the connection, `Job` is one job, and `Operation` is one change of a running job. Calls
that fail raise a subclass of `MusterError` (muster/errors.py).
"""

from muster import checkpoints, data
from muster._version import VERSION as __version__
from muster.client import Client
from muster.errors import (
    AlreadyExists,
    DataLoss,
    DeadlineExceeded,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    JobFailed,
    MusterError,
    NotFound,
    OperationFailed,
    PermissionDenied,
    ResourceExhausted,
    SpecInvalid,
    Unauthenticated,
    Unavailable,
    Unimplemented,
)
from muster.job import Job
from muster.operation import Operation

__all__ = [
    "AlreadyExists",
    "Client",
    "DataLoss",
    "DeadlineExceeded",
    "FailedPrecondition",
    "Internal",
    "InvalidArgument",
    "Job",
    "JobFailed",
    "MusterError",
    "NotFound",
    "Operation",
    "OperationFailed",
    "PermissionDenied",
    "ResourceExhausted",
    "SpecInvalid",
    "Unauthenticated",
    "Unavailable",
    "Unimplemented",
    "__version__",
    "checkpoints",
    "data",
]
