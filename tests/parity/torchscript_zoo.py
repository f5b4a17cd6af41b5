"""Modules for TorchScript, as people write them. Each takes a batch [N, 3, 16, 16] of rows, or [N,
8] of tokens below 20, and gives 5 numbers for each row or token."""

import math
from enum import Enum
from typing import Dict, List, NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

IMAGE = [3, 16, 16]
CLASSES = 5
VOCABULARY = 20
CONTEXT = 8


class Basic(nn.Module):
    """ResNet's block."""

    def __init__(self, inside, outside, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.down: Optional[nn.Module] = None
        if stride != 1:
            self.down = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
            )

    def forward(self, x):
        identity = x
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        if self.down is not None:
            identity = self.down(x)
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 7, 2, 3), nn.BatchNorm2d(8), nn.ReLU())
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.layers = nn.Sequential(Basic(8, 8), Basic(8, 16, 2))
        self.average = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.average(self.layers(self.pool(self.stem(x))))
        return self.fc(torch.flatten(x, 1))


class Dense(nn.Module):
    """DenseNet's layer: a list of features, overloads by type, and a choice by a flag."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv2d(3 + 4 * i, 4, 3, padding=1) for i in range(3)])
        self.norm = nn.BatchNorm2d(15)
        self.drop_rate = 0.2
        self.head = nn.Linear(15, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        features: List[Tensor] = [x]
        for layer in self.layers:
            new = F.relu(layer(torch.cat(features, 1)))
            if self.drop_rate > 0:
                new = F.dropout(new, p=self.drop_rate, training=self.training)
            features.append(new)
        out = F.relu(self.norm(torch.cat(features, 1)), inplace=True)
        out = F.adaptive_avg_pool2d(out, (1, 1))
        return self.head(torch.flatten(out, 1))


class Mobile(nn.Module):
    """MobileNet's and EfficientNet's parts: depthwise convolution, squeeze and excitation,
    stochastic depth."""

    def __init__(self):
        super().__init__()
        self.expand = nn.Conv2d(3, 12, 1)
        self.depthwise = nn.Conv2d(12, 12, 3, padding=1, groups=12)
        self.squeeze = nn.Conv2d(12, 3, 1)
        self.excite = nn.Conv2d(3, 12, 1)
        self.norm = nn.GroupNorm(3, 12)
        self.head = nn.Linear(12, CLASSES)

    def drop_path(self, x: Tensor, p: float) -> Tensor:
        if p == 0.0 or not self.training:
            return x
        noise = torch.empty([x.shape[0]] + [1] * (x.ndim - 1), dtype=x.dtype, device=x.device)
        noise = noise.bernoulli_(1.0 - p)
        if p < 1.0:
            noise.div_(1.0 - p)
        return x * noise

    def forward(self, x: Tensor) -> Tensor:
        x = F.hardswish(self.expand(x))
        x = F.relu6(self.depthwise(x))
        scale = F.hardsigmoid(self.excite(F.silu(self.squeeze(x.mean([2, 3], keepdim=True)))))
        x = x + self.drop_path(self.norm(x * scale), 0.1)
        return self.head(x.mean((-2, -1)))


class UNet(nn.Module):
    """Down and up again, with skips."""

    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(3, 6, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(6, 6, 2, stride=2)
        self.norm = nn.InstanceNorm2d(6, affine=True)
        self.out = nn.Conv2d(9, CLASSES, 3, padding=1, padding_mode="reflect")
        self.act = nn.PReLU()

    def forward(self, x: Tensor) -> Tensor:
        down = self.act(self.down(x))
        small = F.interpolate(down, scale_factor=2.0, mode="bilinear", align_corners=False)
        up = self.norm(self.up(down)) + F.leaky_relu(small, 0.1)
        up = F.pad(up, [0, x.size(3) - up.size(3), 0, x.size(2) - up.size(2)])
        return self.out(torch.cat([up, x], dim=1)).amax(dim=(2, 3))


class Windowed(nn.Module):
    """Swin's window attention, with a roll, a relative bias and a mask."""

    def __init__(self, width=12, heads=2, window=4):
        super().__init__()
        self.window = window
        self.heads = heads
        self.patch = nn.Conv2d(3, width, 2, 2)
        self.qkv = nn.Linear(width, 3 * width)
        self.norm = nn.LayerNorm(width)
        self.bias = nn.Parameter(torch.zeros((2 * window - 1) ** 2, heads))
        at = torch.stack(
            torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")
        ).flatten(1)
        relative = (at[:, :, None] - at[:, None, :]).permute(1, 2, 0) + window - 1
        self.register_buffer("index", (relative[..., 0] * (2 * window - 1) + relative[..., 1]))
        nn.init.trunc_normal_(self.bias, std=0.02)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).permute(0, 2, 3, 1)
        x = torch.roll(self.norm(x), shifts=(-1, -1), dims=(1, 2))
        n, height, width, c = x.shape
        w = self.window
        x = x.view(n, height // w, w, width // w, w, c).transpose(2, 3).reshape(-1, w * w, c)
        qkv = self.qkv(x).reshape(x.size(0), w * w, 3, self.heads, c // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q * (c // self.heads) ** -0.5) @ k.transpose(-2, -1)
        bias = self.bias[self.index.view(-1)].view(w * w, w * w, -1)
        scores = scores + bias.permute(2, 0, 1).contiguous().unsqueeze(0)
        mask = torch.ones(w * w, w * w, dtype=torch.bool, device=x.device).triu_(3)
        scores = scores.masked_fill(mask, float("-inf")).softmax(dim=-1)
        out = (scores @ v).transpose(1, 2).reshape(n, -1, c)
        return self.head(out.mean(1))


class Vision(nn.Module):
    """ViT: a class token, learned positions, PyTorch's own attention and encoder layer."""

    def __init__(self, width=16):
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, 4)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.empty(1, 17, width).normal_(std=0.02))
        self.attention = nn.MultiheadAttention(width, 4, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(
                width, 4, 32, 0.1, activation="gelu", batch_first=True, norm_first=True
            ),
            2,
            enable_nested_tensor=False,
        )
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.size(0), -1, -1), x], 1) + self.positions
        y, _ = self.attention(x, x, x, need_weights=False)
        return self.head(self.encoder(x + y)[:, 0])


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 12, padding_idx=0)
        self.lstm = nn.LSTM(12, 10, num_layers=2, dropout=0.2, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(20, 10, batch_first=True)
        self.cell = nn.LSTMCell(10, 10)
        self.out = nn.Linear(10, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        x, _ = self.lstm(self.embed(tokens))
        x, _ = self.gru(x)
        h = torch.zeros(x.size(0), 10, device=x.device)
        c = torch.zeros_like(h)
        outputs: List[Tensor] = []
        for step in x.unbind(1):
            h, c = self.cell(step, (h, c))
            outputs.append(h)
        return self.out(torch.stack(outputs, dim=1))


class Packed(nn.Module):
    """Sequences of different lengths."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 6)
        self.rnn = nn.RNN(6, 6, batch_first=True)
        self.out = nn.Linear(6, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        lengths = torch.full([tokens.size(0)], tokens.size(1), dtype=torch.long)
        packed = nn.utils.rnn.pack_padded_sequence(
            self.embed(tokens), lengths, batch_first=True, enforce_sorted=False
        )
        out, _ = self.rnn(packed)
        x, _ = nn.utils.rnn.pad_packed_sequence(out, batch_first=True)
        return self.out(x)


class Language(nn.Module):
    """A decoder with rotary positions, RMS norm, a causal mask and a gated MLP."""

    def __init__(self, width=16, heads=2):
        super().__init__()
        self.heads = heads
        self.embed = nn.Embedding(VOCABULARY, width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.scale = nn.Parameter(torch.ones(width))
        self.gate = nn.Linear(width, 4 * width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        rates = 1.0 / (10000.0 ** (torch.arange(0, width // heads, 2).float() / (width // heads)))
        self.register_buffer("rates", rates, persistent=False)
        self.eps = 1e-6

    def norm(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.scale

    def rotate(self, x: Tensor) -> Tensor:
        at = torch.arange(x.size(2), device=x.device, dtype=self.rates.dtype)
        angles = torch.einsum("i,j->ij", at, self.rates)
        angles = torch.cat((angles, angles), dim=-1)
        a, b = x.chunk(2, dim=-1)
        return x * angles.cos() + torch.cat((-b, a), dim=-1) * angles.sin()

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        n, t, c = x.shape
        q, k, v = self.qkv(self.norm(x)).split(c, dim=2)
        shape = [n, t, self.heads, c // self.heads]
        q = self.rotate(q.view(shape).transpose(1, 2))
        k = self.rotate(k.view(shape).transpose(1, 2))
        v = v.view(shape).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + y.transpose(1, 2).contiguous().view(n, t, c)
        x = x + self.down(F.silu(self.gate(x)) * self.up(x))
        return F.linear(x, self.embed.weight) / math.sqrt(c)


class Translator(nn.Module):
    """PyTorch's own encoder and decoder, with masks."""

    def __init__(self, width=8):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, width)
        self.transformer = nn.Transformer(width, 2, 1, 1, 16, 0.1, batch_first=True)
        self.out = nn.Linear(width, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        mask = torch.full([tokens.size(1), tokens.size(1)], float("-inf")).triu(1)
        padding = tokens < 0
        return self.out(
            self.transformer(x, x, src_mask=mask, tgt_mask=mask, src_key_padding_mask=padding)
        )


class Kind(Enum):
    MEAN = 0
    MAX = 1


class Pair(NamedTuple):
    near: Tensor
    far: Tensor


@torch.jit.interface
class Head(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        pass


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x)


class Controlled(nn.Module):
    """Control flow, text, lists, dictionaries, an enumeration, an interface and a class."""

    head: Head

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(math.prod(IMAGE), 12)
        self.branches = nn.ModuleDict({"a": nn.Linear(12, 12), "b": nn.Identity()})
        self.head = Plain()
        self.kind = Kind.MEAN
        self.sizes = [1, 2, 3]
        self.names: Dict[str, int] = {"a": 1, "b": 2}

    @torch.jit.export
    def named(self, x: Tensor, name: str, scale: float) -> Tensor:
        assert x.dim() == 2, f"expected 2 dimensions, found {x.dim()}"
        if name not in self.names or name.startswith("_"):
            raise ValueError("no branch {}".format(name))
        return x * scale * self.names[name]

    @torch.jit.ignore
    def left_out(self, x):
        return x

    def forward(
        self,
        x: Tensor,
        scale: float = -1.5,
        size: Optional[int] = None,
        shape: Tuple[int, int] = (1, 2),
        name: str = "a",
        high: float = math.inf,
    ) -> Tensor:
        x = torch.tanh(self.fc(x.flatten(1)))
        total = torch.zeros([], device=x.device)
        for i, size in enumerate(self.sizes):
            if i % 2 == 0 and size > 0:
                total = total + float(size) * x.abs().max()
            else:
                continue
        count = 0
        while count < 3:
            x = x + 1e-3 * count
            count += 1
            if count >= 2:
                break
        for name, branch in self.branches.items():
            x = self.named(branch(x), name, scale)
        pair = Pair(x.clamp(min=-1.0), x.clamp(max=1.0))
        if self.kind == Kind.MEAN:
            x = (pair.near + pair.far) / 2
        found: Dict[str, Tensor] = {}
        found["x"] = x
        best: Optional[Tuple[Tensor, int]] = None
        if x.size(0) > 0:
            best = (found["x"], len(found))
        if best is None:
            best = (x, 0)
        with torch.no_grad():
            spread = best[0].std(dim=0, keepdim=True) + 1.0
        rows = [row for row in best[0].unbind(0)]
        sizes = sorted([int(row.numel()) for row in rows])
        assert max(sizes) == min(sizes[-1], 12)
        return self.head(torch.stack(rows) / spread) + 0.0 * total


class Numbers(nn.Module):
    """Losses inside, selections, sorts, FFT and linear algebra."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(math.prod(IMAGE), CLASSES)
        self.code = nn.Parameter(torch.randn(7, CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(x.flatten(1))
        distance = torch.cdist(y, self.code)
        nearest = torch.argmin(distance, dim=1)
        coded = F.one_hot(nearest, self.code.size(0)).type_as(y) @ self.code
        y = y + (coded - y).detach()
        top, at = torch.topk(y, 2, dim=1)
        z = torch.zeros_like(y).scatter_(1, at, top)
        z = z + torch.where(y > 0, y, torch.exp(y) - 1)
        low = F.softplus(y).log().cumsum(1).gather(1, at).sum(1, keepdim=True)
        wave = torch.fft.irfft(torch.fft.rfft(y, dim=1), n=y.size(1), dim=1)
        q, _ = torch.linalg.qr(self.code)
        order, _ = torch.sort(wave, dim=1, descending=True)
        loss = F.mse_loss(y, z) + F.cross_entropy(y, nearest % y.size(1)) + q.norm()
        picked = torch.index_select(order, 0, torch.arange(y.size(0)))
        return z + low + picked + loss + F.normalize(y, dim=1) + F.log_softmax(y, 1).lerp(y, 0.5)


def traced_attention():
    torch.manual_seed(1)
    return torch.jit.trace(Windowed().eval(), torch.randn(2, *IMAGE))


def traced_recurrent():
    torch.manual_seed(1)
    return torch.jit.trace(Recurrent().eval(), torch.randint(0, VOCABULARY, (2, CONTEXT)))


IMAGES = {
    "resnet": lambda: torch.jit.script(ResNet()),
    "densenet": lambda: torch.jit.script(Dense()),
    "mobilenet": lambda: torch.jit.script(Mobile()),
    "unet": lambda: torch.jit.script(UNet()),
    "windowed-attention": lambda: torch.jit.script(Windowed()),
    "vision-transformer": lambda: torch.jit.script(Vision()),
    "control-flow": lambda: torch.jit.script(Controlled()),
    "numbers": lambda: torch.jit.script(Numbers()),
    "traced-attention": traced_attention,
}
TOKENS = {
    "recurrent": lambda: torch.jit.script(Recurrent()),
    "packed-sequences": lambda: torch.jit.script(Packed()),
    "language": lambda: torch.jit.script(Language()),
    "translator": lambda: torch.jit.script(Translator()),
    "traced-recurrent": traced_recurrent,
}
