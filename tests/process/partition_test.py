"""A node behind a network that is cut: its processes have ended before other processes replace
them, and no restart is used."""

import contextlib
import os
import pathlib
import select
import signal
import time

import pytest

from tests.process import api, harness, paced_job
from tests.process.remote_host import RemoteHost, available

PACE_MS = 50

pytestmark = pytest.mark.skipif(not available(), reason="network namespaces need root and iproute2")


@pytest.fixture
def remote_host():
    remote_host = RemoteHost()
    yield remote_host
    remote_host.close()


def start_time(pid):
    """Seconds since the machine's start; None: there is no such process."""
    with contextlib.suppress(OSError):
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return None


class Lives:
    """When the workers of each generation began and ended, observed from another process."""

    def __init__(self, muster):
        self._muster = muster
        self._pidfds = {}
        self.began = {}
        self.ended = {}

    def look(self):
        for process in self._muster.processes("muster-worker"):
            if process.pid in self._pidfds or "--generation" not in process.command:
                continue
            with contextlib.suppress(ProcessLookupError):
                self._pidfds[process.pid] = os.pidfd_open(process.pid)
                generation = int(process.option("--generation"))
                self.began.setdefault(generation, {})[process.pid] = start_time(process.pid)
        for generation, pids in self.began.items():
            for pid in pids:
                if pid in self.ended.setdefault(generation, {}):
                    continue
                if select.select([self._pidfds[pid]], [], [], 0)[0]:
                    self.ended[generation][pid] = time.clock_gettime(time.CLOCK_BOOTTIME)

    def close(self):
        for fd in self._pidfds.values():
            os.close(fd)


@pytest.mark.parametrize("frozen", [False, True], ids=["agent-runs", "agent-stopped"])
@pytest.mark.parametrize(
    "ways", [(True, True), (True, False), (False, True)], ids=["both-ways", "to-it", "from-it"]
)
def test_no_process_lives_beside_its_replacement(muster, remote_host, ways, frozen):
    job_file = paced_job.write_job(
        muster.folder,
        PACE_MS,
        world_size=1,
        stages=[{"fit": {"steps": 100000}}],
        checkpoint={"directory": "checkpoints", "every_steps": 20, "keep": 3},
        export=None,
        restart={"max_restarts": 0},
    )
    daemon = muster.musterd(listen=f"{remote_host.near}:0")
    client = api.Jobs(muster.address)
    arguments = [
        "--coordinator",
        muster.address,
        "--slots",
        1,
        "--node",
        "far",
        "--host",
        remote_host.far,
    ]
    far = muster.spawn("muster-agent", *arguments, prefix=["ip", "netns", "exec", remote_host.name])
    muster.cli("submit", job_file, "--id", "job")
    harness.eventually(lambda: client.get("job").step >= 30, f"it trains far away\n{muster.log()}")
    near = muster.agent("near")
    harness.eventually(lambda: "near" in muster.cli("nodes").out, "the other node is there")

    lives = Lives(muster)
    lives.look()
    assert list(lives.began) == [1]
    if frozen:
        os.kill(far.pid, signal.SIGSTOP)
    remote_host.cut(*ways)

    def replaced():
        lives.look()
        return 2 in lives.began

    harness.eventually(replaced, f"the job continues on other nodes\n{muster.log()}")
    lives.look()
    assert lives.ended[1].keys() == lives.began[1].keys(), "the earlier generation has ended"
    assert max(lives.ended[1].values()) <= min(lives.began[2].values())
    job = harness.eventually(
        lambda: (now := client.get("job")).state == api.Job.RUNNING and now.step > 30 and now,
        "it trains on",
    )
    assert (job.generation, job.restarts) == (2, 0), job.state_reason

    remote_host.heal(*ways)
    if frozen:
        os.kill(far.pid, signal.SIGCONT)
    harness.eventually(
        lambda: client.get("job").step > job.step + 5, "the one that is back disturbs nobody"
    )
    job = client.get("job")
    assert (job.generation, job.restarts, job.state) == (2, 0, api.Job.RUNNING)
    muster.cli("stop", "job")
    muster.cli("wait", "job", expect=None)
    lives.close()
    client.close()
    muster.stop(far, near, daemon)
