"""Tests of programs that are killed at each of their writes, syncs and renames, or whose calls fail
(strace). Afterwards a file for others is the old file or the new file, and never a part. A failure
leaves nothing else behind; what a kill leaves, the next run removes."""

import itertools
import json
import shutil
import subprocess

import pytest

from tests import bazel, cases
from tests.parity import checkpoints, cluster, sessions, workloads

CALLS = "write,pwrite64,fsync,fallocate,rename,renameat2,mkdir"
FAULTS = {
    "kill": (CALLS, "signal=SIGKILL"),
    "full": ("write,pwrite64,fallocate,mkdir", "error=ENOSPC"),
    "broken": ("write,pwrite64,fsync,rename,renameat2", "error=EIO"),
}
# The calls that are hit: each of the first calls, then some, up to more than any thread makes.
WHEN = [*range(1, 9), *range(9, 60, 3), *range(60, 600, 13)]
if not cases.all_are_run():
    WHEN = [*range(1, 5), *range(5, 60, 4), *range(60, 600, 60)]


def contents(path):
    """A file, or the files of a folder."""
    if path.is_dir():
        return {file.name: file.read_bytes() for file in sorted(path.iterdir())}
    return path.read_bytes()


class Writer:
    """A command, and the path that it replaces. `old` is there before, `new` is what it makes."""

    def __init__(self, command, path, old, new):
        self.command = [str(word) for word in command]
        self.path, self.old, self.new = path, old, new

    def restore(self):
        for entry in self.path.parent.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        if isinstance(self.old, dict):
            self.path.mkdir()
            for name, contents in self.old.items():
                (self.path / name).write_bytes(contents)
        else:
            self.path.write_bytes(self.old)

    def run(self, log, calls, fault, when):
        """Under strace. The counter is each thread's own: the first thread that comes so far is
        hit."""
        command = ["strace", "-f", "-qq", "-o", log, "-e", f"trace={calls}"]
        command += ["-e", f"inject={calls}:{fault}:when={when}"]
        done = subprocess.run(
            [*command, *self.command], capture_output=True, text=True, env=cluster.environment()
        )
        text = log.read_text(errors="replace")
        return done, "(INJECTED)" in text or "killed by SIGKILL" in text

    def others(self):
        return [entry.name for entry in self.path.parent.iterdir() if entry != self.path]


def session(folder, command, **spec):
    job = workloads.gpt2(folder) | {
        "strategy": {"fsdp": {}},
        "world_size": 2,
        "optimizer": {"adamw": {"lr": 1e-3}},
        "batch": {"per_rank": 2},
        "stages": [{"fit": {"steps": 2}}],
        **spec,
    }
    (folder / "job.yaml").write_text(json.dumps(job))
    (folder / "commands").write_text(json.dumps(command) + "\n" if command else "")
    program = bazel.runfile("worker/control/muster-session")
    return [program, folder / "job.yaml", "--commands", folder / "commands"]


def made(command, path, folder):
    """The result of an undisturbed run."""
    path.parent.mkdir(exist_ok=True)
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, env=cluster.environment()
    )
    assert done.returncode == 0 and "command " not in done.stderr, done.stderr
    return contents(path)


def gather(folder):
    path = folder / "out/state.pt"
    file = {"path": str(path), "overwrite": True}
    command = session(folder, {"at_step": 1, "gather_optimizer_state": {"file": file}})
    return Writer(command, path, b"old", made(command, path, folder))


def consolidate(folder):
    path = folder / "out/model"
    wanted = {"path": str(path), "overwrite": True, "max_shard_bytes": 30000}
    command = session(folder, {"at_step": 1, "consolidate": {"folder": wanted}})
    return Writer(command, path, {"config.json": b"old"}, made(command, path, folder))


def export(folder):
    path = folder / "out/model.safetensors"
    command = session(folder, None, export={"path": str(path), "overwrite": True})
    return Writer(command, path, b"old", made(command, path, folder))


def predict(folder):
    path = folder / "out/predictions.safetensors"
    stages = [{"predict": {"output": str(path), "overwrite": True}}]
    data = workloads.gpt2(folder)["data"]
    data["predict"] = data["train"]
    command = session(folder, None, stages=stages, data=data)
    return Writer(command, path, b"old", made(command, path, folder))


def generate(folder):
    path = folder / "out/texts.json"
    texts = {"prompts": [[1, 2], [3]], "max_tokens": 8}
    stages = [{"predict": {"output": str(path), "overwrite": True, "generate": texts}}]
    command = session(folder, None, stages=stages)
    return Writer(command, path, b"old", made(command, path, folder))


def offline(folder):
    steps = sessions.run(
        workloads.gpt2(folder)
        | {
            "strategy": {"fsdp": {}},
            "world_size": 2,
            "optimizer": {"adamw": {"lr": 1e-3}},
            "batch": {"per_rank": 2},
            "stages": [{"fit": {"steps": 1}}],
        },
        folder / "run",
    )
    path = folder / "out/model"
    command = [bazel.runfile("client/cli/muster"), "consolidate", steps[1], "--out", path]
    command += ["--overwrite", "--max-shard-size", "30KB"]
    return Writer(command, path, {"config.json": b"old"}, made(command, path, folder))


# The first ones show each writer and each fault.
WRITERS = [
    *itertools.product([offline], FAULTS),
    (consolidate, "kill"),
    (predict, "kill"),
    (gather, "full"),
    (consolidate, "broken"),
    (consolidate, "full"),
    (gather, "kill"),
    (gather, "broken"),
    (export, "kill"),
]


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
@pytest.mark.parametrize("make, fault", cases.first_ones(WRITERS, 5))
def test_there_is_the_old_one_or_the_new_one(make, fault, tmp_path):
    writer = make(tmp_path)
    calls, injected = FAULTS[fault]
    hits = olds = 0
    for when in WHEN:
        writer.restore()
        done, hit = writer.run(tmp_path / "strace", calls, injected, when)
        found = contents(writer.path)
        assert found in (writer.old, writer.new), (when, done.stderr)
        if not hit:
            assert done.returncode == 0 and found == writer.new, done.stderr
            assert writer.others() in ([], ["config.json"])  # an export has it beside it
            break
        hits += 1
        olds += found == writer.old
        if fault == "kill":
            continue
        assert writer.others() == [], when
    else:
        pytest.fail(f"a thread made {WHEN[-1]} of the calls")
    assert hits >= 3, hits
    assert olds >= 2, olds


# These are so few calls that each is hit by its name.
@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
@pytest.mark.parametrize(
    "call, when, new",
    [
        ("fallocate", 1, False),
        ("write", 1, False),
        ("fsync", 1, False),
        ("rename", 1, False),
        ("fsync", 2, True),
    ],
)
def test_there_are_the_old_texts_or_the_new_ones(call, when, new, tmp_path):
    writer = generate(tmp_path)
    writer.restore()
    hit = writer.run(tmp_path / "strace", call, "signal=SIGKILL", when)[1]
    assert hit
    assert contents(writer.path) == (writer.new if new else writer.old)
    # The next run removes the files that the kill left.
    done, hit = writer.run(tmp_path / "strace", call, "signal=SIGKILL", 100)
    assert done.returncode == 0 and not hit, done.stderr
    assert contents(writer.path) == writer.new and writer.others() == []


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_what_a_kill_left_the_next_run_removes(tmp_path):
    writer = offline(tmp_path)
    writer.restore()
    assert writer.run(tmp_path / "strace", "fsync", "signal=SIGKILL", 2)[1]
    assert writer.others() == [".model.muster.tmp"]
    assert writer.run(tmp_path / "strace", "fsync", "signal=SIGKILL", WHEN[-1])[0].returncode == 0
    assert writer.others() == [] and contents(writer.path) == writer.new


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_a_checkpoint_is_whole_or_it_has_no_name(tmp_path):
    command = session(
        tmp_path,
        None,
        stages=[{"fit": {"steps": 2}}],
        checkpoint={"directory": str(tmp_path / "ckpt"), "every_steps": 1, "keep": 10},
    )
    calls, injected = FAULTS["kill"]
    writer = Writer(command, tmp_path / "ckpt", {}, None)
    hits = whole = 0
    for when in WHEN:
        shutil.rmtree(tmp_path / "ckpt", ignore_errors=True)
        done, hit = writer.run(tmp_path / "strace", calls, injected, when)
        for folder in tmp_path.glob("ckpt/job/step-*"):
            if folder.name.endswith(".tmp"):
                continue
            told = subprocess.run(
                [bazel.runfile("client/cli/muster"), "checkpoints", "verify", folder],
                capture_output=True,
                text=True,
            )
            assert told.returncode == 0, (when, told.stderr)
            whole += 1
        if not hit:
            assert done.returncode == 0, done.stderr
            assert len(checkpoints.all_steps(tmp_path / "ckpt", "job")) == 2
            break
        hits += 1
    assert hits >= 3 and whole >= 2, (hits, whole)
