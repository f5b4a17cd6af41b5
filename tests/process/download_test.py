"""`gather-optimizer-state --download`: the file comes to the client's machine, whoever is killed in
the middle, and nothing of it stays anywhere else."""

import shutil

import pytest
import torch

from tests.process import harness, jobs

needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
# A state of about 20 MB: many pieces.
MODEL = {"gpt2": {"vocab_size": 8192, "context": 16, "layers": 1, "heads": 2, "width": 256}}


@pytest.fixture
def cluster(muster):
    """A paused job whose two ranks are on two agents."""
    muster.daemon = muster.musterd()
    muster.agent("node-1")
    muster.agent("node-2")
    job_file = jobs.write_job(
        muster.folder,
        model=MODEL,
        strategy={"fsdp": {}},
        stages=[{"fit": {"steps": 100000}}],
        export=None,
        checkpoint=None,
    )
    muster.cli("submit", job_file, "--id", "job")
    harness.eventually(
        lambda: int(muster.cli("get", "job", "-o", "json").json().get("step", 0)) > 0,
        "it trains",
    )
    muster.cli("pause", "job", "--wait")
    (muster.folder / "laptop").mkdir()
    yield muster
    muster.cli("stop", "job", expect=None)
    muster.cli("wait", "job", expect=103)
    muster.stop(*(child for child in muster._children if child.poll() is None))
    muster.assert_no_process()


def laptop(muster):
    return sorted(found.name for found in (muster.folder / "laptop").iterdir())


def on_nodes(muster):
    return sorted(found.name for found in muster.state.glob("**/downloads/*"))


def await_nothing_left(muster):
    harness.eventually(lambda: on_nodes(muster) == [], "the cluster removes its copy")
    assert laptop(muster) == ["state.pt"]


def gathered(muster):
    """The same state, on a path of the cluster."""
    path = muster.folder / "shared.pt"
    muster.cli("gather-optimizer-state", "job", "--out", path, "--wait", "--overwrite")
    return path.read_bytes()


def begin(muster, calls, fault, *more):
    """A client that gathers and receives the file, with a fault in these calls on what it has
    received. Returns it, its operation, and the part."""
    path = muster.folder / "laptop/state.pt"
    operations = muster.cli("operations", "job").out.splitlines()
    number = int(operations[-1].split()[0].split("/")[1]) + 1
    part = muster.folder / f"laptop/.state.pt.job-{number}.part"
    prefix = ["strace", "-f", "-qq", "-o", muster.folder / "strace", "-P", part]
    prefix += ["-e", f"trace={calls}", "-e", f"inject={calls}:{fault}"]
    with open(muster.folder / "said", "wb") as said:
        client = muster.spawn(
            "muster",
            *("gather-optimizer-state", "job", "--out", path, "--download", *more),
            prefix=prefix,
            stderr=said,
        )
    return client, f"job/{number}", part


def break_off(muster, calls, fault, *more, expect):
    """The same, until it has failed; returns what it says, too."""
    client, name, part = begin(muster, calls, fault, *more)
    client.wait(timeout=harness.BOUND)
    said = (muster.folder / "said").read_text()
    assert client.returncode == expect, said
    return name, part, said


def test_the_file_is_the_one_that_the_cluster_would_write(cluster):
    muster = cluster
    path = muster.folder / "laptop/state.pt"
    gather = ("gather-optimizer-state", "job", "--out", path, "--download")
    done = muster.cli(*gather)
    assert f"{path}: " in done.out and "received in" in done.out
    assert path.read_bytes() == gathered(muster)
    state = torch.load(path, weights_only=True)
    assert len(state["state"]) == len(state["param_groups"][0]["params"])
    await_nothing_left(muster)

    # Nothing is gathered for a file that exists.
    before = len(muster.cli("operations", "job").out.splitlines())
    refused = muster.cli(*gather, expect=1).err
    assert "there is such a file; give another name, or --overwrite" in refused
    assert "No such file" in muster.cli(*gather[:3], "no/folder/x", "--download", expect=1).err
    assert len(muster.cli("operations", "job").out.splitlines()) == before
    muster.cli(*gather, "--overwrite", "--format", "safetensors", "--hold")
    assert b"muster_optimizer" in path.read_bytes()[:1000000]
    await_nothing_left(muster)

    # Only such a file is fetched.
    shared = muster.cli("gather-optimizer-state", "job", "--out", muster.folder / "x", "--wait")
    name = shared.out.split()[1].rstrip(":")
    other = muster.folder / "laptop/other.pt"
    assert "writes no file to download" in muster.cli(
        "operation", name, "--download", other, expect=1
    ).err
    assert laptop(muster) == ["state.pt"]


@needs_strace
def test_a_client_that_is_killed_is_continued_also_after_the_end_of_the_job(cluster):
    muster = cluster
    path = muster.folder / "laptop/state.pt"
    expected = gathered(muster)
    name, part, _ = break_off(muster, "write", "signal=SIGKILL:when=7", expect=-9)
    assert laptop(muster) == [part.name]
    assert 0 < part.stat().st_size < len(expected)
    assert on_nodes(muster) == [name.replace("/", "-")]
    muster.cli("stop", "job", "--wait")
    muster.cli("wait", "job", expect=103)
    muster.cli("operation", name, "--download", path)
    assert path.read_bytes() == expected
    await_nothing_left(muster)
    gone = muster.cli("operation", name, "--download", path, "--overwrite", expect=102).err
    assert "does not have the file" in gone and "gather again" in gone
    await_nothing_left(muster)


@needs_strace
def test_what_an_old_part_has_wrong_is_received_again(cluster):
    muster = cluster
    path = muster.folder / "laptop/state.pt"
    expected = gathered(muster)
    name, part, _ = break_off(muster, "write", "signal=SIGKILL:when=7", expect=-9)
    part.write_bytes(bytes(part.stat().st_size))
    muster.cli("operation", name, "--download", path)
    assert path.read_bytes() == expected
    await_nothing_left(muster)


@needs_strace
def test_a_disk_of_the_client_that_is_full_or_broken_leaves_nothing(cluster):
    muster = cluster
    path = muster.folder / "laptop/state.pt"
    for calls, fault, error in [
        ("write", "error=ENOSPC:when=7", "No space left on device"),
        ("fsync", "error=EIO:when=1", "Input/output error"),
    ]:
        name, _, said = break_off(muster, calls, fault, expect=1)
        assert error in said and f"`muster operation {name} --download {path}` fetches it" in said
        assert laptop(muster) == []
        assert on_nodes(muster) == [name.replace("/", "-")]
        muster.cli("operation", name, "--download", path)
        assert path.read_bytes() == gathered(muster)
        await_nothing_left(muster)
        path.unlink()


@needs_strace
def test_a_file_that_may_be_replaced_stays_until_the_new_one_is_whole(cluster):
    muster = cluster
    path = muster.folder / "laptop/state.pt"
    path.write_text("the old one")
    name, _, said = break_off(
        muster, "write", "error=ENOSPC:when=7", "--overwrite", expect=1
    )
    assert path.read_text() == "the old one" and laptop(muster) == [path.name]
    assert f"`muster operation {name} --download {path} --overwrite` fetches it" in said
    muster.cli("operation", name, "--download", path, "--overwrite")
    assert path.read_bytes() == gathered(muster)
    await_nothing_left(muster)


@needs_strace
def test_musterd_is_restarted_in_the_middle(cluster):
    muster = cluster
    path = muster.folder / "laptop/state.pt"
    expected = gathered(muster)
    # Each write waits, so that the transfer lasts.
    client, _, part = begin(muster, "write", "delay_enter=100000")
    harness.eventually(lambda: part.exists() and part.stat().st_size > 0, "it begins")
    harness.kill(muster.daemon.pid)
    muster.daemon.wait(timeout=harness.BOUND)
    assert part.stat().st_size < len(expected)
    muster.musterd()
    assert client.wait(timeout=harness.BOUND) == 0, muster.log()
    assert path.read_bytes() == expected
    await_nothing_left(muster)
