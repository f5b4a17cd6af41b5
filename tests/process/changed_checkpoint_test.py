"""Every change of a checkpoint's files is found by `muster checkpoints verify`, and by a job that
begins with the checkpoint."""

import random

import pytest

from tests import cases
from tests.process import api, harness, jobs


def edits(text):
    """Changes of a manifest that are still JSON, and would be believed without its hash."""
    for name, number in (("step", 20), ("generation", 1), ("world_size", 2)):
        yield f"{name} is another number", text.replace(f'"{name}": {number}', f'"{name}": 1066', 1)
    for name in ("cursor", "epoch", "steering", "pieces", "manifest_xxh3_128"):
        yield f"{name} is renamed", text.replace(f'"{name}"', f'"{name}_"', 1)
    step = text.replace('"step": 20', '"step_": 20,\n "step": 1066', 1)
    yield "step is renamed, and another one is there", step
    old = text.replace('"version": 3', '"version": 1', 1)
    yield "a version without a hash", old
    yield "a version without a hash, and another step", old.replace('"step": 20', '"step": 1066', 1)


def changes(folder, flips):
    """Yields the name of a change, the file, and its new bytes."""
    paths = sorted(folder.iterdir())
    dice = random.Random(flips)
    sizes = [path.stat().st_size for path in paths]
    for _ in range(flips):
        [path] = dice.choices(paths, sizes)
        data = bytearray(path.read_bytes())
        place, bit = dice.randrange(len(data)), dice.randrange(8)
        data[place] ^= 1 << bit
        yield f"bit {bit} of byte {place}", path, bytes(data)
    for path in paths:
        data = path.read_bytes()
        header = bytearray(data)
        header[12] ^= 1
        yield "a bit of the first line", path, bytes(header)
        yield "cut off", path, data[: len(data) // 2]
        yield "the last byte cut off", path, data[:-1]
        yield "empty", path, b""
        yield "a byte appended", path, data + b"\n"
    manifest = folder / "MANIFEST.json"
    for what, text in edits(manifest.read_text()):
        yield what, manifest, text.encode()


@pytest.fixture
def checkpoint(muster):
    """The last checkpoint of a job that has ended."""
    muster.cli("run", jobs.write_job(muster.folder))
    return max((muster.folder / "checkpoints").glob("*/step-20-*"))


@pytest.mark.parametrize("flips", cases.first_ones([40, 1000], 1))
def test_verify_finds_each(muster, checkpoint, flips):
    muster.cli("checkpoints", "verify", checkpoint)
    missed = []
    count = 0
    for what, path, data in changes(checkpoint, flips):
        good = path.read_bytes()
        assert data != good, f"{what} of {path.name} changes nothing"
        path.write_bytes(data)
        result = muster.cli("checkpoints", "verify", checkpoint, expect=None)
        if result.code != 1 or path.name not in result.err:
            missed.append((path.name, what, result))
        path.write_bytes(good)
        count += 1
    assert missed == [] and count > flips
    muster.cli("checkpoints", "verify", checkpoint)


def some(folder):
    """One change of each kind of file."""
    by_name = {}
    for what, path, data in changes(folder, 0):
        by_name[path.name, what] = (path, data)
    yield by_name["MANIFEST.json", "a version without a hash, and another step"]
    yield by_name["MANIFEST.json", "step is another number"]
    yield by_name["rank-0.safetensors", "a bit of the first line"]
    data = bytearray((folder / "rank-1.safetensors").read_bytes())
    data[-1] ^= 1
    yield folder / "rank-1.safetensors", bytes(data)


def test_a_job_that_begins_with_it_finds_each(muster, checkpoint):
    daemon = muster.musterd(local_slots=2)
    client = api.Jobs(muster.address)
    start = {"checkpoint": str(checkpoint), "what": "everything"}
    begins = {
        "start": start,
        "stages": [{"fit": {"steps": 21}}],
        "checkpoint": None,
        "export": None,
        "restart": {"max_restarts": 0},
    }
    job_file = jobs.write_job(muster.folder, **begins)
    for number, (path, data) in enumerate(some(checkpoint)):
        good = path.read_bytes()
        path.write_bytes(data)
        if path.name == "MANIFEST.json":
            # The coordinator reads it, too.
            refused = muster.cli("submit", job_file, "--id", f"changed-{number}", expect=2)
            assert path.name in refused.err, refused.err
            path.write_bytes(good)
            continue
        muster.cli("submit", job_file, "--id", f"changed-{number}", "--wait", expect=100)
        job = client.get(f"changed-{number}")
        assert job.state == api.Job.FAILED and path.name in job.state_reason, job.state_reason
        assert job.step == 0, "it trained"
        path.write_bytes(good)
    muster.cli("submit", job_file, "--id", "good", "--wait")
    assert client.get("good").step == 21
    client.close()
    muster.stop(daemon)


def listed(muster):
    return muster.cli("checkpoints", "list", "job").out


def test_a_job_that_goes_on_sets_it_aside(muster):
    """The checkpoint before is used; what was changed is kept under another name."""
    daemon = muster.musterd(local_slots=2)
    client = api.Jobs(muster.address)
    job_file = jobs.write_job(muster.folder, stages=[{"fit": {"steps": 1000000}}])
    muster.cli("submit", job_file, "--id", "job")
    folder = muster.folder / "checkpoints/job"
    harness.eventually(
        lambda: len(list(folder.glob("step-*[0-9]"))) > 1, "two checkpoints are there"
    )
    muster.cli("pause", "job", "--wait")
    step = client.get("job").step
    newest = folder / f"step-{step - step % 5}-g1"
    # The save of the newest checkpoint may still run in the background.
    harness.eventually(lambda: newest.name in listed(muster), "the newest checkpoint counts")
    manifest = newest / "MANIFEST.json"
    text = manifest.read_text().replace('"version": 3', '"version": 1', 1)
    manifest.write_text(text.replace('"cursor": ', '"cursor": 10', 1))
    harness.kill(client.get("job").ranks[0].pid)
    bad = newest.with_name(newest.name + ".bad")
    harness.eventually(bad.exists, "the changed checkpoint is set aside")
    harness.eventually(lambda: client.get("job").generation == 2, "the job goes on")
    harness.eventually(lambda: "damaged" in listed(muster), "the coordinator is told")
    muster.cli("stop", "job")
    muster.cli("wait", "job", expect=103)
    client.close()
    muster.stop(daemon)
