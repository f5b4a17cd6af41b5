"""Separate disks that a test can fill and take away."""

import contextlib
import ctypes
import os
import subprocess

import pytest


def become_root_of_a_namespace():
    """Lets this process and its children mount, for users other than root. Other processes do not
    see the mounts."""
    user, group = os.geteuid(), os.getegid()
    new_user, new_mounts = 0x10000000, 0x00020000
    if ctypes.CDLL(None, use_errno=True).unshare(new_user | new_mounts) != 0:
        return
    for name, text in [
        ("setgroups", "deny"),
        ("uid_map", f"0 {user} 1"),
        ("gid_map", f"0 {group} 1"),
    ]:
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


if os.geteuid() != 0:
    # Before anything here has a thread: the kernel refuses it after that.
    become_root_of_a_namespace()


class Disk:
    """A separate disk at `folder`, so small that a test can fill it."""

    def __init__(self, folder, size):
        self.folder = folder
        folder.mkdir()
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder],
            check=True,
            capture_output=True,
        )
        self._filler = folder / "filler"

    def fill(self):
        with open(self._filler, "ab", buffering=0) as file:
            for size in (65536, 4096, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(b"x" * size)

    def free(self):
        self._filler.unlink()

    def take_away(self):
        """Its files are not found at their paths any more. What programs have open stays so."""
        self._away = self.folder.with_name(self.folder.name + "-away")
        self._away.mkdir()
        subprocess.run(["mount", "--bind", self.folder, self._away], check=True)
        self.unmount()

    def bring_back(self):
        subprocess.run(["mount", "--bind", self._away, self.folder], check=True)
        subprocess.run(["umount", "-l", self._away], check=True)
        self._away.rmdir()

    def unmount(self):
        subprocess.run(["umount", "-l", self.folder], check=True)


@pytest.fixture
def make_disk(muster):
    disks = []

    def make(name, size):
        try:
            disks.append(Disk(muster.folder / name, size))
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no tmpfs can be mounted here: {error.stderr.decode().strip()}")
        return disks[-1]

    yield make
    # Before the check of the programs, which would otherwise not see what they left on the disks.
    muster.assert_no_temporary_file()
    for disk in disks:
        disk.unmount()
