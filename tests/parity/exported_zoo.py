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


class Widened(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.up = nn.Linear(width, inner)
        self.down = nn.Linear(inner, width)

    def forward(self, x):
        return self.down(self.up(x).relu())


class FourBlocks(nn.Module):
    """Four equal blocks, and a parameter beside them."""

    def __init__(self, width, inner):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.blocks = nn.ModuleList(Widened(width, inner) for _ in range(4))

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x) * self.scale
        return x


def four_blocks():
    torch.manual_seed(3)
    return FourBlocks(200, 800)


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


def bert():
    """transformers' BERT, which gives each sequence one of three classes."""
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(3)
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=CONTEXT,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        num_labels=3,
    )
    return BertForSequenceClassification(config)


def sequences():
    """An example of the inputs of `bert`."""
    mask = torch.ones(2, CONTEXT, dtype=torch.int64)
    mask[1, 9:] = 0
    return {"input_ids": tokens(), "attention_mask": mask}


class TwoInputs(nn.Module):
    """Numbers and a kind, each with a layer of its own."""

    def __init__(self):
        super().__init__()
        self.numbers = nn.Linear(4, 16)
        self.kinds = nn.Embedding(7, 16)
        self.layers = nn.ModuleList([nn.Linear(16, 16) for _ in range(2)])
        self.head = nn.Linear(16, 2)

    def forward(self, numbers, kind):
        x = self.numbers(numbers) + self.kinds(kind)
        for layer in self.layers:
            x = x + nn.functional.gelu(layer(x))
        return self.head(x)


def two_inputs():
    torch.manual_seed(3)
    return TwoInputs()


def huber(output, wanted):
    """A loss of the user's own."""
    return nn.functional.huber_loss(output, wanted, delta=0.5)


def logits_of(output):
    return output if isinstance(output, torch.Tensor) else output.logits
