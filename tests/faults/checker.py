"""Checks the invariants I1 to I9 of a run under faults, whatever the faults were, and lists the
violations by name.

I1 what was acknowledged is there. I2 generations only grow. I3 one owner per (job, generation,
rank), and never two generations at once. I4 steps without gap or duplicate. I5 and I6 all is as in
the undisturbed run, to the bit. I7 nothing damaged is used, nothing good condemned. I8 nothing is
left behind. I9 every wait of the test is bounded, and says by name what did not come."""

import dataclasses
import hashlib
import json
import struct
import threading

import grpc
from safetensors.numpy import load_file

from tests.bazel import bound
from tests.faults import lifespans
from tests.faults.world import ENDED, state_name
from tests.process import api


class Watcher:
    """Reads the job continuously, and keeps everything that a client could have seen."""

    def __init__(self, address, job_id="job"):
        self._client = api.Jobs(address)
        self._job_id = job_id
        self._over = threading.Event()
        self.problems = []
        # path -> step of every checkpoint that was ever shown as one that counts.
        self.saved = {}
        self.reasons = set()
        self._newest = (0, 0)
        self._lock = threading.Lock()
        self._forgotten = 0
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self):
        while not self._over.wait(0.05):
            forgotten = self._forgotten
            try:
                job = self._client.get(self._job_id, timeout=1)
            except (grpc.RpcError, ValueError):
                continue
            with self._lock:
                # An answer of the coordinator before, which this thread takes in late.
                if forgotten != self._forgotten:
                    continue
                self.look(job)

    def look(self, job):
        for name, before, now in zip(
            ("version", "generation"), self._newest, (job.version, job.generation)
        ):
            if now < before:
                self.problems.append(f"I2: the {name} went back from {before} to {now}")
        self._newest = (job.version, job.generation)
        if job.reason:
            self.reasons.add(job.reason)
        for checkpoint in job.checkpoints:
            if not checkpoint.bad_reason:
                self.saved[checkpoint.path] = checkpoint.step

    def forget(self):
        """The store will be replaced by an older one, which need not agree with what was seen. The
        coordinator has ended."""
        with self._lock:
            self._newest = (0, 0)
            self._forgotten += 1

    def close(self):
        self._over.set()
        self._thread.join(timeout=bound(10))
        self._client.close()


@dataclasses.dataclass(frozen=True)
class Result:
    """The results of a run that must be equal in all runs, whatever faults happened."""

    losses: tuple
    weights: bytes
    commands: tuple
    checkpoint: str

    def differences(self, other):
        return [
            field.name
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != getattr(other, field.name)
        ]


def state_hash(folder):
    """The hash of all complete tensors of a checkpoint. Which rank wrote which piece is ignored,
    because it depends on earlier events."""
    manifest = json.loads((folder / "MANIFEST.json").read_text())
    files = {entry["name"]: load_file(folder / entry["name"]) for entry in manifest["files"]}
    hashed = hashlib.sha256()
    for piece in sorted(
        manifest["pieces"], key=lambda piece: (piece["slot"], piece["parameter"], piece["begin"])
    ):
        name = f"{piece['slot']}/{piece['parameter']}"
        if piece["begin"] == 0:
            hashed.update(name.encode())
        if piece["end"] > piece["begin"] or name in files[piece["file"]]:
            hashed.update(files[piece["file"]][name].tobytes())
    return hashed.hexdigest()


def result_of(world, job_id="job"):
    """The Result of a job that has ended, while musterd runs."""
    muster = world.muster
    steps = list(world.client.metrics(job_id))
    operations = muster.cli("operations", job_id, "-o", "json").json().get("operations", [])
    newest = max(world.get(job_id).checkpoints, key=lambda saved: saved.step, default=None)
    exported = muster.folder / "model.safetensors"
    return Result(
        losses=tuple((step.step, struct.pack("<d", step.loss)) for step in steps),
        weights=tensors_of(exported.read_bytes()) if exported.exists() else b"",
        commands=tuple(
            sorted((op["name"], op["kind"], op.get("applied_at_step", "")) for op in operations)
        ),
        checkpoint=(
            state_hash(muster.folder / "checkpoints" / job_id / newest.path.rsplit("/", 1)[1])
            if newest
            else ""
        ),
    )


def tensors_of(safetensors):
    """The tensors without the header, because its metadata names the run that wrote the file."""
    (length,) = struct.unpack_from("<Q", safetensors)
    return safetensors[8 + length :]


def violations(
    world,
    watcher,
    job,
    result,
    undisturbed,
    acknowledged=(),
    lost_steps=(),
    lost_commands=False,
    damaged=None,
):
    """All violations of a job that has ended; musterd still runs. `acknowledged`: names of
    operations. `lost_steps`: the steps whose metrics are lost according to
    docs/reference/faults.md. `lost_commands`: True if the step at which a command took effect may
    be unknown. `damaged`: the path of a checkpoint that the test has damaged."""
    found = list(watcher.problems)
    if job.state != api.Job.SUCCEEDED:
        return [*found, f"I9: the job ended {state_name(job)}: {job.state_reason}"]

    # I1
    commands = {name: applied for name, _, applied in result.commands}
    for name in acknowledged:
        if name not in commands:
            found.append(f"I1: operation {name} was acknowledged and is not there")
    kept = {checkpoint.path for checkpoint in job.checkpoints}
    newest_kept = sorted(
        checkpoint.step for checkpoint in job.checkpoints if not checkpoint.bad_reason
    )
    for path, step in watcher.saved.items():
        newer = [other for other in newest_kept if other > step]
        if path != damaged and path not in kept and len(newer) < job.spec.checkpoint.keep:
            found.append(
                f"I1: checkpoint {path} was acknowledged and is not there; newer ones: {newer}"
            )

    # I3
    for one, other in lifespans.overlaps(world.lives()):
        seconds = min(one.end_after, other.end_after) - max(one.start, other.start)
        found.append(
            f"I3: generation {one.generation} rank {one.rank} (pid {one.pid}) and generation "
            f"{other.generation} rank {other.rank} "
            f"(pid {other.pid}) were alive at once for {seconds:.3f} s"
        )

    # I4
    steps = [step for step, _ in result.losses]
    expected = [
        step for step in range(1, job.total_steps + 1) if step not in lost_steps or step in steps
    ]
    if steps != expected:
        missing = sorted(set(expected) - set(steps))
        found.append(
            f"I4: of the steps 1 to {job.total_steps} {missing or 'some, twice,'} are missing or "
            f"doubled in the metrics"
        )

    # I5, I6
    calm = dict(undisturbed.losses)
    wrong = [step for step, loss in result.losses if calm.get(step) != loss]
    if wrong:
        found.append(f"I6: the losses of steps {wrong[:5]} differ from the undisturbed run's")
    # Without what the faults themselves have asked for (a resume).
    planned = {name for name, *_ in undisturbed.commands}
    result = dataclasses.replace(
        result, commands=tuple(command for command in result.commands if command[0] in planned)
    )
    for field in result.differences(undisturbed):
        if field == "losses" or (field == "commands" and lost_commands):
            continue
        told = (
            f": {result.commands} instead of {undisturbed.commands}" if field == "commands" else ""
        )
        found.append(f"I6: {field} differ from the undisturbed run's{told}")

    # I7
    folder = world.muster.folder / "checkpoints" / job.id
    for checkpoint in job.checkpoints:
        if checkpoint.path == damaged:
            if not checkpoint.bad_reason:
                found.append(f"I7: {damaged} is damaged, and counts")
            continue
        if checkpoint.bad_reason:
            found.append(
                f"I7: {checkpoint.path} was condemned, and nobody had damaged it: "
                f"{checkpoint.bad_reason}"
            )
            continue
        verified = world.muster.cli(
            "checkpoints", "verify", folder / checkpoint.path.rsplit("/", 1)[1], expect=None
        )
        if verified.code != 0:
            found.append(
                f"I7: {checkpoint.path} counts, and does not verify: "
                f"{(verified.out + verified.err)[-200:]}"
            )
    found += [
        f"I7: {path.name} was set aside, and nobody had damaged it"
        for path in folder.glob("*.bad*")
        if damaged is None or not path.name.startswith(damaged.rsplit("/", 1)[1])
    ]
    return found


def leftovers(world, expected=()):
    """I8, when all programs have been stopped. `expected`: names that the test itself made."""
    muster = world.muster
    found = [
        f"I8: process {process.pid} is left: {process.command[:120]}"
        for process in muster.processes()
    ]
    found += [f"I8: {path} is left" for path in muster.folder.rglob("*") if ".tmp" in path.name]
    found += [
        f"I8: {path} is left in the system's temporary folder"
        for path in muster.temporary.iterdir()
    ]
    return [line for line in found if not any(name in line for name in expected)]
