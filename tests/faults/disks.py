"""Small separate disks for a test (tmpfs), which can be filled, freed, and unmounted. They need
root."""

import contextlib
import os
import subprocess
import tempfile


def allowed():
    """None, or why disks cannot be mounted here."""
    if os.geteuid() != 0:
        return "needs root"
    with tempfile.TemporaryDirectory() as folder:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder],
            capture_output=True,
            text=True,
        )
        if mounted.returncode != 0:
            return f"mounting is not allowed: {mounted.stderr.strip()}"
        subprocess.run(["umount", folder], check=True)
    return None


class Disk:
    """A tmpfs of `size` at `folder`."""

    def __init__(self, folder, size="8m"):
        self.folder = folder
        self._size = size
        self._filler = folder / "filler"
        folder.mkdir(parents=True, exist_ok=True)
        self.mount()

    def mount(self):
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={self._size},mode=0700", "tmpfs", self.folder],
            check=True,
        )

    def unmount(self, lazy=True):
        subprocess.run(["umount", *(["-l"] if lazy else []), self.folder], check=True)

    def fill(self, leave=0):
        """Fills the disk until only `leave` bytes are free; returns how many bytes this took. A
        second call fills what was freed since."""
        descriptor = os.open(self._filler, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        taken = 0
        try:
            for block in (1 << 20, 1 << 12):
                with contextlib.suppress(OSError):
                    while True:
                        taken += os.write(descriptor, bytes(block))
        finally:
            os.close(descriptor)
        if leave:
            os.truncate(self._filler, max(0, taken - leave))
        return taken

    def free(self):
        self._filler.unlink(missing_ok=True)

    def close(self):
        while (
            subprocess.run(["umount", "-l", self.folder], stderr=subprocess.DEVNULL).returncode == 0
        ):
            pass
