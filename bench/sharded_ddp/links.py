"""The links between the ranks of an arm: loopback, or a namespace for each rank with a link of
limited bandwidth in between."""

import contextlib
import json
import os
import signal
import subprocess

from bench import harness
from tests.parity import cluster


class Loopback:
    name = "loopback"
    settle_seconds = 0.0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def command(self, rank, command):
        """Returns the command as rank `rank` of an arm runs it."""
        return command

    def muster(self, name, job, folder, programs):
        return harness.Muster.local(name, job, folder, programs)

    def bytes_sent(self):
        """On the link between the ranks, so far, by rank; None where nobody counts them."""
        return None


def ip(*arguments, check=True):
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    if check and done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


class Limited:
    """Two namespaces joined by a veth pair whose ends both send at most `rate` (tc tbf).
    Collectives, and nothing else, go over it: the coordinator, outside, is reached over a veth pair
    of its own per namespace, without a limit. Needs root. What a killed run has left behind is
    removed first."""

    # Bytes in socket buffers of a stopped arm must have left the link before the next arm is
    # measured.
    settle_seconds = 0.3

    def __init__(self, rate):
        self.name = rate
        self._rate = rate

    def __enter__(self):
        self._remove()
        try:
            self._make()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *_):
        self._remove()

    def _make(self):
        for rank in (0, 1):
            ip("netns", "add", self._space(rank))
            ip("-n", self._space(rank), "link", "set", "lo", "up")
        ip(
            "link",
            "add",
            "data0",
            "netns",
            self._space(0),
            "type",
            "veth",
            "peer",
            "name",
            "data0",
            "netns",
            self._space(1),
        )
        for rank in (0, 1):
            space, outside = self._space(rank), self._outside(rank)
            ip("-n", space, "addr", "add", f"{self._host(rank)}/24", "dev", "data0")
            ip("-n", space, "link", "set", "data0", "up")
            limit = [
                "tc",
                "-n",
                space,
                "qdisc",
                "add",
                "dev",
                "data0",
                "root",
                "tbf",
                "rate",
                self._rate,
            ]
            subprocess.run([*limit, "burst", "128kb", "latency", "50ms"], check=True)
            ip("link", "add", outside, "type", "veth", "peer", "name", "control0", "netns", space)
            ip("addr", "add", f"10.78.{rank}.1/24", "dev", outside)
            ip("link", "set", outside, "up")
            ip("-n", space, "addr", "add", f"10.78.{rank}.2/24", "dev", "control0")
            ip("-n", space, "link", "set", "control0", "up")
        # The coordinator has one address, on rank 0's side.
        ip("-n", self._space(1), "route", "add", "10.78.0.0/24", "via", "10.78.1.1")

    def _remove(self):
        for rank in (0, 1):
            for pid in ip("netns", "pids", self._space(rank), check=False).split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            ip("link", "delete", self._outside(rank), check=False)
            ip("netns", "delete", self._space(rank), check=False)

    def _space(self, rank):
        return f"muster-bench-{rank}"

    def _outside(self, rank):
        return f"muster-ctl{rank}"

    def _host(self, rank):
        return f"10.77.0.{rank + 1}"

    def command(self, rank, command):
        # Each program takes the place of the one before it, so the process id stays.
        return [
            "ip",
            "netns",
            "exec",
            self._space(rank),
            "env",
            "GLOO_SOCKET_IFNAME=data0",
            *command,
        ]

    def muster(self, name, job, folder, programs):
        started = Nodes(programs, folder, self)
        return harness.Muster(name, job, started, started.agents)

    def start_agent(self, rank, programs, coordinator, log):
        command = [programs / "muster-agent", "--coordinator", coordinator, "--slots", "1"]
        command += ["--node", f"node-{rank}", "--host", self._host(rank)]
        return subprocess.Popen(
            self.command(rank, command), stdout=log, stderr=log, env=cluster.environment()
        )

    def bytes_sent(self):
        def of(rank):
            link = json.loads(ip("-n", self._space(rank), "-s", "-j", "link", "show", "data0"))[0]
            return link["stats64"]["tx"]["bytes"]

        return [of(0), of(1)]


class Nodes(cluster.Cluster):
    """musterd outside, one agent of one slot in each namespace."""

    def __init__(self, programs, folder, link):
        self._agents = []
        super().__init__(
            programs, folder, slots=0, lease="1h", listen="10.78.0.1:0"
        )
        try:
            for rank in (0, 1):
                self._agents.append(link.start_agent(rank, self.programs, self.address, self._log))
        except BaseException:
            self.close()
            raise

    def agents(self):
        return [agent.pid for agent in self._agents]

    def close(self):
        for agent in self._agents:
            agent.terminate()
        for agent in self._agents:
            try:
                agent.wait(30)
            except subprocess.TimeoutExpired:
                agent.kill()
                agent.wait()
        super().close()
