"""A page's shell commands, run as a reader would run them.

What a fenced block is called says what happens with it:

    ```sh        run, in the order of the page, all in one bash that ends at the first command
                 that fails
    ```console   commands that are not run; the line above says why: <!-- not run: ... -->
    others       no commands: output (text), files (yaml, json), code (python, cc, cpp)

A page is read in the root of the repository after `./quickstart.sh` and `./test.sh`: the programs
lie in out/bin, Python with its packages in ~/.cache/muster/venv. A test gives it a copy of its
files, a home and a temporary folder of its own. Ports of 127.0.0.1 and the folders in STAND_INS
become private, so that a page may show what a reader really uses.
"""

import contextlib
import dataclasses
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid

from tests.bazel import bound

MARKER = "MUSTER_TEST_MARKER"
STAND_INS = {"/var/lib/muster": "./state"}
# The seconds for all commands of a page together.
BOUND = bound(60)
# The seconds until killed processes are gone.
GONE = bound(10)


@dataclasses.dataclass
class Block:
    page: str
    line: int  # of the opening fence, from 1
    language: str
    text: str
    above: str  # the line before the fence

    @property
    def place(self):
        return f"{self.page}:{self.line}"


def blocks(page, text):
    """All fenced blocks of a page."""
    found, lines = [], text.splitlines()
    at = 0
    while at < len(lines):
        if match := re.match(r"\s*```(\w*)\s*$", lines[at]):
            end = next((i for i in range(at + 1, len(lines)) if lines[i].strip() == "```"), None)
            assert end is not None, f"{page}:{at + 1}: the block has no end"
            body = "\n".join(lines[at + 1 : end]) + "\n"
            found.append(Block(page, at + 1, match[1], body, lines[at - 1] if at else ""))
            at = end
        at += 1
    return found


def anchors(text):
    """The fragments that GitHub gives the headings of a page."""
    found = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Reader:
    """Somebody at a shell in `folder`, which holds the files of the repository that a page
    needs."""

    def __init__(self, folder, programs):
        """`programs`: name -> file, for out/bin."""
        self.folder = folder
        (folder / "out/bin").mkdir(parents=True)
        for name, file in programs.items():
            shutil.copy(os.path.realpath(file), folder / "out/bin" / name)
        self.home = folder.parent / (folder.name + "-home")
        self.temporary = folder.parent / (folder.name + "-tmp")
        (self.home / ".cache/muster").mkdir(parents=True)
        (self.home / ".cache/muster/venv").symlink_to(sys.prefix)
        self.temporary.mkdir()
        self._marker = str(uuid.uuid4())
        self._ports = {}

    def run(self, page_blocks):
        """Runs the blocks; returns what they printed. Fails with what was said, and the place."""
        # A folder for sockets, because the paths of Bazel's folders are too long for sockets.
        self.runtime = pathlib.Path(tempfile.mkdtemp(prefix="muster-", dir="/tmp"))
        parts = ["set -euo pipefail\n"]
        for block in page_blocks:
            parts += [f"echo '--- {block.place}' >&2\n", self._private(block.text)]
        out, err = self.folder.parent / "stdout", self.folder.parent / "stderr"
        with open(out, "wb") as stdout, open(err, "wb") as stderr:
            shell = subprocess.Popen(
                ["bash", "-c", "".join(parts)],
                cwd=self.folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
            try:
                code = shell.wait(BOUND)
            except subprocess.TimeoutExpired:
                code = "none: it did not end"
                self._end_all()
                shell.wait()
        left = self.processes()
        self._end_all()
        shutil.rmtree(self.runtime)
        said = err.read_text(errors="replace")
        printed = out.read_text(errors="replace")
        place = ([line for line in said.splitlines() if line.startswith("--- ")] or ["--- ?"])[-1][
            4:
        ]
        assert code == 0, f"{place}: exit code {code}\n{said[-6000:]}\n{printed[-3000:]}"
        assert not left, f"{place}: left running: {left}"
        # PyTorch's Python makes this folder when transformers is imported, and keeps it.
        files = [
            path for path in self.temporary.iterdir() if not path.name.startswith("torchinductor_")
        ]
        assert not files, f"{place}: left behind: {files}"
        return printed

    def processes(self):
        wanted = f"{MARKER}={self._marker}".encode()
        found = {}
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found[int(entry.name)] = (entry / "comm").read_text().strip()
            except OSError:
                continue
        return found

    def _end_all(self):
        """Ends every process of the reader; none is there any more when this returns."""
        until = time.monotonic() + GONE
        while left := self.processes():
            assert time.monotonic() < until, f"cannot be killed: {left}"
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.001)

    def _environment(self):
        return {
            "HOME": str(self.home),
            "TMPDIR": str(self.temporary),
            "XDG_RUNTIME_DIR": str(self.runtime),
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            # One thread per process, whatever the machine has.
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            MARKER: self._marker,
        }

    def _private(self, text):
        for shown, private in STAND_INS.items():
            text = text.replace(shown, private)

        def port(match):
            if match[1] not in self._ports:
                self._ports[match[1]] = free_port()
            return f"127.0.0.1:{self._ports[match[1]]}"

        return re.sub(r"127\.0\.0\.1:(\d+)", port, text)
