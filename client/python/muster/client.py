"""The connection to a coordinator."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from muster import errors
from muster._address import default_address
from muster._connection import Connection
from muster._proto.proto.muster.v1 import (
    cluster_service_pb2,
    job_pb2,
    job_service_pb2,
    operation_pb2,
)
from muster._proto.proto.muster.v1.job_spec_pb2 import JobSpec
from muster._settings import Settings, json_of, settings_of
from muster.job import Job
from muster.operation import Operation

# A job file: its path, or its content as a mapping or as a message.
JobFile = str | os.PathLike[str] | Mapping[str, Any] | JobSpec


def _text_of(path: pathlib.Path) -> str:
    content = path.read_bytes()
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = 1 + content.count(b"\n", 0, error.start)
        problem = errors.Problem("", "holds bytes that are not UTF-8 text", line, "")
        raise errors.spec_invalid([problem]) from error


@dataclasses.dataclass
class _Parsed:
    """A job, and the places where its fields were given, by path."""

    spec: JobSpec
    # Line numbers from 1; empty for a mapping or a message.
    lines: Mapping[str, int] = dataclasses.field(default_factory=dict)
    # "--set world_size".
    sources: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def placed(self, problem: errors.Problem) -> errors.Problem:
        """Returns the problem with the place of its field, or of the nearest enclosing field
        (common/jobfile/jobfile.h: AddPlaces)."""
        at = problem.path.partition("?")[0]  # "a?3": a key of `a` that is no name
        source, line = problem.source, problem.line
        while at:
            source = source or self.sources.get(at, "")
            line = line or self.lines.get(at, 0)
            at = at[: max(at.rfind("."), at.rfind("["), 0)]
        return dataclasses.replace(problem, source=source, line=0 if source else line)


class Client:
    """A connection to a coordinator. Thread-safe. Calls block; each may raise a MusterError.

    address: "HOST:PORT", "unix:/PATH", or the state directory of a coordinator on this machine.
        Default: $MUSTER_ADDRESS, else the state directory that `musterd` has by default.
    tls_certificate, tls_key, tls_ca: paths of files, for a port that needs certificates
        (`muster certs`). Default: $MUSTER_TLS_CERTIFICATE, $MUSTER_TLS_KEY, $MUSTER_TLS_CA.
    retry_for: the number of seconds for which a call is repeated while the connection is broken.
        A call that changes something acts exactly once, however often it is repeated.

    InvalidArgument, PermissionDenied: the address is wrong, or its directory cannot be read.
    """

    def __init__(
        self,
        address: str | os.PathLike[str] | None = None,
        *,
        tls_certificate: str = "",
        tls_key: str = "",
        tls_ca: str = "",
        retry_for: float = 30.0,
    ):
        self._connection = Connection(
            default_address() if address is None else os.fspath(address),
            tls_certificate=tls_certificate,
            tls_key=tls_key,
            tls_ca=tls_ca,
            retry_for=retry_for,
        )

    @property
    def address(self) -> str:
        return self._connection.address

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- Jobs ----

    def parse(self, job: JobFile, set: Settings | None = None) -> JobSpec:
        """Returns the spec of a job file, read as by `muster submit`. Paths are absolute.

        job: the path of a file, or a mapping with the same content. Relative paths in a file are
            relative to its folder; paths in a mapping and in `set`, to the current folder.
        set: {"optimizer.adamw.lr": 1e-4} or ["optimizer.adamw.lr=1e-4"]. A string in a mapping is
            taken as it is; each value in a list is YAML.

        SpecInvalid: the job has problems; each problem has its line."""
        return self._parse(job, set).spec

    def _parse(self, job: JobFile, set: Settings | None) -> _Parsed:
        settings = settings_of(set)
        if isinstance(job, JobSpec):
            if settings:
                raise ValueError("set: only for a job file or a mapping, not for a message")
            return _Parsed(job)
        here = os.getcwd()
        request = job_service_pb2.ParseJobRequest(settings=settings, settings_folder=here)
        if isinstance(job, Mapping):
            request.yaml = json_of(job)
            request.base_folder = here
        else:
            path = pathlib.Path(job)
            request.yaml = _text_of(path)
            request.base_folder = str(path.absolute().parent)
        answer = self._connection.read(self._connection.jobs.ParseJob, request)
        if answer.problems:
            problems = errors.problems_of(answer.problems)
            if isinstance(job, Mapping):  # it has no lines
                problems = [dataclasses.replace(problem, line=0) for problem in problems]
            raise errors.spec_invalid(problems)
        keys = [setting.partition("=")[0] for setting in settings]
        return _Parsed(
            answer.spec,
            {} if isinstance(job, Mapping) else answer.lines,
            {key: f"--set {key}" for key in keys},
        )

    def validate(
        self, job: JobFile, set: Settings | None = None
    ) -> job_service_pb2.ValidateJobResponse:
        """Checks that the coordinator would accept the job; nothing is stored. The answer has the
        job with all defaults (`resolved`) and `warnings`. SpecInvalid: the job has problems."""
        parsed = self._parse(job, set)
        request = job_service_pb2.ValidateJobRequest(spec=parsed.spec)
        answer = self._connection.read(self._connection.jobs.ValidateJob, request)
        if answer.problems:
            problems = errors.problems_of(answer.problems)
            raise errors.spec_invalid([parsed.placed(problem) for problem in problems])
        return answer

    def submit(self, job: JobFile, id: str = "", set: Settings | None = None) -> Job:
        """Submits a job to the coordinator. `job` and `set` are as in parse.

        id: the job's id, [a-z0-9-]; empty: made from its name.

        SpecInvalid: the job has problems. AlreadyExists: there is a job with this id."""
        parsed = self._parse(job, set)
        request = job_service_pb2.SubmitJobRequest(spec=parsed.spec, job_id=id)
        try:
            answer = self._connection.change(self._connection.jobs.SubmitJob, request)
        except errors.SpecInvalid as error:
            problems = [parsed.placed(problem) for problem in error.problems]
            about = {"code": error.code, "reason": error.reason, "metadata": error.metadata}
            raise errors.spec_invalid(problems, **about) from None
        return Job(self._connection, answer.id)

    def job(self, id: str) -> Job:
        """Returns the job with this id. NotFound: there is no such job."""
        job = Job(self._connection, id)
        job.get()
        return job

    def jobs(self, states: Sequence[str] = (), limit: int | None = None) -> list[job_pb2.Job]:
        """Returns the jobs as they are now, newest first: all jobs, or only jobs in these states
        ("RUNNING")."""
        found: list[job_pb2.Job] = []
        request = job_service_pb2.ListJobsRequest(states=list(states))
        while limit is None or len(found) < limit:
            request.page_size = 100 if limit is None else min(100, limit - len(found))
            page = self._connection.read(self._connection.jobs.ListJobs, request)
            found += page.jobs
            request.page_token = page.next_page_token
            if not request.page_token:
                break
        return found

    def operation(self, name: str) -> Operation:
        """Returns the operation "JOB/NUMBER". NotFound: there is no such operation."""
        operation = Operation(self._connection, operation_pb2.Operation(name=name))
        operation.done()
        return operation

    # ---- Nodes ----

    def nodes(self) -> list[cluster_service_pb2.Node]:
        """Returns the nodes, as messages muster.v1.Node (proto/muster/v1/cluster_service.proto)."""
        request = cluster_service_pb2.ListNodesRequest()
        return list(self._connection.read(self._connection.cluster.ListNodes, request).nodes)

    def drain(
        self, node: str, deadline: float | None = None, requested_by: str = ""
    ) -> cluster_service_pb2.Node:
        """Gives the node no new work, and ends the jobs there at a checkpoint, within `deadline`
        seconds."""
        request = cluster_service_pb2.DrainNodeRequest(node=node, requested_by=requested_by)
        if deadline is not None:
            request.deadline.FromNanoseconds(int(deadline * 1e9))
        return self._connection.change(self._connection.cluster.DrainNode, request)

    def cordon(self, node: str, requested_by: str = "") -> cluster_service_pb2.Node:
        """Gives the node no new work."""
        request = cluster_service_pb2.CordonNodeRequest(node=node, requested_by=requested_by)
        return self._connection.change(self._connection.cluster.CordonNode, request)

    def uncordon(self, node: str, requested_by: str = "") -> cluster_service_pb2.Node:
        """Gives the node work again, after drain or cordon."""
        request = cluster_service_pb2.UncordonNodeRequest(node=node, requested_by=requested_by)
        return self._connection.change(self._connection.cluster.UncordonNode, request)

    def forget(self, node: str, requested_by: str = "") -> None:
        """Tells the coordinator that the processes of a node that is away have ended."""
        request = cluster_service_pb2.ForgetNodeRequest(node=node, requested_by=requested_by)
        self._connection.change(self._connection.cluster.ForgetNode, request)

