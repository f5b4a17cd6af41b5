"""Tests of the limits that real programs enforce, by name; and of the reflection service, which
exists only on request."""

import grpc
import pytest

from tests.bazel import bound
from tests.process import api, harness

VALIDATE = "/muster.v1.JobService/ValidateJob"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
# ServerReflectionRequest{list_services: ""}: the package at hand has no messages for it.
LIST_SERVICES = b"\x3a\x00"
SERVICES = ["JobService", "ControlService", "OperationService", "ClusterService"]
SERVICES += ["AgentService", "WorkerService"]


@pytest.fixture
def channel(muster):
    """Opens a channel to the running musterd."""
    opened = []

    def open_channel():
        options = [("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1)]
        opened.append(grpc.insecure_channel(muster.address, options=options))
        return opened[-1]

    yield open_channel
    for one in opened:
        one.close()


def error_info(error):
    from proto.muster.v1 import error_pb2

    (trailer,) = [
        item.value for item in error.trailing_metadata() if item.key == "grpc-status-details-bin"
    ]
    info = error_pb2.ErrorInfo()
    for detail in error_pb2.ErrorStatus.FromString(trailer).details:
        if detail.type_url.endswith("/google.rpc.ErrorInfo"):
            info.MergeFromString(detail.value)
    assert info.domain == "muster"
    return info


def test_more_slots_than_a_node_may_have_are_a_usage_error(muster):
    for program, arguments in {
        "musterd": ["--state", muster.state, "--local-slots", 4294967295],
        "muster-agent": ["--coordinator", "127.0.0.1:1", "--slots", 4294967295],
    }.items():
        muster.wait(muster.spawn(program, *arguments), expect=2)
        assert "4096" in muster.log(3), program


def test_sixteen_megabytes_of_zeros_are_refused_and_others_are_served(muster, channel):
    daemon = muster.musterd()
    spec = api.job_service_pb2.ValidateJobRequest().spec
    spec.model.mlp.hidden.extend([0] * 15_000_000)
    request = api.job_service_pb2.ValidateJobRequest(spec=spec).SerializeToString()
    validate = channel().unary_unary(VALIDATE)
    with pytest.raises(grpc.RpcError) as refused:
        validate(request, timeout=bound(60))
    assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    info = error_info(refused.value)
    assert info.reason == "REQUEST_TOO_LARGE"
    assert info.metadata["limit"] == "1114112"
    assert info.metadata["found"] == str(len(request))
    assert info.metadata["next"]
    assert muster.cli("list", "-o", "json").json()["jobs"] == []
    muster.stop(daemon)


def test_the_services_are_told_only_with_the_flag(muster, channel):
    daemon = muster.musterd(more=["--reflection"])

    def services():
        call = channel().stream_stream(REFLECTION)
        return b"".join(call(iter([LIST_SERVICES]), timeout=bound(30)))

    told = services()
    for service in SERVICES:
        assert f"muster.v1.{service}".encode() in told
    assert told.count(b"muster.v1.") == len(SERVICES), "errors_test.cc knows all services"
    muster.stop(daemon)
    daemon = muster.musterd()
    with pytest.raises(grpc.RpcError) as refused:
        services()
    assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED
    muster.stop(daemon)
    harness.eventually(lambda: not muster.processes(), "all programs end")
