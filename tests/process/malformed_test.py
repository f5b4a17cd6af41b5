"""Malformed inputs of every kind: each is refused with an error that has the cause, expected and
found.

Cases for which files must be read run in muster-session, which is the worker's own code in one
process, so that AddressSanitizer can check it:
    bazel test --config=asan //tests/process:malformed_test
"""

import os
import random
import resource
import subprocess

import pytest
import yaml

from tests.bazel import bound, runfile
from tests.process import inputs, malformed_cases

CASES = malformed_cases.CASES
REFUSED, FAILED = 2, 100
SANITIZER_REPORTS = ["Sanitizer", "runtime error:"]


def room_for_sanitized_frames():
    """LibTorch takes tuples within tuples apart by recursion. Under AddressSanitizer a call needs
    more of the stack."""
    if "ASAN_OPTIONS" in os.environ:
        _, most = resource.getrlimit(resource.RLIMIT_STACK)
        wanted = 1 << 30
        room = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        resource.setrlimit(resource.RLIMIT_STACK, (room, most))


class Shelf:
    """A folder for jobs and their files, and the files that a program left in it."""

    def __init__(self, folder):
        self.folder = folder / "job"
        self.temporary = folder / "tmp"
        self.folder.mkdir()
        self.temporary.mkdir()

    def write(self, job, name="job.yaml"):
        path = self.folder / name
        path.write_text(job if isinstance(job, str) else yaml.safe_dump(job))
        return path

    def files(self):
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*"))

    def run(self, program, *arguments):
        """Returns (exit code, all output). The program must neither crash nor leave files."""
        before = self.files()
        # LibTorch's own allocations at start are never freed.
        leaks = "detect_leaks=0" if "session" in program else "detect_leaks=1"
        done = subprocess.run(
            [runfile(program), *map(str, arguments)],
            cwd=self.folder,
            env={
                "PATH": "/usr/bin:/bin",
                "TMPDIR": str(self.temporary),
                "OMP_NUM_THREADS": "1",
                "ASAN_OPTIONS": ":".join([os.environ.get("ASAN_OPTIONS", ""), leaks]),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=bound(120),
            preexec_fn=room_for_sanitized_frames,
        )
        said = (done.stdout + done.stderr).decode(errors="replace")
        assert done.returncode in (
            0,
            REFUSED,
            FAILED,
        ), f"exit code {done.returncode}:\n{said[-8000:]}"
        assert not any(report in said for report in SANITIZER_REPORTS), said[-8000:]
        assert self.files() == before, "it left something behind"
        assert not list(self.temporary.iterdir()), "it left something behind"
        return done.returncode, said


@pytest.fixture
def shelf(tmp_path):
    return Shelf(tmp_path)


def run_session(shelf, *files):
    return shelf.run("worker/control/muster-session", *files)


@pytest.mark.parametrize("kind", inputs.GOOD)
def test_what_is_good_is_taken(kind, shelf):
    job_file = shelf.write(inputs.GOOD[kind](shelf.folder))
    code, said = shelf.run("client/cli/muster", "validate", job_file)
    assert code == 0, said
    code, said = run_session(shelf, job_file)
    assert code == 0, said


@pytest.fixture(scope="module")
def told(request, tmp_path_factory):
    """{name of a case: the session's message}, for all cases "session" of this run. All inputs are
    read in one process, because its start takes longer than reading."""
    callspecs = [getattr(item, "callspec", None) for item in request.session.items]
    asked = {callspec.params.get("name") for callspec in callspecs if callspec is not None}
    shelf = Shelf(tmp_path_factory.mktemp("told"))
    job_files = {}
    for number, name in enumerate(sorted(asked - {None})):
        if CASES[name].by == "session":
            (shelf.folder / str(number)).mkdir()
            job = CASES[name].build(shelf.folder / str(number))
            job_files[name] = shelf.write(job, f"{number}/job.yaml")
    _, said = run_session(shelf, *job_files.values())
    ends = {name: f"\n{job_file}: " for name, job_file in job_files.items()}
    for name, end in ends.items():
        assert end in "\n" + said, f"nothing is said of {name}:\n{said[-8000:]}"
    begins = sorted((("\n" + said).index(end), name) for name, end in ends.items())
    after = [begin for begin, _ in begins[1:]] + [len(said)]
    return {name: said[begin:until] for (begin, name), until in zip(begins, after)}


@pytest.mark.parametrize("name", CASES)
def test_what_is_malformed_is_refused(name, shelf, request):
    case = CASES[name]
    if case.by == "reading":
        job_file = shelf.write(case.build(shelf.folder))
        code, said = shelf.run("client/cli/muster", "validate", job_file, *case.arguments)
        assert code == REFUSED, said
    else:
        said = request.getfixturevalue("told")[name]
        assert "/job.yaml: failed: " in said, said
    print(said)
    for what in (case.path, case.expected, case.found):
        assert what in said, f"'{what}' is not said:\n{said}"


# ---- Damage at random: taken or refused, but never a crash ----

DAMAGED = {
    "rows": ["rows.safetensors"],
    "npy": ["inputs.npy", "labels.npy"],
    "idx": ["images.idx", "labels.idx"],
    "gzip": ["images.gz", "labels.gz"],
    "weights": ["model.safetensors"],
    "index": ["model.safetensors.index.json", "model-00001-of-00002.safetensors"],
    "torchscript": ["model.pt"],
}
TRIALS = 40


def damage(data, source):
    data = bytearray(data)
    # Most of what decides is at the beginning or at the end.
    reach = source.choice([64, 512, len(data)])
    for _ in range(source.randint(1, 4)):
        at = source.randrange(min(reach, len(data)))
        at = at if source.random() < 0.7 else len(data) - 1 - at
        change = source.randrange(4)
        if change == 0:
            data[at] ^= 1 << source.randrange(8)
        elif change == 1:
            data[at] = source.randrange(256)
        elif change == 2:
            del data[at : at + source.randint(1, 9)]
        else:
            data[at:at] = source.randbytes(source.randint(1, 9))
        data = data or bytearray(b"x")
    return bytes(data)


@pytest.mark.parametrize("kind", DAMAGED)
def test_damage_at_random_is_survived(kind, shelf):
    source = random.Random(kind)
    job_files = []
    for trial in range(TRIALS):
        folder = shelf.folder / str(trial)
        folder.mkdir()
        job = inputs.GOOD[kind](folder)
        victim = folder / source.choice(DAMAGED[kind])
        victim.write_bytes(damage(victim.read_bytes(), source))
        job_files.append(shelf.write(job, f"{trial}/job.yaml"))
    _, said = run_session(shelf, *job_files)
    for job_file in job_files:
        assert f"{job_file}: " in said, f"nothing is said of {job_file}"
    print(said)
