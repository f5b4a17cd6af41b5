"""A client of muster.v1 in Python, made from the protos when the tests run."""

import pathlib
import sys
import tempfile
import uuid

import grpc
from grpc_tools import protoc

from tests.bazel import bound, runfile

_generated = tempfile.TemporaryDirectory(prefix="muster-protos-")


def _generate():
    source = runfile("proto/muster/v1/job_service.proto").parent
    root = source.parents[2]
    names = [str(path.relative_to(root)) for path in sorted(source.glob("*.proto"))]
    well_known = pathlib.Path(protoc.__file__).parent / "_proto"
    code = protoc.main(
        ["protoc", f"-I{root}", f"-I{well_known}", f"--python_out={_generated.name}"]
        + [f"--grpc_python_out={_generated.name}", *names]
    )
    assert code == 0, "protoc refuses the protos"
    sys.path.insert(0, _generated.name)


_generate()

from proto.muster.v1 import (  # noqa: E402
    agent_service_pb2,
    cluster_service_pb2,
    cluster_service_pb2_grpc,
    control_service_pb2,
    control_service_pb2_grpc,
    job_pb2,
    job_service_pb2,
    job_service_pb2_grpc,
    operation_service_pb2,
    worker_service_pb2,
)

Job = job_pb2.Job


def methods():
    """Every method of every service, from their descriptors: "/muster.v1.JobService/GetJob"."""
    files = [agent_service_pb2, cluster_service_pb2, control_service_pb2, job_service_pb2]
    files += [operation_service_pb2, worker_service_pb2]
    return [
        f"/{service.full_name}/{method.name}"
        for file in files
        for service in file.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    ]


def worker_hello(**worker):
    """The first message of a rank."""
    message = worker_service_pb2.WorkerMessage()
    for field, value in worker.items():
        setattr(message.hello.worker, field, value)
    return message


class Jobs:
    """JobService of one coordinator."""

    def __init__(self, address):
        # A coordinator that was killed is found again at once.
        options = [
            ("grpc.initial_reconnect_backoff_ms", 50),
            ("grpc.max_reconnect_backoff_ms", 200),
        ]
        options += [("grpc.min_reconnect_backoff_ms", 50), ("grpc.enable_http_proxy", 0)]
        self._channel = grpc.insecure_channel(address, options=options)
        self._stub = job_service_pb2_grpc.JobServiceStub(self._channel)
        self._cluster = cluster_service_pb2_grpc.ClusterServiceStub(self._channel)

    def close(self):
        self._channel.close()

    def get(self, job_id, timeout=bound(10)):
        return self._stub.GetJob(
            job_service_pb2.GetJobRequest(job_id=job_id), timeout=timeout, wait_for_ready=True
        )

    def submit(self, job_id, spec, timeout=bound(10)):
        request = job_service_pb2.SubmitJobRequest(
            job_id=job_id, spec=spec, request_id=str(uuid.uuid4())
        )
        return self._stub.SubmitJob(request, timeout=timeout)

    def stop(self, job_id, timeout=bound(10)):
        request = job_service_pb2.StopJobRequest(job_id=job_id, request_id=str(uuid.uuid4()))
        return self._stub.StopJob(request, timeout=timeout)

    def nodes(self):
        """The nodes, with the state of the store."""
        return self._cluster.ListNodes(
            cluster_service_pb2.ListNodesRequest(), timeout=bound(10), wait_for_ready=True
        )

    def control(self):
        """Calls of ControlService by name: control()("SetLearningRate", job_id=..., ...) returns
        the operation."""
        stub = control_service_pb2_grpc.ControlServiceStub(self._channel)

        def call(name, **fields):
            request = getattr(control_service_pb2, f"{name}Request")(
                request_id=str(uuid.uuid4()), **fields
            )
            return getattr(stub, name)(request, timeout=bound(10), wait_for_ready=True)

        return call

    def metrics(self, job_id, from_step=1, follow=False):
        """An iterator over the StepMetrics of steps."""
        entries = self.entries(job_id, from_step, follow)
        passes = ("validation", "test")
        return (entry for entry in entries if not any(map(entry.HasField, passes)))

    def entries(self, job_id, from_step=1, follow=False):
        """An iterator over all StepMetrics: of steps, and of passes."""
        return self._stub.StreamMetrics(
            job_service_pb2.StreamMetricsRequest(job_id=job_id, from_step=from_step, follow=follow),
            timeout=bound(60),
            wait_for_ready=True,
        )
