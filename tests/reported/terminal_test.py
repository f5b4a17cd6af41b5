"""The progress on terminals of every kind."""

import fcntl
import json
import os
import pty
import signal
import struct
import termios

import pytest
import torch
from safetensors.torch import save_file

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

    harness.eventually(lambda: any(len(line) == 39 for line in lines()), "a line is cut")
    assert all(len(line) < 40 for line in lines()), lines()
    # The width is asked anew at each redraw.
    terminal.resize(30)
    before = len(lines())
    harness.eventually(
        lambda: any(len(line) == 29 for line in lines()[before:]), "a line is cut to the new width"
    )
    terminal.resize(200)
    harness.eventually(lambda: " samples/s" in lines()[-1] or " tokens/s" in lines()[-1], "it is whole")
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


@pytest.mark.parametrize("activation", ["gelu_new", "gelu_pytorch_tanh"])
def test_the_other_name_of_gpt2s_activation_is_accepted(muster, activation):
    """Muster issue 49: `gelu_pytorch_tanh`, which is equal to gelu_new, was refused."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=256,
        n_positions=16,
        n_embd=16,
        n_layer=1,
        n_head=2,
        activation_function=activation,
    )
    torch.manual_seed(1)
    model = GPT2LMHeadModel(config)
    tensors = {n: t.clone() for n, t in model.state_dict().items() if n != "lm_head.weight"}
    save_file(tensors, muster.folder / "model.safetensors")
    (muster.folder / "config.json").write_text(json.dumps(config.to_dict()))
    gpt2 = {"vocab_size": 256, "context": 16, "layers": 1, "heads": 2, "width": 16}
    job_file = jobs.write_job(
        muster.folder,
        world_size=1,
        model={"gpt2": gpt2, "weights": "model.safetensors"},
        data={key: {"tokens": {"path": "train.bin"}} for key in ("train", "test")},
        stages=[{"test": {}}],
        optimizer=None,
        schedule=None,
        checkpoint=None,
        export=None,
        clip_grad_norm=None,
        batch={"per_rank": 2},
    )
    result = muster.cli("run", job_file, "-o", "json")
    tokens = torch.frombuffer(
        bytearray((muster.folder / "train.bin").read_bytes()), dtype=torch.uint16
    ).long()
    samples = torch.stack([tokens[i * 16 : i * 16 + 17] for i in range((len(tokens) - 1) // 16)])
    with torch.no_grad():
        logits = model.eval()(samples[:, :-1]).logits
    expected = torch.nn.functional.cross_entropy(
        logits.reshape(-1, 256), samples[:, 1:].reshape(-1)
    ).item()
    assert abs(result.json()["test"]["loss"] - expected) < 1e-5
