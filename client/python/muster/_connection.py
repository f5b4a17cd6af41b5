"""The connection to a coordinator. Calls are repeated if the connection breaks."""

from __future__ import annotations

import contextlib
import math
import os
import pathlib
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import grpc

from muster import errors
from muster._address import find_coordinator
from muster._version import VERSION
from muster._proto.proto.muster.v1 import (
    cluster_service_pb2_grpc,
    control_service_pb2_grpc,
    job_service_pb2_grpc,
    operation_service_pb2_grpc,
)

# A coordinator answers in milliseconds; if a call takes this long, the coordinator hangs.
CALL_TIMEOUT = 30.0
# The seconds between attempts.
_PAUSE = 0.2
# The codes of a call without an answer.
_NO_ANSWER = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
_MOST_MESSAGE_BYTES = 16 << 20
_OPTIONS = [
    ("grpc.max_receive_message_length", _MOST_MESSAGE_BYTES),
    ("grpc.max_send_message_length", _MOST_MESSAGE_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 200),
    ("grpc.enable_http_proxy", 0),
    ("grpc.primary_user_agent", f"muster/{VERSION}"),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
]


@contextlib.contextmanager
def within(timeout: float | None, unfinished: str) -> Iterator[None]:
    """A scope for a wait of `timeout` seconds. Its DeadlineExceeded says what has not happened in
    this time."""
    try:
        yield
    except errors.DeadlineExceeded as error:
        if timeout is None or error.reason:
            raise
        raise errors.DeadlineExceeded(f"{unfinished} after {timeout:g} s") from error


def _left(end: float | None, most: float = math.inf) -> float:
    """Returns the seconds until `end` of time.monotonic(), from 0 to `most`."""
    return most if end is None else min(most, max(0.0, end - time.monotonic()))


def _credentials(certificate: str, key: str, ca: str) -> grpc.ChannelCredentials | None:
    files = {"certificate": certificate, "key": key, "ca": ca}
    if not any(files.values()):
        return None
    missing = [name for name, path in files.items() if not path]
    if missing:
        raise ValueError(
            "a connection with TLS needs three files: tls_certificate, tls_key and tls_ca; "
            f"missing: {', '.join('tls_' + name for name in missing)}"
        )
    content = {name: pathlib.Path(path).read_bytes() for name, path in files.items()}
    return grpc.ssl_channel_credentials(content["ca"], content["key"], content["certificate"])


class Connection:
    """Thread-safe. Calls block."""

    def __init__(
        self,
        address: str,
        *,
        tls_certificate: str = "",
        tls_key: str = "",
        tls_ca: str = "",
        retry_for: float = 30.0,
    ):
        self.address = find_coordinator(address)
        self._retry_for = retry_for
        credentials = None
        if not self.address.startswith("unix:"):
            credentials = _credentials(
                tls_certificate or os.environ.get("MUSTER_TLS_CERTIFICATE", ""),
                tls_key or os.environ.get("MUSTER_TLS_KEY", ""),
                tls_ca or os.environ.get("MUSTER_TLS_CA", ""),
            )
        if credentials is None:
            self._channel = grpc.insecure_channel(self.address, options=_OPTIONS)
        else:
            self._channel = grpc.secure_channel(self.address, credentials, options=_OPTIONS)
        self.jobs = job_service_pb2_grpc.JobServiceStub(self._channel)
        self.control = control_service_pb2_grpc.ControlServiceStub(self._channel)
        self.operations = operation_service_pb2_grpc.OperationServiceStub(self._channel)
        self.cluster = cluster_service_pb2_grpc.ClusterServiceStub(self._channel)
        # True once a coordinator was reached. Only then is a call repeated; a wrong address fails
        # at once.
        self._was_there = False

    def close(self) -> None:
        self._channel.close()

    def read(
        self, method: Callable[..., Any], request: Any, deadline: float | None = None
    ) -> Any:
        """Makes a call that changes nothing. The call is repeated while the connection is broken.
        DeadlineExceeded: there is no answer at `deadline` of time.monotonic()."""
        return self._repeat(method, request, deadline)

    def change(self, method: Callable[..., Any], request: Any) -> Any:
        """Makes a call that changes something. All repeats have the same request id, so that the
        call acts exactly once."""
        request.request_id = str(uuid.uuid4())
        return self._repeat(method, request, None)

    def _repeat(self, method: Callable[..., Any], request: Any, deadline: float | None) -> Any:
        self._look(deadline)
        end = None
        while True:
            left = _left(deadline, CALL_TIMEOUT)
            if left == 0:
                raise errors.DeadlineExceeded(
                    f"no time is left to call the coordinator at {self.address}"
                )
            try:
                answer = method(request, timeout=left)
                self._was_there = True
                return answer
            except grpc.RpcError as error:
                failure = self._failure(error)
            if not isinstance(failure, errors.Unavailable) or not self._was_there:
                raise failure
            end = time.monotonic() + self._retry_for if end is None else end
            self._pause(end, deadline, failure)

    def _look(self, deadline: float | None) -> None:
        """Checks before the first call that a coordinator is there. Only then may a call without an
        answer have reached the coordinator, and only then is it repeated. (client/api/client.cc
        asks for the state of the channel. In Python this needs a thread of gRPC, which can keep a
        program from ending.)"""
        if self._was_there:
            return
        check = self._channel.unary_unary("/grpc.health.v1.Health/Check")
        try:
            check(b"", timeout=_left(deadline, CALL_TIMEOUT))
            self._was_there = True
        except grpc.RpcError as error:
            self._was_there = error.code() not in _NO_ANSWER

    def stream(
        self,
        opens: Callable[[float | None], Any],
        finished: Callable[[], bool],
        timeout: float | None = None,
    ) -> Iterator[Any]:
        """Yields the messages of a stream. The stream is opened again when the connection breaks,
        or when the stream ends too early. `opens` gets the remaining seconds, and opens a stream
        that begins after the messages received so far. DeadlineExceeded after `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        self._look(deadline)
        broken_since = None
        while True:
            messages = opens(None if deadline is None else _left(deadline))
            failure: errors.MusterError
            try:
                for message in messages:
                    self._was_there = True
                    broken_since = None
                    yield message
                if finished():
                    return
                failure = errors.Unavailable(
                    f"the coordinator at {self.address} ended the stream before its end"
                )
            except grpc.RpcError as error:
                failure = self._failure(error)
            finally:
                messages.cancel()
            if not isinstance(failure, errors.Unavailable) or not self._was_there:
                raise failure
            broken_since = time.monotonic() if broken_since is None else broken_since
            self._pause(broken_since + self._retry_for, deadline, failure)

    def _failure(self, error: grpc.RpcError) -> errors.MusterError:
        failure = errors.from_grpc(error, self.address)
        if isinstance(failure, errors.DeadlineExceeded) and not failure.reason:
            return errors.Unavailable(
                f"the coordinator at {self.address} has not ended the call in time"
            )
        return failure

    @staticmethod
    def _pause(end: float, deadline: float | None, failure: errors.MusterError) -> None:
        """Waits for a moment. Raises the failure after the end, and DeadlineExceeded after the
        deadline."""
        if deadline is not None and _left(deadline) == 0:
            raise errors.DeadlineExceeded(failure.message)
        if _left(end) == 0:
            raise failure
        time.sleep(_left(deadline, _left(end, _PAUSE)))
