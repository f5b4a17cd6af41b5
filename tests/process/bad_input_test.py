"""Mistakes of users: they get a clear error and the right exit code, and nothing is stored
incompletely."""

import pathlib
import struct

import pytest
import torch
from safetensors.torch import save_file

from tests.process import api, harness, jobs


@pytest.fixture
def cluster(muster):
    """A coordinator with two local slots, stopped at the end."""
    daemon = muster.musterd(local_slots=2)
    yield muster
    muster.stop(daemon)
    muster.assert_no_process(at_once=True)


def assert_nothing_is_stored(muster):
    assert muster.cli("list", "-o", "json").json().get("jobs", []) == []


def gpt2(**changes):
    return {"gpt2": jobs.TINY["model"]["gpt2"] | changes}


# ---- The job file ----


def test_every_problem_is_reported_at_once_with_path_and_line(cluster):
    job_file = cluster.folder / "job.yaml"
    text = jobs.write_job(cluster.folder).read_text()
    text = text.replace("world_size: 2", "wrold_size: 2")
    text = text.replace("width: 32", "width: thirty").replace("per_rank: 2", "per_rank: 0")
    job_file.write_text(text)
    lines = text.splitlines()

    def line(part):
        return next(number for number, line in enumerate(lines, 1) if part in line)

    for command in ("submit", "validate", "run"):
        result = cluster.cli(command, job_file, expect=2)
        for path, part in [
            ("wrold_size", "wrold_size"),
            ("model.gpt2.width", "thirty"),
            ("batch.per_rank", "per_rank"),
        ]:
            named = [entry for entry in (result.err + result.out).splitlines() if path in entry]
            assert named, f"{command} does not name {path}:\n{result.err}"
            assert any(
                f":{line(part)}" in entry or f"line {line(part)}" in entry for entry in named
            ), named
    assert_nothing_is_stored(cluster)


@pytest.mark.parametrize(
    "text",
    ["", "just text", "a: [1, 2", "name: x\nname: y\n", "- a\n- b\n"],
    ids=["empty", "text", "broken", "twice", "list"],
)
def test_a_file_that_is_no_job_is_refused(cluster, text):
    job_file = cluster.folder / "job.yaml"
    job_file.write_text(text)
    result = cluster.cli("submit", job_file, expect=2)
    assert "job.yaml" in result.err
    assert_nothing_is_stored(cluster)


def test_a_missing_job_file_and_a_wrong_option_are_usage_errors(cluster):
    assert "no-such.yaml" in cluster.cli("submit", "no-such.yaml", expect=2).err
    cluster.cli("submit", expect=2)
    cluster.cli("no-such-command", expect=2)
    cluster.cli("list", "-o", "xml", expect=2)


# ---- Data and weights that do not fit: refused (2), or the job fails (100) and says why ----


def assert_fails_naming(cluster, job_file, *words):
    submitted = cluster.cli("submit", job_file, "--id", "bad", "--wait", expect=None)
    assert submitted.code in (2, 100), f"{submitted.code}\n{submitted.err}\n{cluster.log()}"
    said = submitted.err + submitted.out
    if submitted.code == 100:
        job = cluster.cli("get", "bad", "-o", "json").json()
        assert job["state"] == "FAILED" and job.get("restarts", 0) == 0, job
        assert job["failure"]["node"], "it names no node"
        for word in words:
            assert word in job["failure"]["reason"], job["failure"]
    else:
        assert_nothing_is_stored(cluster)
    for word in words:
        assert word in said, f"'{word}' is not in:\n{said}"
    assert not (cluster.folder / "model.safetensors").exists()


def test_missing_training_data(cluster):
    job_file = jobs.write_job(cluster.folder)
    (cluster.folder / "train.bin").unlink()
    assert_fails_naming(cluster, job_file, "train.bin")


def test_token_file_cut_in_the_middle_of_a_token(cluster):
    job_file = jobs.write_job(cluster.folder)
    (cluster.folder / "train.bin").write_bytes(b"\1\0" * 1000 + b"\1")
    assert_fails_naming(cluster, job_file, "train.bin", "2001")


def test_token_file_too_short_for_one_sample(cluster):
    job_file = jobs.write_job(cluster.folder)
    (cluster.folder / "train.bin").write_bytes(b"\1\0" * 16)
    assert_fails_naming(cluster, job_file, "train.bin")


def test_token_beyond_the_vocabulary(cluster):
    job_file = jobs.write_job(cluster.folder)
    (cluster.folder / "train.bin").write_bytes(
        b"\1\0" * 777 + struct.pack("<H", 300) + b"\1\0" * 1000
    )
    assert_fails_naming(cluster, job_file, "train.bin", "300", "256")


def test_missing_weights(cluster):
    job_file = jobs.write_job(cluster.folder, model=gpt2() | {"weights": "no-such.safetensors"})
    assert_fails_naming(cluster, job_file, "no-such.safetensors")


def test_weights_of_another_shape(cluster):
    save_file(
        {"transformer.wte.weight": torch.zeros(100, 32)}, cluster.folder / "weights.safetensors"
    )
    job_file = jobs.write_job(cluster.folder, model=gpt2() | {"weights": "weights.safetensors"})
    assert_fails_naming(cluster, job_file, "weights.safetensors", "wte.weight")


@pytest.mark.parametrize("keep", [4, 60, 1000], ids=["length", "header", "data"])
def test_truncated_weights(cluster, keep):
    path = cluster.folder / "weights.safetensors"
    save_file({"transformer.wte.weight": torch.zeros(256, 32)}, path)
    path.write_bytes(path.read_bytes()[:keep])
    job_file = jobs.write_job(cluster.folder, model=gpt2() | {"weights": "weights.safetensors"})
    assert_fails_naming(cluster, job_file, "weights.safetensors")


def test_corrupt_weights_header(cluster):
    path = cluster.folder / "weights.safetensors"
    path.write_bytes(struct.pack("<Q", 1 << 60) + b"{}")
    job_file = jobs.write_job(cluster.folder, model=gpt2() | {"weights": "weights.safetensors"})
    assert_fails_naming(cluster, job_file, "weights.safetensors")


# ---- Checkpoints ----


def damage(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def largest_file(folder):
    return max((path for path in folder.iterdir()), key=lambda path: path.stat().st_size)


def test_verify_finds_one_flipped_bit_and_a_cut_file(muster):
    muster.cli("run", jobs.write_job(muster.folder))
    newest, *others = sorted((muster.folder / "checkpoints").glob("*/step-*"), reverse=True)
    muster.cli("checkpoints", "verify", newest)
    assert "20" in muster.cli("checkpoints", "inspect", newest).out
    victim = largest_file(newest)
    damage(victim)
    assert victim.name in muster.cli("checkpoints", "verify", newest, expect=1).err
    victim = largest_file(others[0])
    victim.write_bytes(victim.read_bytes()[:-1])
    assert victim.name in muster.cli("checkpoints", "verify", others[0], expect=1).err
    manifest = others[1] / "MANIFEST.json"
    manifest.write_text(manifest.read_text().replace('"step": ', '"step": 10', 1))
    for action in ("verify", "inspect"):
        assert (
            "was changed or is damaged"
            in muster.cli("checkpoints", action, others[1], expect=1).err
        )
    manifest.unlink()
    assert "MANIFEST.json" in muster.cli("checkpoints", "verify", others[1], expect=1).err
    muster.cli("checkpoints", "verify", muster.folder / "no-such", expect=1)


def test_a_damaged_checkpoint_is_set_aside_and_the_one_before_is_used(cluster):
    job_file = jobs.write_job(cluster.folder, stages=[{"fit": {"steps": 400}}])
    client = api.Jobs(cluster.address)
    cluster.cli("submit", job_file, "--id", "damaged")
    next(step for step in client.metrics("damaged", follow=True) if step.step >= 22)
    for worker in cluster.processes("muster-worker"):
        harness.kill(worker.pid)
    recorded = client.get("damaged").checkpoints
    newest = max(recorded, key=lambda checkpoint: checkpoint.step)
    damage(largest_file(pathlib.Path(newest.path)))
    cluster.cli("wait", "damaged")
    job = client.get("damaged")
    assert job.step == 400 and job.restarts >= 1
    assert [step.step for step in client.metrics("damaged")] == list(range(1, 401))
    client.close()
    assert "damage" in cluster.log(2000) or "bad" in cluster.cli("logs", "damaged").out


# ---- Jobs and the coordinator ----


def test_more_ranks_than_slots_waits_and_says_why(cluster):
    job_file = jobs.write_job(cluster.folder, world_size=5)
    # The agent attaches a moment after musterd listens.
    warns = lambda text: "5" in text and "2" in text  # noqa: E731
    harness.eventually(
        lambda: warns((warning := cluster.cli("validate", job_file)).out + warning.err),
        "the warning names both numbers",
    )
    cluster.cli("submit", job_file, "--id", "big")
    client = api.Jobs(cluster.address)
    job = harness.eventually(
        lambda: warns((job := client.get("big")).state_reason) and job, "so does the reason"
    )
    client.close()
    assert job.state == api.Job.QUEUED
    cluster.cli("wait", "big", "--timeout", "1s", expect=101)
    cluster.cli("stop", "big")
    cluster.cli("wait", "big", expect=103)
    assert not (cluster.folder / "checkpoints").exists()


def test_a_job_id_is_taken_once(cluster):
    job_file = jobs.write_job(cluster.folder, world_size=5)
    cluster.cli("submit", job_file, "--id", "same")
    assert "same" in cluster.cli("submit", job_file, "--id", "same", expect=1).err
    assert len(cluster.cli("list", "-o", "json").json()["jobs"]) == 1
    assert (
        "\n--id: 'Not An Id!': expected"
        in cluster.cli("submit", job_file, "--id", "Not An Id!", expect=2).err
    )
    cluster.cli("stop", "same")


@pytest.mark.parametrize("command", ["get", "watch", "wait", "logs", "stop"])
def test_an_unknown_job_is_102(cluster, command):
    assert "nobody" in cluster.cli(command, "nobody", expect=102).err


@pytest.mark.parametrize(
    "command", ["list", "get a", "watch a", "wait a", "logs a", "stop a", "submit FILE"]
)
def test_an_absent_coordinator_is_104(muster, command):
    job_file = jobs.write_job(muster.folder)
    muster.address = "127.0.0.1:1"
    words = [str(job_file) if word == "FILE" else word for word in command.split()]
    assert "127.0.0.1:1" in muster.cli(*words, expect=104).err
    muster.address = None
    # Then it looks for the one of this user on this machine.
    result = muster.cli(*words, expect=104)
    assert f"{muster.state}/muster" in result.err and "--address" in result.err, result.err


def test_a_coordinator_that_goes_while_it_is_watched_is_104(muster):
    daemon = muster.musterd()
    muster.cli("submit", jobs.write_job(muster.folder), "--id", "watched")
    words = ["watch", "watched", "-o", "json", "--retry-for", "1s"]
    watch = muster.spawn("muster", *words, stdout=open(muster.folder / "out", "wb"))
    harness.eventually(lambda: (muster.folder / "out").stat().st_size, "watch shows the job")
    harness.kill(daemon.pid)
    muster.wait(watch, expect=104)
    (muster.folder / "out").unlink()


def test_musterd_refuses_what_cannot_work(muster):
    def ends(*arguments):
        child = muster.spawn("musterd", *arguments)
        code = child.wait(timeout=harness.BOUND)
        return code, muster.log()

    for address in ("0.0.0.0:0", "127.0.0.1:0"):
        code, log = ends("--listen", address, "--state", muster.state)
        assert code == 2 and address in log and "--insecure" in log
    (muster.folder / "file").write_text("")
    code, log = ends("--state", muster.folder / "file")
    assert code != 0 and "file" in log
    muster.state.mkdir(exist_ok=True)
    daemon = muster.musterd()
    code, log = ends("--listen", muster.address, "--insecure", "--state", muster.folder / "other")
    assert code != 0 and muster.address in log
    code, log = ends("--state", muster.state)
    assert code != 0, "two coordinators on one state folder"
    muster.stop(daemon)
