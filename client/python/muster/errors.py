"""The errors of Muster, as exceptions.

Each error of the coordinator has a gRPC code, which is the exception's class, and a stable reason
such as JOB_NOT_FOUND (docs/reference/errors.md), with the subject of the error in `metadata`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from muster._proto.proto.muster.v1 import error_pb2

_DETAILS = "grpc-status-details-bin"


class MusterError(Exception):
    """Any failed call."""

    def __init__(
        self,
        message: str,
        *,
        code: str = "",
        reason: str = "",
        metadata: Mapping[str, str] | None = None,
    ):
        super().__init__(message)
        self.message = message
        # The gRPC code: "NOT_FOUND".
        self.code = code or _CODES.get(type(self), "UNKNOWN")
        # The reason, for programs: "JOB_NOT_FOUND". Empty if the coordinator did not answer.
        self.reason = reason
        # "job", "field", "limit" and others, as far as they apply; "next": what to do.
        self.metadata = dict(metadata or {})


class InvalidArgument(MusterError):
    """The request is wrong, whatever the state of the cluster."""


@dataclasses.dataclass(frozen=True)
class Problem:
    """One problem of a job file."""

    # The field: "model.gpt2.heads"; may be empty.
    path: str
    message: str
    # The line, from 1; 0: there is no line.
    line: int
    # The setting that gave the value, "--set world_size"; empty if the text did.
    source: str

    def __str__(self) -> str:
        place = self.source or (f"line {self.line}" if self.line else "")
        return ": ".join(part for part in (place, self.path, self.message) if part)


class SpecInvalid(InvalidArgument):
    """A job file has problems. Nothing was stored."""

    # The default is for pickle, which first gives only the message, and then the attributes.
    def __init__(self, message: str, problems: Sequence[Problem] = (), **more: Any):
        super().__init__(message, **more)
        self.problems = list(problems)


class NotFound(MusterError):
    """There is no such job, operation, node or file."""


class AlreadyExists(MusterError):
    """The id is taken, or a request id was used for something else."""


class FailedPrecondition(MusterError):
    """The job or the node is not in a state that allows this."""


class ResourceExhausted(MusterError):
    """A limit of the coordinator is reached (docs/reference/limits.md)."""


class Unauthenticated(MusterError):
    """The certificate of this client is not accepted."""


class PermissionDenied(MusterError):
    """The certificate of this client does not allow this call, or a file is not readable."""


class Unavailable(MusterError):
    """No coordinator answers, or its store has trouble."""


class DeadlineExceeded(MusterError, TimeoutError):
    """The awaited event has not happened in the given time."""


class DataLoss(MusterError):
    """Stored data is damaged."""


class Unimplemented(MusterError):
    """The coordinator is older than this package and does not have this call."""


class Internal(MusterError):
    """A fault of Muster."""


class OperationFailed(MusterError):
    """A change of a running job was accepted and then failed. `code` says in which way."""


class JobFailed(MusterError):
    """A job that should have succeeded ended as FAILED or CANCELLED."""


_CLASSES: dict[str, type[MusterError]] = {
    "INVALID_ARGUMENT": InvalidArgument,
    "OUT_OF_RANGE": InvalidArgument,
    "NOT_FOUND": NotFound,
    "ALREADY_EXISTS": AlreadyExists,
    "FAILED_PRECONDITION": FailedPrecondition,
    "RESOURCE_EXHAUSTED": ResourceExhausted,
    "UNAUTHENTICATED": Unauthenticated,
    "PERMISSION_DENIED": PermissionDenied,
    "UNAVAILABLE": Unavailable,
    "DEADLINE_EXCEEDED": DeadlineExceeded,
    "DATA_LOSS": DataLoss,
    "UNIMPLEMENTED": Unimplemented,
    "INTERNAL": Internal,
}
_CODES = {of: code for code, of in _CLASSES.items() if code != "OUT_OF_RANGE"}


def problems_of(messages: Iterable[error_pb2.SpecProblem]) -> list[Problem]:
    return [Problem(one.path, one.message, one.line, one.source) for one in messages]


def spec_invalid(problems: Sequence[Problem], **more: Any) -> SpecInvalid:
    """Returns the error for these problems, of which there is at least one."""
    count = len(problems)
    head = "the job has a problem" if count == 1 else f"the job has {count} problems"
    text = "\n".join([head + ":", *(f"  {problem}" for problem in problems)])
    more = {"code": "INVALID_ARGUMENT", "reason": "JOB_SPEC_INVALID"} | more
    return SpecInvalid(text, problems, **more)


def from_grpc(error: grpc.RpcError, address: str) -> MusterError:
    """Returns the exception for a failed call to the coordinator at `address`."""
    code = error.code().name
    message = error.details() or code
    info = error_pb2.ErrorInfo()
    problems = error_pb2.SpecProblems()
    trailing: Any = error.trailing_metadata() or ()
    for key, value in trailing:
        if key != _DETAILS:
            continue
        try:
            details = error_pb2.ErrorStatus.FromString(value)
            for detail in details.details:
                name = detail.type_url.rpartition("/")[2]
                if name == "google.rpc.ErrorInfo":
                    info = error_pb2.ErrorInfo.FromString(detail.value)
                elif name == "muster.v1.SpecProblems":
                    problems = error_pb2.SpecProblems.FromString(detail.value)
        except DecodeError:
            pass  # code and message stay
    about: dict[str, Any] = {"code": code, "reason": info.reason, "metadata": dict(info.metadata)}
    if problems.problems:
        return spec_invalid(problems_of(problems.problems), **about)
    if code == "UNAVAILABLE" and not info.reason:
        message = f"no coordinator answers at {address} ({message})"
    return _CLASSES.get(code, MusterError)(message, **about)
