"""PyTorch models that tests export: small, with random weights under a fixed seed. Each is a
function that returns a new model, and an example of its input."""

import torch
from torch import nn

VOCABULARY = 61
CONTEXT = 12


def gpt2():
    """transformers' GPT-2, with a tied head."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(3)
    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=CONTEXT,
        n_embd=32,
        n_layer=2,
        n_head=4,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
        use_cache=False,
    )
    return GPT2LMHeadModel(config)


def llama():
    """transformers' Llama, with grouped queries and a head of its own."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT,
        bos_token_id=0,
        eos_token_id=0,
        use_cache=False,
    )
    return LlamaForCausalLM(config)


def tokens():
    """An example of the input of a language model."""
    return torch.arange(2 * CONTEXT).mul(7).remainder(VOCABULARY).view(2, CONTEXT)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.norm(self.conv(x))
        y += x
        return self.act(y)


class Network(nn.Module):
    """A residual network with BatchNorm, operators in place and a buffer of its own that counts."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, padding=1)
        self.blocks = nn.Sequential(Block(8), Block(8))
        self.head = nn.Linear(8, 3)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        if self.training:
            self.calls.add_(1)
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


def network():
    torch.manual_seed(3)
    return Network()


def dropout():
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(36, 64),
        nn.Dropout(0.5),
        nn.ReLU(),
        nn.Linear(64, 3),
        nn.Dropout(0.1),
    )


def wide(width=1500):
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(36, width),
        nn.BatchNorm1d(width),
        nn.Dropout(0.3),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, 3),
    )


def images():
    """An example of the input of `network`."""
    return torch.rand(2, 1, 6, 6)


def logits_of(output):
    return output if isinstance(output, torch.Tensor) else output.logits
