"""The metrics of a job: while it runs, after its end, and when there are more than are kept."""

import csv
import io
import json
import math

from tests.process import api, harness, jobs

TOKENS = {"tokens": {"path": "train.bin", "dtype": "uint16"}}


def rows(text):
    """The rows of a CSV file, read according to RFC 4180."""
    assert text.endswith("\r\n")
    return list(csv.DictReader(io.StringIO(text, newline=""), strict=True))


def steps_of(table):
    return [int(row["step"]) for row in table if row["loss"]]


def test_csv_follows_a_job_over_a_restart_of_the_coordinator(muster):
    steps, every = 300, 50
    # Even on a busy machine no process is given up while the coordinator is down.
    muster.lease = "60s"
    job_file = jobs.write_job(
        muster.folder,
        data={"train": TOKENS, "validate": TOKENS},
        stages=[{"validate": {}}, {"fit": {"steps": steps, "validate_every": every}}],
        checkpoint=None,
        export=None,
    )
    daemon = muster.musterd()
    agents = [muster.agent("node-1"), muster.agent("node-2")]
    client = api.Jobs(muster.address)
    muster.cli("submit", job_file, "--id", "job")
    path = muster.folder / "followed.csv"
    with open(path, "wb") as out:
        follower = muster.spawn("muster", "metrics", "job", "-f", "-o", "csv", stdout=out)

    # While it runs.
    job = harness.eventually(
        lambda: (now := client.get("job")).step >= 60 and now.tokens_per_second > 0 and now,
        "the job's throughput is shown",
    )
    assert job.state == api.Job.RUNNING
    assert job.samples_per_second > 0 and job.model_flops_per_second > 0
    assert job.tokens_per_second == 16 * job.samples_per_second
    assert math.isclose(job.perplexity, math.exp(job.loss))
    assert job.grad_norm > 0 and job.skipped_steps == 0
    assert "tokens/s" in muster.cli("get", "job").out
    harness.eventually(lambda: b"\r\n60," in path.read_bytes(), "the follower has step 60")
    harness.kill(daemon.pid)
    daemon.wait(timeout=harness.BOUND)
    daemon = muster.musterd()
    muster.cli("wait", "job")
    muster.wait(follower)

    # Every step and every validation pass once, in order, and equal to what a later client gets.
    text = path.read_bytes().decode()
    table = rows(text)
    assert steps_of(table) == list(range(1, steps + 1))
    passes = [row for row in table if row["validation_loss"]]
    assert [int(row["step"]) for row in passes] == list(range(0, steps + 1, every))
    assert table[0] is passes[0]
    for row in passes[1:]:
        assert table[table.index(row) - 1]["step"] == row["step"]
    later = muster.cli("metrics", "job", "-o", "csv").out
    # subprocess reads \r\n as \n.
    assert later == text.replace("\r\n", "\n")
    assert muster.cli("metrics", "job", "-f", "-o", "csv").out == later

    # Checks the columns, and that the API has the same values.
    entries = list(client.entries("job"))
    assert len(entries) == len(table)
    for row, entry in zip(table, entries):
        assert (int(row["step"]), int(row["generation"])) == (entry.step, entry.generation)
        if entry.HasField("validation"):
            assert float(row["validation_loss"]) == entry.validation.loss
            assert float(row["validation_accuracy"]) == entry.validation.accuracy
            assert math.isclose(entry.validation.perplexity, math.exp(entry.validation.loss))
            # 4096 tokens, 16 to a sample.
            assert int(row["validation_samples"]) == entry.validation.samples == 255
            continue
        seconds = float(row["seconds"])
        assert float(row["loss"]) == entry.loss and row["skipped"] == "false"
        assert math.isclose(float(row["perplexity"]), math.exp(entry.loss))
        assert (int(row["samples"]), int(row["tokens"])) == (8, 128)
        assert math.isclose(float(row["samples_per_second"]), 8 / seconds, rel_tol=1e-6)
        assert math.isclose(float(row["tokens_per_second"]), 128 / seconds, rel_tol=1e-6)
        assert float(row["grad_norm"]) > 0 and row["loss_scale"] == ""
    # A forward's operations depend on the model alone.
    flops = [
        float(row["model_flops_per_second"]) * float(row["seconds"]) for row in table if row["loss"]
    ]
    assert min(flops) > 0 and math.isclose(min(flops), max(flops), rel_tol=1e-6)
    lines = muster.cli("metrics", "job", "-o", "json").out.splitlines()
    assert [int(json.loads(line)["step"]) for line in lines] == [entry.step for entry in entries]
    assert "validation, 255 samples, accuracy" in muster.cli("metrics", "job").out

    job = client.get("job")
    assert job.loss == entries[-2].loss and job.grad_norm == entries[-2].grad_norm
    assert job.validation_step == steps
    assert job.validation_accuracy == entries[-1].validation.accuracy
    assert job.validation_perplexity == entries[-1].validation.perplexity
    client.close()
    muster.stop(*agents, daemon)


def test_old_steps_are_thinned(muster):
    steps, kept = 150, 48
    job_file = jobs.write_job(
        muster.folder,
        data={"train": TOKENS, "validate": TOKENS},
        stages=[{"fit": {"steps": steps, "validate_every": 75}}],
        checkpoint=None,
        export=None,
    )
    more = ["--keep-metrics", kept]
    daemon = muster.musterd(local_slots=2, more=more)
    muster.cli("submit", job_file, "--id", "job")
    path = muster.folder / "followed.csv"
    with open(path, "wb") as out:
        follower = muster.spawn("muster", "metrics", "job", "-f", "-o", "csv", stdout=out)
    muster.cli("wait", "job")
    muster.wait(follower)
    text = muster.cli("metrics", "job", "-o", "csv").out
    left = text.splitlines()
    # Values of the steps themselves: the same lines as were printed before steps were thinned out.
    assert set(left) < set(path.read_bytes().decode().replace("\r\n", "\n").splitlines())
    table = rows(text.replace("\n", "\r\n"))
    found = steps_of(table)
    assert 24 < len(found) <= kept
    assert found[-24:] == list(range(steps - 23, steps + 1))
    # One to a stride behind them: 126, 124, 120, 112, 96, 64.
    assert found[:-24] == [64, 96, 112, 120, 124, 126]
    # The two passes are few, whatever their steps.
    assert [int(row["step"]) for row in table if row["validation_loss"]] == [75, 150]
    muster.stop(daemon)

    daemon = muster.musterd(local_slots=2, more=more)
    assert muster.cli("metrics", "job", "-o", "csv").out == text
    muster.stop(daemon)


def test_a_bound_that_is_too_small_is_refused(muster):
    state = muster.folder / "state"
    child = muster.spawn(
        "musterd", "--state", state, "--keep-metrics", "47"
    )
    muster.wait(child, expect=2)
    assert "--keep-metrics" in muster.log()
