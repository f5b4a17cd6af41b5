"""A real coordinator with local slots, and jobs on it: for tests and measurements."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

from tests.bazel import bound

# The paths of the programs below Bazel's runfiles or bazel-bin.
PROGRAMS = {
    "muster": "client/cli/muster",
    "musterd": "coordinator/musterd",
    "muster-agent": "worker/agent/muster-agent",
    "muster-worker": "worker/muster-worker",
}


def install(find, folder):
    """Puts the programs beside each other, as they find one another; `find` maps a Bazel path to a
    file."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, path in PROGRAMS.items():
        source = os.path.realpath(find(path))
        try:
            os.link(source, folder / name)
        except OSError:
            shutil.copy(source, folder / name)
    return folder


class JobFailed(Exception):
    pass


class Cluster:
    """musterd with `slots` local slots; everything it writes lies in `folder`. Use as a context
    manager.

    `listen`: an address to listen on besides the socket. `more`: further arguments of musterd."""

    def __init__(self, programs, folder, slots, lease="10s", listen=None, more=()):
        self.programs = pathlib.Path(programs)
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._log = open(self.folder / "musterd.log", "wb")
        port_file = self.folder / "address"
        # A folder for the socket, because the paths of Bazel's folders are too long for a socket.
        self._runtime = tempfile.mkdtemp(prefix="muster-", dir="/tmp")
        self._musterd = subprocess.Popen(
            [
                self.programs / "musterd",
                *(("--listen", listen, "--insecure") if listen else ()),
                *("--state", self.folder / "state"),
                *("--local-slots", str(slots)),
                *("--lease", lease),
                *("--port-file", port_file),
                *more,
            ],
            stdout=self._log,
            stderr=self._log,
            env={**environment(), "XDG_RUNTIME_DIR": self._runtime},
        )
        try:
            self.address = self._read_address(port_file)
        except BaseException:
            self.close()
            raise

    @property
    def pid(self):
        return self._musterd.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Ends musterd as an operator would and makes sure that nothing of it is left."""
        if self._musterd.poll() is None:
            self._musterd.send_signal(signal.SIGTERM)
            try:
                self._musterd.wait(bound(10))
            except subprocess.TimeoutExpired:
                self._musterd.kill()
                self._musterd.wait()
        self._log.close()
        shutil.rmtree(self._runtime)
        # The programs' folder is this cluster's own, so these are its processes and no others.
        left = [
            pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if self._is_ours(pid)
        ]
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert not left, f"musterd left {len(left)} processes behind"

    def submit(self, spec, job_id):
        """Submits the job (a dict in the job file's form) and returns at once."""
        job_file = self.folder / f"{job_id}.yaml"
        job_file.write_text(json.dumps(spec, indent=1))  # JSON is YAML
        self.ask("submit", job_file, "--id", job_id)

    def run_file(self, job_file, job_id):
        """Runs the job of a job file to its end; returns the Job, as run()."""
        self.ask("submit", job_file, "--id", job_id)
        return self.wait(job_id)

    def run(self, spec, job_id):
        """Runs a job to its end; returns the Job. JobFailed unless it SUCCEEDED."""
        self.submit(spec, job_id)
        return self.wait(job_id)

    def wait(self, job_id):
        """Waits for a submitted job's end; returns the Job. JobFailed unless it SUCCEEDED."""
        self.ask("wait", job_id, "--timeout", f"{bound(60):.0f}s", check=False)
        job = self.job(job_id)
        if job["state"] != "SUCCEEDED":
            raise JobFailed(json.dumps(job, indent=1) + "\n" + self.log(job_id))
        return job

    def job(self, job_id):
        return json.loads(self.ask("get", job_id, "-o", "json"))

    def await_state(self, job_id, state):
        deadline = time.monotonic() + bound(60)
        while self.job(job_id)["state"] != state:
            assert time.monotonic() < deadline, self.job(job_id)
            time.sleep(0.05)

    def stop(self, job_id):
        self.ask("stop", job_id)
        self.ask("wait", job_id, "--timeout", f"{bound(60):.0f}s", check=False)

    def log(self, job_id):
        return self.ask("logs", job_id)

    def metrics(self, job_id):
        """StepMetrics of all steps, in step order."""
        passes = ("validation", "test")
        found = [entry for entry in self.entries(job_id) if not any(map(entry.get, passes))]
        assert [int(step["step"]) for step in found] == list(range(1, len(found) + 1))
        return found

    def entries(self, job_id):
        """StepMetrics of all steps and passes, in their order."""
        text = self.ask("metrics", job_id, "-o", "json")
        decoder, at, found = json.JSONDecoder(), 0, []
        while at < len(text):
            if text[at].isspace():
                at += 1
                continue
            value, at = decoder.raw_decode(text, at)
            found.append(value)
        return found

    def losses(self, job_id):
        return [step["loss"] for step in self.metrics(job_id)]

    def ask(self, *arguments, check=True):
        """Runs a command of `muster`, and returns what it prints."""
        done = subprocess.run(
            [self.programs / "muster", *map(str, arguments), "--address", self.address],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        if check and done.returncode != 0:
            words = " ".join(map(str, arguments))
            raise JobFailed(
                f"muster {words}: exit code {done.returncode}\n{done.stderr}{done.stdout}"
            )
        return done.stdout

    def workers(self):
        """Process ids of the workers that run now."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if (
                    pathlib.Path(os.readlink(f"/proc/{pid}/exe"))
                    == self.programs.resolve() / "muster-worker"
                ):
                    found.append(int(pid))
        return found

    def _read_address(self, port_file):
        deadline = time.monotonic() + bound(10)
        while not port_file.exists():  # written atomically once musterd listens
            if self._musterd.poll() is not None or time.monotonic() > deadline:
                self._log.flush()
                raise JobFailed(
                    "musterd does not listen:\n" + (self.folder / "musterd.log").read_text()
                )
            time.sleep(0.02)
        return port_file.read_text().strip()

    def _is_ours(self, pid):
        try:
            return pathlib.Path(os.readlink(f"/proc/{pid}/exe")).parent == self.programs.resolve()
        except OSError:
            return False


def environment():
    # One thread per rank, whatever the machine has.
    return {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def kill_a_worker_after_the_first_checkpoint(muster, folder, before=lambda: None):
    """Waits for the checkpoint of step 4 in a job's folder, and calls `before`."""
    deadline = time.monotonic() + bound(20)
    # Without "step-4-g1.tmp", which becomes "step-4-g1" when the checkpoint is complete.
    while not list(folder.glob("step-4-g*[0-9]")):
        assert time.monotonic() < deadline, "no checkpoint"
        time.sleep(0.005)
    before()
    os.kill(muster.workers()[0], signal.SIGKILL)
