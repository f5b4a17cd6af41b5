"""Prints the stacks of waiting processes, for the results of a run that hangs on another
machine."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess


CUDA_GDB = "/usr/local/cuda/bin/cuda-gdb"
GDB = ["-p", None, "-batch", "-ex", "set pagination off", "-ex", "thread apply all backtrace 30"]


COMPUTING = ("muster-rank", "muster-worker")


def computing(pid):
    """Returns the processes below `pid` that may wait for a GPU."""

    def name(one):
        with contextlib.suppress(OSError):
            return pathlib.Path(os.readlink(f"/proc/{one}/exe")).name
        return ""

    return [one for one in below(pid) if name(one) in COMPUTING or name(one).endswith("_test")]


def below(pid):
    """The processes that `pid` has started, and theirs."""
    found = []
    with contextlib.suppress(OSError):
        for thread in pathlib.Path(f"/proc/{pid}/task").iterdir():
            for child in (thread / "children").read_text().split():
                found += [int(child), *below(int(child))]
    return found


def of(pid):
    """The stacks of a process's threads: by a debugger, if there is one, else what the kernel
    knows."""
    try:
        command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError as error:
        return f"process {pid}: {error}"
    lines = [f"process {pid}: {command}"]
    with contextlib.suppress(OSError):
        for thread in sorted(pathlib.Path(f"/proc/{pid}/task").iterdir()):
            words = [thread.name]
            for name in ("comm", "wchan", "syscall"):
                with contextlib.suppress(OSError):
                    words.append((thread / name).read_text().strip())
            lines.append(" ".join(words))
    debugger = next(filter(None, map(shutil.which, ("gdb", "cuda-gdb", CUDA_GDB))), None)
    if debugger is not None:
        arguments = [str(pid) if word is None else word for word in GDB]
        try:
            done = subprocess.run(
                [debugger, "-nx", *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=15,
            )
            lines.append(done.stdout[-20000:] + done.stderr[-1000:])
        except (OSError, subprocess.TimeoutExpired) as error:
            lines.append(str(error))
    return "\n".join(lines)


def kill(pids):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
