"""The progress on terminals of every kind."""

import fcntl
import json
import math
import os
import pty
import signal
import struct
import termios

import pytest
import torch

from tests.process import harness, jobs

ERASE = "\r\x1b[K"


class Terminal:
    """A pseudo-terminal on which a program of the test runs."""

    def __init__(self, columns):
        self.outside, self.inside = pty.openpty()
        self.resize(columns)
        os.set_blocking(self.outside, False)
        self.text = ""

    def resize(self, columns):
        fcntl.ioctl(self.inside, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def read(self):
        """All that was written until now."""
        try:
            while data := os.read(self.outside, 1 << 16):
                self.text += data.decode(errors="replace")
        except (BlockingIOError, OSError):
            pass
        return self.text

    def drawn(self):
        """The lines that were drawn in place of another one."""
        return [part.split("\r\n")[-1] for part in self.read().split(ERASE)[1:]]

    def close(self):
        os.close(self.inside)
        os.close(self.outside)


@pytest.fixture
def terminal():
    terminal = Terminal(40)
    yield terminal
    terminal.close()


def start(muster, terminal, term, steps):
    job_file = jobs.write_job(
        muster.folder,
        world_size=1,
        batch={"per_rank": 2},
        stages=[{"fit": {"steps": steps}}],
        schedule=None,
        checkpoint=None,
        export=None,
    )
    muster.more_environment = {"TERM": term}
    return muster.spawn(
        "muster", "run", job_file, stdout=terminal.inside, stderr=terminal.inside
    )


def test_the_progress_line_fits_into_the_terminal(muster, terminal):
    """Muster issue 49: at 40 columns each redraw scrolled."""
    run = start(muster, terminal, "xterm", steps=1_000_000)

    def lines():
        return [line for line in terminal.drawn() if line.startswith("fit ")]

    def longest(since=0):
        return max(map(len, lines()[since:]), default=0)

    harness.eventually(lambda: longest() >= 39, "a line is as long as the terminal allows")
    assert longest() == 39, lines()[-1]
    # The width is asked anew at each redraw.
    terminal.resize(30)
    before = len(lines())
    harness.eventually(lambda: len(lines()) > before + 2, "more lines are drawn")
    assert longest(since=before + 2) == 29, lines()[-1]
    terminal.resize(200)
    harness.eventually(lambda: " tokens/s" in lines()[-1], "the line is whole again")
    os.killpg(run.pid, signal.SIGINT)
    harness.eventually(lambda: (terminal.read(), run.poll())[1] is not None, "it ends")
    muster.assert_no_process()


@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_dumb_terminal_gets_no_escape_codes(muster, terminal, term):
    """Muster issue 49: TERM=dumb got escape codes."""
    run = start(muster, terminal, term, steps=200)
    harness.eventually(lambda: (terminal.read(), run.poll())[1] is not None, "it ends")
    assert "\x1b" not in terminal.read(), terminal.text
    assert "fit  " in terminal.text and "200/200 steps" in terminal.text, terminal.text
    muster.assert_no_process()


def test_another_name_of_gpt2s_activation_is_accepted(muster):
    """Muster issue 49: `gelu_pytorch_tanh`, which is equal to gelu_new, was refused."""
    x = torch.linspace(-6, 6, 10001, dtype=torch.float64)
    gelu_new = 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    assert torch.allclose(torch.nn.functional.gelu(x, approximate="tanh"), gelu_new, atol=1e-12)
    small = {"world_size": 1, "schedule": None, "checkpoint": None}
    stages = [{"fit": {"steps": 1}}]
    muster.cli("run", jobs.write_job(muster.folder, stages=stages, **small))
    config = json.loads((muster.folder / "config.json").read_text())
    assert config["activation_function"] == "gelu_new"
    model = jobs.TINY["model"] | {"weights": "model.safetensors"}
    again = {"stages": stages, "model": model, "export": None, **small}
    config["activation_function"] = "gelu_pytorch_tanh"
    (muster.folder / "config.json").write_text(json.dumps(config))
    muster.cli("run", jobs.write_job(muster.folder, **again))
    config["activation_function"] = "gelu"
    (muster.folder / "config.json").write_text(json.dumps(config))
    said = muster.cli("run", jobs.write_job(muster.folder, **again), expect=100).err
    assert 'activation_function: expected "gelu_new", found "gelu"' in said, said
    muster.assert_no_process()
