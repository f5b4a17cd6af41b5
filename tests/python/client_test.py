"""muster.Client against a real cluster: each call, and each kind of error."""

import copy
import csv
import io
import os
import pickle

import grpc
import pytest
import yaml

from tests.process import harness, jobs
from tests.python import package  # noqa: F401

import muster as m  # isort: skip
from muster._proto.proto.muster.v1 import (  # isort: skip
    job_pb2,
    job_service_pb2,
    job_service_pb2_grpc,
    operation_pb2,
)


# ---- A job from its file to its end ----


def test_a_job_is_submitted_followed_and_measured(muster, client):
    path = jobs.write_job(
        muster.folder,
        data={
            "train": {"tokens": {"path": "train.bin", "dtype": "uint16"}},
            "validate": {"tokens": {"path": "train.bin", "dtype": "uint16"}},
        },
        stages=[{"fit": {"steps": 20, "validate_every": 10}}],
    )
    job = client.submit(path, id="first", set={"optimizer.adamw.lr": 2e-3})
    states = list(job.watch(harness.BOUND))
    assert states[-1].step == 20 and job.state == "SUCCEEDED"
    assert [state.version for state in states] == sorted({state.version for state in states})
    assert states[0].spec.optimizer.adamw.lr == 2e-3
    assert job.wait(harness.BOUND, check=True).id == "first"
    assert [one.id for one in client.jobs()] == ["first"]
    assert client.jobs(states=["RUNNING"]) == []
    assert client.job("first").id == "first"
    assert any(line.text for line in job.logs())

    table = job.metrics()
    shown = list(csv.DictReader(io.StringIO(muster.cli("metrics", "first", "-o", "csv").out)))
    of_steps = [row for row in shown if row["loss"]]
    assert list(table.index) == list(range(1, 21))
    assert [float(row["loss"]) for row in of_steps] == pytest.approx(list(table["loss"]), rel=1e-5)
    assert list(table["validation_loss"].dropna().index) == [10, 20]
    assert (table["tokens"] == 2 * 2 * 2 * 16).all()

    remains = job.delete()
    assert remains.exported_path == str(muster.folder / "model.safetensors")
    assert client.jobs() == []


def test_a_mapping_is_the_same_job_as_its_file(muster, client, monkeypatch):
    path = jobs.write_job(muster.folder)
    content = yaml.safe_load(path.read_text())
    monkeypatch.chdir(muster.folder)
    assert client.parse(content) == client.parse(path)
    assert client.parse(content, set=["world_size=1"]).world_size == 1
    assert client.parse(content, set={"world_size": 1}).world_size == 1
    resolved = client.validate(content).resolved
    assert resolved.data.train.tokens.path == [str(muster.folder / "train.bin")]
    assert client.validate(client.parse(content)).resolved == resolved


def test_paths_of_a_file_are_relative_to_it_and_those_of_settings_to_the_current_folder(
    muster, client, monkeypatch
):
    path = jobs.write_job(muster.folder)
    elsewhere = muster.folder / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    spec = client.parse(path, set={"export.path": "weights.safetensors"})
    assert spec.data.train.tokens.path == [str(muster.folder / "train.bin")]
    assert spec.export.path == str(elsewhere / "weights.safetensors")


def test_values_of_a_mapping_stay_what_they_are(muster, client, monkeypatch):
    monkeypatch.chdir(muster.folder)
    path = jobs.write_job(muster.folder)
    for text in ("/out/run #3/w", "*.bin", "a: b", "1e3", "yes", "null", '"', "\N{GRINNING FACE}"):
        spec = client.parse(path, set={"export.path": text})
        assert spec.export.path == os.path.join(muster.folder, text)
    content = yaml.safe_load(path.read_text()) | {"export": {"path": "/\N{GRINNING FACE}"}}
    assert client.parse(content).export.path == "/\N{GRINNING FACE}"
    spec = client.parse(path, set={"trainable.rules": [{"freeze": "*.bias"}]})
    assert spec.trainable.rules[0].freeze == "*.bias"
    # A list has YAML, as the command line.
    spec = client.parse(path, set=["export.path='a' # a comment"])
    assert spec.export.path == str(muster.folder / "a")


# ---- Steering ----


def test_a_running_job_is_steered(muster, client, endless):
    plan = endless.freeze("transformer.wte.*", dry_run=True).result(harness.BOUND)
    assert list(plan.change.frozen) == ["transformer.wte.weight"] and len(plan.ranks) == 2
    change = endless.freeze("transformer.wte.*", requested_by="a test")
    assert change.result(harness.BOUND).version == 2
    assert change.done() and change.applied_at_step is not None
    parameters = {one.name: one.trained for one in endless.trainability().parameters}
    assert not parameters["transformer.wte.weight"] and parameters["transformer.wpe.weight"]
    assert endless.unfreeze("transformer.wte.*").result(harness.BOUND).version == 3
    assert endless.refresh().wait(harness.BOUND).state.done

    rate = endless.set_lr(5e-4).result(harness.BOUND)
    assert rate.next_step == pytest.approx(5e-4)
    skipped = endless.skip_data(16, dry_run=True).result(harness.BOUND)
    assert skipped.samples == 16
    assert endless.skip_data(16).result(harness.BOUND).samples == 16
    checkpoint = endless.checkpoint().result(harness.BOUND)
    assert os.path.isdir(checkpoint.path)

    state = muster.folder / "state.safetensors"
    gathered = endless.gather_optimizer_state(state, format="safetensors").result(harness.BOUND)
    assert gathered.path == str(state) and state.stat().st_size == gathered.bytes
    folder = endless.consolidate(muster.folder / "model", dtype="bfloat16").result(harness.BOUND)
    assert os.path.isfile(os.path.join(folder.path, folder.files[0]))
    assert endless.run_stage("validate").result(harness.BOUND).evaluation.loss > 0
    sample = endless.sample("Hello", max_tokens=4).result(harness.BOUND)
    assert len(sample.tokens) == 4
    assert list(endless.sample([1, 2, 3], max_tokens=2).result(harness.BOUND).prompt) == [1, 2, 3]

    endless.pause().wait(harness.BOUND)
    assert endless.state == "PAUSED"
    endless.resume().wait(harness.BOUND)
    operations = endless.operations()
    assert operations[1].state.requested_by == "a test"
    assert client.operation(operations[1].name).kind == "SET_TRAINABILITY"

    later = endless.set_lr(1e-4, at_step=900000)
    assert not later.done()
    later.cancel()
    with pytest.raises(m.OperationFailed) as cancelled:
        later.result(harness.BOUND)
    assert cancelled.value.code == "CANCELLED"

    endless.stop()
    assert endless.wait(harness.BOUND).state_reason
    with pytest.raises(m.JobFailed):
        endless.wait(harness.BOUND, check=True)
    with pytest.raises(m.SpecInvalid) as refused:
        endless.retry(set={"name": "other", "seed": 8})
    assert {problem.path for problem in refused.value.problems} == {"name", "seed"}
    again = endless.retry(set={"optimizer.adamw.lr": 1e-4})
    assert (again.attempt, again.spec.optimizer.adamw.lr) == (2, 1e-4)
    assert again.setting_changes[0].path == "optimizer.adamw.lr"
    endless.stop()
    endless.wait(harness.BOUND)


def test_nodes_are_drained_and_come_back(client):
    (node,) = client.nodes()
    for call, state in (
        (client.cordon, "CORDONED"),
        (client.uncordon, "ATTACHED"),
        (lambda name: client.drain(name, deadline=30), "DRAINING"),
        (client.uncordon, "ATTACHED"),
    ):
        answer = call(node.name)
        (found,) = client.nodes()
        for one in (answer, found):
            assert (one.name, one.State.Name(one.state)) == (node.name, state)
    with pytest.raises(m.FailedPrecondition):
        client.forget(node.name)  # it is attached


# ---- Errors ----


def test_a_job_file_with_problems_says_where(muster, client):
    path = jobs.write_job(muster.folder)
    path.write_text(path.read_text().replace("heads: 2", "heads: 3") + "colour: red\n")
    for call in (client.parse, client.submit, client.validate):
        with pytest.raises(m.SpecInvalid) as refused:
            call(path)
        error = refused.value
        assert (error.code, error.reason) == ("INVALID_ARGUMENT", "JOB_SPEC_INVALID")
        lines = path.read_text().splitlines()
        where = {problem.path: lines[problem.line - 1] for problem in error.problems}
        assert where["colour"] == "colour: red"
        assert any(path.startswith("model.gpt2") for path in where)
    with pytest.raises(m.SpecInvalid) as refused:
        client.submit({"name": "x"})
    assert refused.value.problems and all(one.line == 0 for one in refused.value.problems)
    assert client.jobs() == []


def test_a_problem_that_only_the_coordinator_finds_has_its_place(muster, client):
    """`no_progress` must be three leases of the coordinator; the job of `start` must be there."""
    path = jobs.write_job(
        muster.folder, watchdog={"no_progress": "8s"}, start={"checkpoint": "nobody"}
    )
    lines = path.read_text().splitlines()
    short = lines.index("  no_progress: 8s") + 1
    for call in (client.validate, client.submit):
        with pytest.raises(m.SpecInvalid) as refused:
            call(path)
        (problem,) = refused.value.problems
        assert (problem.path, problem.line, problem.source) == ("watchdog.no_progress", short, "")
        assert f"line {short}: watchdog.no_progress: " in str(refused.value)
        for settings in ({"watchdog.no_progress": "7s"}, {"watchdog": {"no_progress": "7s"}}):
            with pytest.raises(m.SpecInvalid) as refused:
                call(path, set=settings)
            (problem,) = refused.value.problems
            assert (problem.line, problem.source) == (0, f"--set {next(iter(settings))}")
        with pytest.raises(m.SpecInvalid) as refused:
            call(yaml.safe_load(path.read_text()))
        assert [problem.line for problem in refused.value.problems] == [0]
    with pytest.raises(m.SpecInvalid) as refused:
        client.submit(path, set={"watchdog.no_progress": "60s"})
    (problem,) = refused.value.problems
    assert lines[problem.line - 1] == "  checkpoint: nobody"
    assert refused.value.reason == "JOB_SPEC_INVALID" and refused.value.metadata["next"]


def test_a_problem_without_a_line_of_its_own_has_that_of_the_nearest_enclosing_field():
    parsed = m.client._Parsed(m.client.JobSpec(), {"a": 1, "a.b": 7, "a.b[0]": 8}, {"c": "--set c"})
    for path, place in (
        ("a.b[1].d", (7, "")),
        ("a.b[0].d", (8, "")),
        ("a.x", (1, "")),
        ("a?3", (1, "")),
        ("ab", (0, "")),
        ("", (0, "")),
        ("c.d[1]", (0, "--set c")),
    ):
        placed = parsed.placed(m.errors.Problem(path, "is wrong", 0, ""))
        assert (placed.line, placed.source) == place, path


def test_a_job_file_that_is_no_text_says_where(muster, client):
    path = muster.folder / "job.yaml"
    path.write_bytes(b"name: a\nseed: \xe9\n")
    with pytest.raises(m.SpecInvalid) as refused:
        client.parse(path)
    (problem,) = refused.value.problems
    assert (problem.line, problem.message) == (2, "holds bytes that are not UTF-8 text")


def test_errors_survive_pickling():
    problems = [m.errors.Problem("seed", "is wrong", 3, "")]
    about = {"code": "INTERNAL", "reason": "A_REASON", "metadata": {"job": "a"}}
    for error in (
        m.errors.spec_invalid(problems),
        *(of("what", **about) for of in m.errors._CLASSES.values()),
    ):
        for copied in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
            assert type(copied) is type(error) and str(copied) == str(error)
            assert vars(copied) == vars(error)


def test_names_that_only_a_newer_coordinator_knows_are_numbers(monkeypatch):
    assert m.Operation(None, operation_pb2.Operation(kind=99)).kind == "99"
    monkeypatch.setattr(m.Job, "get", lambda _: job_pb2.Job(state=77))
    assert m.Job(None, "one").state == "77"
    last = job_pb2.Job(state=job_pb2.Job.FAILED)
    monkeypatch.setattr(m.Job, "watch", lambda *_: iter([last]))
    with pytest.raises(m.JobFailed, match="is FAILED"):
        m.Job(None, "one").wait(check=True)


def test_errors_of_the_coordinator_have_a_class_a_reason_and_what_they_are_about(
    muster, client, endless
):
    with pytest.raises(m.NotFound) as error:
        client.job("nobody")
    assert (error.value.code, error.value.reason) == ("NOT_FOUND", "JOB_NOT_FOUND")
    assert error.value.metadata["job"] == "nobody" and error.value.metadata["next"]
    with pytest.raises(m.NotFound):
        client.operation("endless/99")
    with pytest.raises(m.NotFound):
        list(client.job("endless").__class__(client._connection, "nobody").watch())
    with pytest.raises(m.AlreadyExists) as error:
        client.submit(muster.folder / "job.yaml", id="endless")
    assert error.value.reason == "JOB_ALREADY_EXISTS"
    with pytest.raises(m.FailedPrecondition) as error:
        endless.delete()
    assert error.value.reason == "JOB_NOT_ENDED"
    with pytest.raises(m.InvalidArgument):
        endless.run_stage("breakfast")
    with pytest.raises(m.DeadlineExceeded, match="job 'endless' has not ended after 0.5 s"):
        endless.wait(timeout=0.5)
    with pytest.raises(TimeoutError, match=r"operation 'endless/\d+' is not done after 0.5 s"):
        endless.set_lr(1e-4, at_step=900000).result(timeout=0.5)
    existing = muster.folder / "train.bin"
    with pytest.raises(m.OperationFailed) as error:
        endless.gather_optimizer_state(existing).result(harness.BOUND)
    assert error.value.code and str(existing) in error.value.message
    for wrong in (
        lambda: endless.freeze(),
        lambda: endless.gather_optimizer_state("x", format="pickle"),
        lambda: client.parse(client.parse(muster.folder / "job.yaml"), set={"seed": 1}),
        lambda: client.parse(muster.folder / "job.yaml", set="seed=1"),
    ):
        with pytest.raises(ValueError):
            wrong()


def test_a_limit_is_an_error_of_its_class(client, endless):
    request = job_service_pb2.ValidateJobRequest()
    request.spec.model.mlp.hidden.extend([1] * 1_200_000)
    with pytest.raises(m.ResourceExhausted) as error:
        client._connection.read(client._connection.jobs.ValidateJob, request)
    assert error.value.reason == "REQUEST_TOO_LARGE"


def test_a_wrong_address_is_refused_before_any_call(tmp_path):
    for address, why in (
        (f"unix:/{'a' * 200}", "has at most 107"),
        ("unix:socket", "begin with '/'"),
        *((wrong, "HOST:PORT") for wrong in ("localhost", ":1", "a:b:1", "a:99999", "a:-1")),
    ):
        with pytest.raises(m.InvalidArgument) as error:
            m.Client(address)
        assert why in error.value.message and address in error.value.message
    with pytest.raises(ValueError) as error:
        m.Client("127.0.0.1:1", tls_certificate="a.crt")
    assert "tls_key, tls_ca" in str(error.value)


def test_a_client_of_a_later_version_is_refused_by_name(client):
    options = [("grpc.primary_user_agent", "muster/99.0.0")]
    with grpc.insecure_channel(client.address, options=options) as channel:
        stub = job_service_pb2_grpc.JobServiceStub(channel)
        with pytest.raises(grpc.RpcError) as error:
            stub.ListJobs(job_service_pb2.ListJobsRequest(), timeout=harness.BOUND)
    refused = m.errors.from_grpc(error.value, client.address)
    assert (type(refused), refused.reason) == (m.FailedPrecondition, "CLIENT_TOO_NEW")
    assert refused.metadata["client"] == "99.0.0"
    assert refused.metadata["coordinator"] == m.__version__
