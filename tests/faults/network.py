"""Nodes with separate networks (namespaces, root, iproute2), joined by a router that can drop
packets in one direction or both.

The host itself is another machine behind the router: musterd and the test run there. Packets are
dropped silently, as in a partition: no program gets an error at once."""

import contextlib
import os
import shutil
import subprocess


def allowed():
    """None, or why namespaces cannot be made here."""
    if os.geteuid() != 0:
        return "needs root"
    if shutil.which("ip") is None:
        return "needs iproute2"
    probe = f"mfprobe{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "delete", probe], capture_output=True)
    return (
        None
        if made.returncode == 0
        else f"network namespaces are not allowed: {made.stderr.strip()}"
    )


def _ip(*arguments, check=True):
    done = subprocess.run(["ip", *map(str, arguments)], capture_output=True, text=True)
    if check and done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(map(str, arguments))}: {done.stderr.strip()}")
    return done.stdout


class Network:
    """`host`: the address of the machine of musterd. The process and a number distinguish the
    networks on one machine."""

    _made = 0

    def __init__(self, nodes):
        Network._made += 1
        # 10.S.T.0/24 for the links of this network.
        self._second = 64 + os.getpid() % 128
        self._third = Network._made % 250
        self._name = f"mf{os.getpid() % 100000}x{Network._made}"
        self._router = f"{self._name}r"
        self._links = {}
        self._cuts = set()
        try:
            _ip("netns", "add", self._router)
            _ip("-n", self._router, "link", "set", "lo", "up")
            # A router forwards, whatever the machine does.
            self.run_in(self._router, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
            self.host = self._link("host", 0, None)
            # In number order, so that each node has the same address in every run.
            self.addresses = {
                node: self._link(node, number, f"{self._name}n{number}")
                for number, node in enumerate(nodes, 1)
            }
        except BaseException:
            self.close()
            raise

    def _link(self, node, number, space):
        """A veth pair between the router and a machine; the machine's address."""
        here, there = (f"10.{self._second}.{self._third}.{4 * number + last}" for last in (2, 1))
        outside, inside = f"{self._name}o{number}", f"{self._name}i{number}"
        _ip("link", "add", outside, "type", "veth", "peer", "name", inside, "netns", self._router)
        _ip("-n", self._router, "addr", "add", f"{there}/30", "dev", inside)
        _ip("-n", self._router, "link", "set", inside, "up")
        at = []
        if space is not None:
            _ip("netns", "add", space)
            _ip("link", "set", outside, "netns", space)
            at = ["-n", space]
            _ip(*at, "link", "set", "lo", "up")
        _ip(*at, "addr", "add", f"{here}/30", "dev", outside)
        _ip(*at, "link", "set", outside, "up")
        _ip(*at, "route", "add", f"10.{self._second}.{self._third}.0/24", "via", there)
        self._links[node] = (space, inside)
        return here

    @staticmethod
    def run_in(space, *command):
        return subprocess.run(
            ["ip", "netns", "exec", space, *command], check=True, capture_output=True, text=True
        ).stdout

    def prefix(self, node):
        """The command under which a program of the node runs. Without it Gloo would use the name of
        the host as its address."""
        return [
            "ip",
            "netns",
            "exec",
            self._links[node][0],
            "env",
            f"GLOO_SOCKET_IFNAME={self._outside(node)}",
        ]

    def _outside(self, node):
        return f"{self._name}o{list(self._links).index(node)}"

    def cut(self, node, to=True, back=True):
        """Cuts the connection between the node and musterd. `to`: packets from the node to musterd
        are dropped; `back`: packets to the node."""
        pairs = [(self.addresses[node], self.host)] * to + [
            (self.host, self.addresses[node])
        ] * back
        for pair in pairs:
            _ip(
                "-n",
                self._router,
                "rule",
                "add",
                "from",
                pair[0],
                "to",
                pair[1],
                "priority",
                100,
                "blackhole",
            )
            self._cuts.add(pair)
        _ip("-n", self._router, "route", "flush", "cache", check=False)

    def vanish(self, node):
        """From now on all packets from and to the node are dropped."""
        _ip("-n", self._router, "link", "set", self._links[node][1], "down")

    def processes(self, node):
        return [int(pid) for pid in _ip("netns", "pids", self._links[node][0]).split()]

    def heal(self):
        for source, target in self._cuts:
            _ip(
                "-n",
                self._router,
                "rule",
                "del",
                "from",
                source,
                "to",
                target,
                "priority",
                100,
                "blackhole",
            )
        self._cuts.clear()

    def lost(self, node):
        """Segments that had to be sent again so far, by the node and by musterd's machine: packets
        that were not acknowledged."""

        def retransmitted(text):
            names, values = (
                line.split()[1:] for line in text.splitlines() if line.startswith("Tcp:")
            )
            return int(dict(zip(names, values))["RetransSegs"])

        with open("/proc/net/snmp", encoding="utf-8") as file:
            return retransmitted(
                self.run_in(self._links[node][0], "cat", "/proc/net/snmp")
            ) + retransmitted(file.read())

    def close(self):
        for space, _ in self._links.values():
            if space is not None:
                _ip("netns", "delete", space, check=False)
        with contextlib.suppress(Exception):
            _ip("link", "delete", f"{self._name}o0", check=False)
        _ip("netns", "delete", self._router, check=False)
