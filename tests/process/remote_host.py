"""Another host for tests: a network namespace, whose connections to this host can be cut."""

import os
import shutil
import subprocess
import uuid


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


def available():
    if os.geteuid() != 0 or not shutil.which("ip"):
        return False
    name = f"mp-{uuid.uuid4().hex[:8]}"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode != 0:
        return False
    ip("netns", "del", name)
    return True


class RemoteHost:
    """A network namespace that one pair of interfaces joins to this host. To cut one direction,
    packets are sent to a neighbour that does not exist."""

    def __init__(self):
        tag = uuid.uuid4().hex[:6]
        self.name = f"mp-{tag}"
        self._near, self._far = f"mpa{tag}", f"mpb{tag}"
        net = int(tag[:2], 16), int(tag[2:4], 16)
        self.near, self.far = f"10.{net[0]}.{net[1]}.1", f"10.{net[0]}.{net[1]}.2"
        ip("netns", "add", self.name)
        ip("link", "add", self._near, "type", "veth", "peer", "name", self._far, "netns", self.name)
        ip("addr", "add", f"{self.near}/30", "dev", self._near)
        ip("link", "set", self._near, "up")
        for words in (
            ["addr", "add", f"{self.far}/30", "dev", self._far],
            ["link", "set", self._far, "up"],
        ):
            ip("-n", self.name, *words)
        ip("-n", self.name, "link", "set", "lo", "up")

    def close(self):
        # The pair goes with it.
        subprocess.run(["ip", "netns", "del", self.name], capture_output=True)

    def _nowhere(self, there, words):
        state = ["lladdr", "02:00:00:00:00:01", "nud", "permanent"] if there else []
        ip(*words[0], "neigh", "replace" if there else "del", words[1], *state, "dev", words[2])

    def cut(self, to_remote=True, from_remote=True, there=True):
        if to_remote:
            self._nowhere(there, ([], self.far, self._near))
        if from_remote:
            self._nowhere(there, (["-n", self.name], self.near, self._far))

    def heal(self, to_remote=True, from_remote=True):
        self.cut(to_remote, from_remote, there=False)
