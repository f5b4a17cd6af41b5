"""A Muster of real programs for one test, and the check that no process of it is left.

Every process of a test carries an environment variable that only this test has; children inherit
it, so all of them, including orphans, are found through /proc/*/environ.
"""

import contextlib
import ctypes
import dataclasses
import json
import os
import pathlib
import select
import shutil
import signal
import struct
import subprocess
import tempfile
import time
import uuid

from tests import bazel

MARKER = "MUSTER_TEST_MARKER"
# The seconds for any wait.
BOUND = bazel.bound(60)

PROGRAMS = [
    "coordinator/musterd",
    "worker/agent/muster-agent",
    "worker/muster-worker",
    "client/cli/muster",
]


def install(folder):
    """Puts the four programs into one folder, as a user has them."""
    folder.mkdir(parents=True, exist_ok=True)
    for program in PROGRAMS:
        shutil.copy(bazel.runfile(program), folder)
    return folder


def eventually(condition, what, bound=BOUND):
    """Waits until condition() is true and returns its value."""
    end = time.monotonic() + bound
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"in {bound} s this never came true: {what}"
        select.select([], [], [], 0.01)


@dataclasses.dataclass
class Result:
    code: int
    out: str
    err: str

    def json(self):
        return json.loads(self.out)


@dataclasses.dataclass(frozen=True)
class Process:
    pid: int
    command: str

    @property
    def program(self):
        return pathlib.Path(self.command.split(" ")[0]).name

    def option(self, name):
        words = self.command.split(" ")
        return words[words.index(name) + 1]


def kill(pid, number=signal.SIGKILL):
    """Sends the signal; a process that has just ended is no error."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


class Muster:
    """The programs of one test in one folder."""

    def __init__(self, programs, folder, lease="3s"):
        self.programs = programs
        self.folder = folder
        self.lease = lease
        self.state = folder / "state"
        self.address = None
        # Options of all agents that a test starts itself: the plug-ins of tests lie among their
        # runfiles.
        self.agent_arguments = ("--plugins", "/")
        self.marker = str(uuid.uuid4())
        # Variables of all programs in addition.
        self.more_environment = {}
        self._children = []
        self._log = open(folder / "programs.log", "ab")
        # A folder for sockets, because the paths of Bazel's folders are too long for sockets.
        self.runtime = pathlib.Path(tempfile.mkdtemp(prefix="muster-", dir="/tmp"))
        # Files that programs write to the system's temporary folder are found here.
        self.temporary = self.runtime / "tmp"
        self.temporary.mkdir()
        # The state when this was closed.
        self._left_behind = None

    def environment(self):
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("TEST_", "MUSTER_"))
        }
        environment |= {
            MARKER: self.marker,
            "TMPDIR": str(self.temporary),
            "XDG_STATE_HOME": str(self.state),
            "XDG_RUNTIME_DIR": str(self.runtime),
        }
        if self.address:
            environment["MUSTER_ADDRESS"] = self.address
        return environment | self.more_environment

    @contextlib.contextmanager
    def variables(self, values):
        """Programs that are started within have these instead of `more_environment`."""
        before, self.more_environment = self.more_environment, values
        try:
            yield
        finally:
            self.more_environment = before

    # ---- Programs ----

    def spawn(self, program, *arguments, prefix=(), **options):
        """Starts a program in the background, with its output in programs.log unless options say
        otherwise. `prefix`: the command under which it runs."""
        if program == "muster-agent":
            arguments = (*arguments, *self.agent_arguments)
        options = {"stdout": self._log, "stderr": self._log, "env": self.environment()} | options
        command = [*map(str, prefix), str(self.programs / program), *map(str, arguments)]
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, cwd=self.folder, start_new_session=True, **options
        )
        self._children.append(child)
        return child

    def musterd(self, local_slots=None, listen=None, more=(), prefix=(), security=("--insecure",)):
        """Starts musterd with this test's state folder; a second call uses the same port again.
        `more`: arguments. `security`: what it may need to listen on a port."""
        port_file = self.folder / "port"
        port_file.unlink(missing_ok=True)
        arguments = ["--listen", listen or self.address or "127.0.0.1:0", *security]
        arguments += ["--state", self.state]
        arguments += ["--lease", self.lease, "--port-file", port_file]
        if local_slots is not None:
            arguments += ["--local-slots", local_slots]
        child = self.spawn("musterd", *arguments, *more, prefix=prefix)

        def listening():
            assert child.poll() is None, f"musterd ended with {child.returncode}:\n{self.log()}"
            return port_file.exists()

        eventually(listening, "musterd writes its port file")
        self.address = port_file.read_text().strip()
        port_file.unlink()
        return child

    def agent(self, node, slots=1):
        return self.spawn(
            "muster-agent", "--coordinator", self.address, "--slots", slots, "--node", node
        )

    def cli(self, *arguments, expect=0, timeout=BOUND):
        """Runs a command to its end. expect: the exit code, or None for any."""
        done = subprocess.run(
            [str(self.programs / "muster"), *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            cwd=self.folder,
            env=self.environment(),
        )
        result = Result(done.returncode, done.stdout, done.stderr)
        assert expect is None or result.code == expect, (
            f"muster {' '.join(map(str, arguments))}: exit code {result.code}, expected {expect}\n"
            f"{result.out}\n{result.err}\n{self.log()}"
        )
        return result

    def log(self, lines=60):
        self._log.flush()
        return "\n".join(
            (self.folder / "programs.log").read_text(errors="replace").splitlines()[-lines:]
        )

    # ---- What runs ----

    def processes(self, program=None):
        """All processes of this test, whichever program started them, without zombies."""
        wanted = f"{MARKER}={self.marker}".encode()
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if wanted not in (entry / "environ").read_bytes().split(b"\0"):
                    continue
                command = (
                    (entry / "cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ").decode()
                )
            except OSError:
                continue
            process = Process(int(entry.name), command)
            if process.command and program in (None, process.program):
                found.append(process)
        return sorted(found, key=lambda process: process.pid)

    def wait(self, child, expect=0):
        code = child.wait(timeout=BOUND)
        assert code == expect, f"{child.args[0]}: exit code {code}, expected {expect}\n{self.log()}"

    def stop(self, *children):
        """Sends SIGTERM; each process must exit with 0."""
        for child in children:
            child.send_signal(signal.SIGTERM)
        for child in children:
            self.wait(child)

    def close(self):
        """Kills all processes that still run, for a test that has failed already."""
        for process in self.processes():
            kill(process.pid)
        for child in self._children:
            child.wait(timeout=BOUND)
        self._log.close()
        self._left_behind = list(self.temporary.iterdir())
        shutil.rmtree(self.runtime, ignore_errors=True)

    # ---- What is left ----

    def assert_no_process(self, at_once=False):
        """at_once: they must have ended already."""
        if at_once:
            assert self.processes() == []
            return
        eventually(lambda: not self.processes(), f"no process is left of {self.processes()}")

    def assert_no_temporary_file(self):
        left = [str(path) for path in self.folder.rglob("*") if ".tmp" in path.name]
        closed = self._left_behind is not None
        left += map(str, self._left_behind if closed else self.temporary.iterdir())
        assert left == [], left

    def files(self, folder):
        """Names in a folder, without the files that Muster writes beside a job's checkpoints."""
        own = (".muster-job", ".muster-epoch")
        return sorted(
            path.name for path in (self.folder / folder).iterdir() if path.name not in own
        )


class FolderWatch:
    """Waits for names to appear in a folder (inotify: polling would miss files that exist only for
    a millisecond)."""

    _CREATE, _MOVED_TO = 0x100, 0x80

    def __init__(self, folder):
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        assert self._fd >= 0, os.strerror(ctypes.get_errno())
        added = libc.inotify_add_watch(self._fd, os.fsencode(folder), self._CREATE | self._MOVED_TO)
        assert added >= 0, os.strerror(ctypes.get_errno())

    def close(self):
        os.close(self._fd)

    def drain(self):
        """The names that appeared since the last call."""
        names = []
        while True:
            try:
                events = os.read(self._fd, 1 << 16)
            except BlockingIOError:
                return names
            while events:
                _, _, _, length = struct.unpack_from("iIII", events)
                names.append(events[16 : 16 + length].rstrip(b"\0").decode())
                events = events[16 + length :]

    def await_name(self, wanted, bound=BOUND):
        """The next name for which wanted(name) holds; None: none came in time."""
        end = time.monotonic() + bound
        while time.monotonic() < end:
            select.select([self._fd], [], [], end - time.monotonic())
            for name in self.drain():
                if wanted(name):
                    return name
        return None
