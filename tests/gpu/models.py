"""GPT-2 and Llama in plain PyTorch, with the parameter names of Muster's models, for machines that
have nothing but torch."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class Projection(nn.Module):
    """GPT-2's linear layer: the weight is [in, out]."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs) * 0.02)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return torch.addmm(self.bias, x.reshape(-1, x.shape[-1]), self.weight).view(
            *x.shape[:-1], -1
        )


class Gpt2Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.c_attn = Projection(width, 3 * width)
        self.c_proj = Projection(width, width)

    def forward(self, x):
        batch, context, width = x.shape
        query, key, value = (
            part.view(batch, context, self.heads, width // self.heads).transpose(1, 2)
            for part in self.c_attn(x).split(width, dim=2)
        )
        out = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.c_proj(out.transpose(1, 2).reshape(batch, context, width))


class Gpt2Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc = Projection(width, 4 * width)
        self.c_proj = Projection(4 * width, width)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Gpt2Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Gpt2Attention(width, heads)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = Gpt2Mlp(width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt2Body(nn.Module):
    def __init__(self, options):
        super().__init__()
        width = options["width"]
        self.wte = nn.Embedding(options["vocab_size"], width)
        self.wpe = nn.Embedding(options["context"], width)
        nn.init.normal_(self.wte.weight, std=0.02)
        nn.init.normal_(self.wpe.weight, std=0.01)
        self.h = nn.ModuleList(Gpt2Block(width, options["heads"]) for _ in range(options["layers"]))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.h:
            x = block(x)
        return self.ln_f(x)


class Gpt2(nn.Module):
    """The embedding is also the weight of the last layer."""

    def __init__(self, options):
        super().__init__()
        self.transformer = Gpt2Body(options)

    def forward(self, tokens):
        return F.linear(self.transformer(tokens), self.transformer.wte.weight)

    def blocks(self):
        return self.transformer.h


class LlamaAttention(nn.Module):
    def __init__(self, width, heads, kv_heads):
        super().__init__()
        self.heads, self.kv_heads, self.head = heads, kv_heads, width // heads
        self.q_proj = nn.Linear(width, heads * self.head, bias=False)
        self.k_proj = nn.Linear(width, kv_heads * self.head, bias=False)
        self.v_proj = nn.Linear(width, kv_heads * self.head, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)

    def forward(self, x, turns):
        batch, context, width = x.shape
        query = self.q_proj(x).view(batch, context, self.heads, self.head).transpose(1, 2)
        key, value = (
            projection(x).view(batch, context, self.kv_heads, self.head).transpose(1, 2)
            for projection in (self.k_proj, self.v_proj)
        )
        query, key = turned(query, turns), turned(key, turns)
        groups = self.heads // self.kv_heads
        if groups > 1:
            key, value = (part.repeat_interleave(groups, dim=1) for part in (key, value))
        out = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.o_proj(out.transpose(1, 2).reshape(batch, context, width))


def turned(x, turns):
    cosines, sines = (turn.to(x.dtype) for turn in turns)
    first, second = x.chunk(2, dim=-1)
    return x * cosines + torch.cat([-second, first], dim=-1) * sines


class LlamaMlp(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class LlamaBlock(nn.Module):
    def __init__(self, options):
        super().__init__()
        width, eps = options["width"], options.get("norm_eps", 1e-5)
        self.input_layernorm = nn.RMSNorm(width, eps)
        self.self_attn = LlamaAttention(
            width, options["heads"], options.get("kv_heads", options["heads"])
        )
        self.post_attention_layernorm = nn.RMSNorm(width, eps)
        self.mlp = LlamaMlp(width, options["inner"])

    def forward(self, x, turns):
        x = x + self.self_attn(self.input_layernorm(x), turns)
        return x + self.mlp(self.post_attention_layernorm(x))


class LlamaBody(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.embed_tokens = nn.Embedding(options["vocab_size"], options["width"])
        self.layers = nn.ModuleList(LlamaBlock(options) for _ in range(options["layers"]))
        self.norm = nn.RMSNorm(options["width"], options.get("norm_eps", 1e-5))
        head = options["width"] // options["heads"]
        self.powers = torch.arange(0, head, 2).float() / head
        self.theta = options.get("rope_theta", 10000.0)
        self.turns = {}  # by length and device

    def turns_of(self, x):
        key = (x.shape[1], x.device)
        if key not in self.turns:
            places = torch.arange(x.shape[1]).float()
            angles = torch.outer(places, self.theta**-self.powers).repeat(1, 2)
            self.turns[key] = angles.cos().to(x.device), angles.sin().to(x.device)
        return self.turns[key]

    def forward(self, tokens):
        x = self.embed_tokens(tokens)
        turns = self.turns_of(x)
        for layer in self.layers:
            x = layer(x, turns)
        return self.norm(x)


class Llama(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.model = LlamaBody(options)
        self.lm_head = nn.Linear(options["width"], options["vocab_size"], bias=False)
        for weight in self.parameters():
            if weight.dim() > 1:
                nn.init.normal_(weight, std=1 / math.sqrt(options["width"]))

    def forward(self, tokens):
        return self.lm_head(self.model(tokens))

    def blocks(self):
        return self.model.layers


def build(model, seed=1):
    """`model`: as in a job file. Its initial values depend on the seed only."""
    torch.manual_seed(seed)
    (kind, options), *_ = ((kind, model[kind]) for kind in ("gpt2", "llama") if kind in model)
    return {"gpt2": Gpt2, "llama": Llama}[kind](options)
