"""muster.Client where the coordinator is gone, hangs or comes back."""

import pathlib
import signal
import tempfile
import uuid

import grpc
import pytest

from tests.process import harness, jobs
from tests.python import package  # noqa: F401

import muster as m  # isort: skip


def test_where_no_coordinator_answers_a_call_fails_at_once(tmp_path_factory):
    (folder := pathlib.Path(tempfile.mkdtemp(prefix="muster-", dir="/tmp"))).rmdir()
    for address in (f"unix:{folder}/socket", "127.0.0.1:1", str(folder)):
        with m.Client(address, retry_for=3600) as client, pytest.raises(m.Unavailable) as error:
            client.jobs()
        assert "no coordinator answers at" in error.value.message
        assert error.value.reason == ""


def test_calls_go_on_when_the_coordinator_is_killed_and_comes_back(muster):
    """With an agent of its own, so that the job goes on meanwhile."""
    daemon = muster.musterd()
    agent = muster.agent("n1", slots=2)
    path = jobs.write_job(muster.folder, stages=[{"fit": {"steps": 1000000}}])
    with m.Client(muster.address, retry_for=harness.BOUND) as client:
        job = client.submit(path, id="endless")
        seen = []
        for state in job.watch(harness.BOUND):
            seen.append(state.version)
            if state.step > 0 and daemon.poll() is None:
                harness.kill(daemon.pid, signal.SIGKILL)
                daemon.wait()
                successor = muster.musterd()
                job.stop()  # a call right after
        assert job.state == "CANCELLED"
        assert seen == sorted(set(seen))
        assert [one.kind for one in job.operations()].count("STOP") == 1
    muster.stop(agent, successor)


def test_a_repeated_change_has_one_request_id(muster, client, endless):
    """The first answers are lost: the call is made again with its id, and acts once. So is the
    first call of a client."""
    with m.Client(muster.address) as another:
        for connection in (client._connection, another._connection):
            ids = []

            def lossy(request, timeout, connection=connection, ids=ids):
                ids.append(request.request_id)
                answer = connection.control.SetLearningRate(request, timeout=timeout)
                if len(ids) < 3:
                    raise _Lost()
                return answer

            request = m.job.control_service_pb2.SetLearningRateRequest(
                job_id=endless.id, learning_rate=1e-4
            )
            connection.change(lossy, request)
            assert len(set(ids)) == 1 and len(ids) == 3
            assert str(uuid.UUID(ids[0])) == ids[0]
    assert [one.kind for one in endless.operations()] == ["SET_LEARNING_RATE"] * 2


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_wait_keeps_its_time_where_the_coordinator_is_gone_or_hangs(muster, number):
    daemon = muster.musterd()
    path = jobs.write_job(muster.folder)
    try:
        with m.Client(muster.address, retry_for=20) as client:
            job = client.submit(path, id="waiting")
            operation = job.checkpoint(at_step=10)
            harness.kill(daemon.pid, number)
            with pytest.raises(m.DeadlineExceeded, match="job 'waiting' has not ended after 0.5 s"):
                job.wait(timeout=0.5)
            for wait in (operation.wait, operation.result):
                with pytest.raises(m.DeadlineExceeded, match="'waiting/1' is not done after 0.5 s"):
                    wait(timeout=0.5)
    finally:
        harness.kill(daemon.pid, signal.SIGKILL)
        daemon.wait()


class _Lost(grpc.RpcError):
    def code(self):
        return grpc.StatusCode.UNAVAILABLE

    def details(self):
        return "the answer was lost"

    def trailing_metadata(self):
        return ()
