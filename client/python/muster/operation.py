"""Changes of running jobs."""

from __future__ import annotations

import time
from typing import Any

from muster import errors
from muster._connection import Connection, within
from muster._proto.proto.muster.v1 import operation_pb2, operation_service_pb2

# The length of one part of a longer wait: below CALL_TIMEOUT of a connection.
_WAIT_IN_ONE_CALL = 20.0
# The shortest timeout of a call: 0 would mean the coordinator's default.
_SHORTEST_WAIT = 0.001


def name_of(enum: Any, number: int) -> str:
    """Returns the name of a value of an enum of the protos. A value of a newer coordinator that
    this package does not know becomes the number as text."""
    value = enum.DESCRIPTOR.values_by_number.get(number)
    return str(number) if value is None else value.name


class Operation:
    """One change of a running job, which the coordinator has stored. All ranks carry out the change
    at the same step boundary. `state` is the message muster.v1.Operation
    (proto/muster/v1/operation.proto) as of the last call.
    """

    def __init__(self, connection: Connection, state: operation_pb2.Operation):
        self._connection = connection
        self.state = state

    def __repr__(self) -> str:
        return f"<muster.Operation {self.name} {self.kind}{' done' if self.state.done else ''}>"

    @property
    def name(self) -> str:
        """The name, "JOB/NUMBER"."""
        return self.state.name

    @property
    def kind(self) -> str:
        """The kind, such as "SET_TRAINABILITY"."""
        return name_of(operation_pb2.Operation.Kind, self.state.kind)

    @property
    def applied_at_step(self) -> int | None:
        """The number of optimizer steps that were done when the operation took effect. None: it has
        not taken effect."""
        return self.state.applied_at_step if self.state.HasField("applied_at_step") else None

    def done(self) -> bool:
        """Asks the coordinator, and returns True if the operation has ended with a result or an
        error."""
        if not self.state.done:
            request = operation_service_pb2.GetOperationRequest(name=self.name)
            self.state = self._connection.read(self._connection.operations.Get, request)
        return self.state.done

    def wait(self, timeout: float | None = None) -> Operation:
        """Waits until the operation has ended. DeadlineExceeded after `timeout` seconds; the
        operation goes on."""
        end = None if timeout is None else time.monotonic() + timeout
        request = operation_service_pb2.WaitOperationRequest(name=self.name)
        with within(timeout, f"operation '{self.name}' is not done"):
            while not self.state.done:
                left = _WAIT_IN_ONE_CALL if end is None else end - time.monotonic()
                wait = min(max(left, _SHORTEST_WAIT), _WAIT_IN_ONE_CALL)
                request.timeout.FromNanoseconds(int(wait * 1e9))
                self.state = self._connection.read(self._connection.operations.Wait, request, end)
        return self

    def result(self, timeout: float | None = None) -> Any:
        """Waits for the end, and returns the result: the message of the operation's kind in
        OperationResult (proto/muster/v1/operation.proto); None for a kind without a result.
        OperationFailed: the operation failed or was cancelled. DeadlineExceeded: the operation is
        not done after `timeout` seconds."""
        self.wait(timeout)
        if self.state.HasField("error"):
            error = self.state.error
            raise errors.OperationFailed(
                f"operation '{self.name}' failed: {error.message}",
                code=error.code,
                reason=error.reason,
                metadata={"operation": self.name, "job": self.state.job},
            )
        kind = self.state.result.WhichOneof("kind")
        return None if kind is None else getattr(self.state.result, kind)

    def cancel(self, requested_by: str = "") -> Operation:
        """Cancels the operation if it has not taken effect. FailedPrecondition: the cancel is too
        late."""
        request = operation_service_pb2.CancelOperationRequest(
            name=self.name, requested_by=requested_by
        )
        self.state = self._connection.change(self._connection.operations.Cancel, request)
        return self
