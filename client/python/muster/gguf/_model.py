"""The tensors and the settings of a GGUF file, from a config.json and its weights.

The names and layouts are those of llama.cpp's architectures `gpt2`, `llama`, `qwen2`, `qwen3` and
`smollm3`. What llama.cpp computes in another way is refused, or the context is cut to the part in
which both are the same."""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy

Array = Any


@dataclasses.dataclass(frozen=True)
class Tensor:
    name: str
    shape: Sequence[int]
    read: Callable[[], Array]  # float32

    def numpy_type(self, width: int) -> numpy.dtype:
        """The type of an element for the writer, which counts bytes."""
        return numpy.dtype(numpy.float32 if width == 4 else numpy.float16)


@dataclasses.dataclass
class Plan:
    arch: str
    config: dict[str, Any]
    positions: int
    head: int
    rope: dict[str, Any]
    notes: list[str]

    @property
    def vocab_size(self) -> int:
        return int(self.config["vocab_size"])

    def size(self, key: str, gpt2: str, default: Any = None) -> Any:
        found = self.config.get(gpt2 if self.arch == "gpt2" else key)
        return default if found is None else found

    def add_to(self, writer: Any) -> None:
        width = self.size("hidden_size", "n_embd")
        heads = self.size("num_attention_heads", "n_head")
        writer.add_vocab_size(self.vocab_size)
        writer.add_context_length(self.positions)
        writer.add_embedding_length(width)
        writer.add_block_count(self.size("num_hidden_layers", "n_layer"))
        writer.add_feed_forward_length(self.size("intermediate_size", "n_inner", 4 * width))
        writer.add_head_count(heads)
        if self.arch == "gpt2":
            writer.add_layer_norm_eps(self.config.get("layer_norm_epsilon", 1e-5))
            return
        writer.add_head_count_kv(self.size("num_key_value_heads", "", heads))
        writer.add_layer_norm_rms_eps(self.config.get("rms_norm_eps", 1e-6))
        writer.add_key_length(self.head)
        writer.add_value_length(self.head)
        writer.add_rope_dimension_count(self.head)
        writer.add_rope_freq_base(float(self.rope.get("rope_theta", 10000.0)))
        if self.rope.get("rope_type") == "linear":
            import gguf

            writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
            writer.add_rope_scaling_factor(float(self.rope["factor"]))

    def tensors(self, folder: pathlib.Path) -> list[Tensor]:
        """Returns all tensors. ValueError: one of the model's has no place in the file."""
        weights = _Weights(folder)
        found = [self._tensor(weights, name) for name in weights.names()]
        made = [one for one in found if one is not None]
        self._check_whole({one.name for one in made})
        if self.rope.get("rope_type") == "llama3":
            factors = _llama3_factors(self.rope, self.head)
            made.append(Tensor("rope_freqs.weight", factors.shape, lambda: factors))
        return made

    def _check_whole(self, names: set[str]) -> None:
        """ValueError: a tensor is missing."""
        layers = int(self.size("num_hidden_layers", "n_layer"))
        ofs = [name.removeprefix("blk.0.") for name in names if name.startswith("blk.0.")]
        wanted = {f"blk.{layer}.{name}" for layer in range(layers) for name in ofs}
        wanted |= {"token_embd.weight", "output_norm.weight"}
        others = {name for name in names if name.startswith("blk.")}
        if missing := sorted(wanted - names):
            raise ValueError(f"the folder lacks {len(missing)} tensors, such as {missing[0]}")
        if more := sorted(others - wanted):
            raise ValueError(f"the folder has more layers than config.json says: {more[0]}")

    def _tensor(self, weights: _Weights, name: str) -> Tensor | None:
        tied = bool(self.config.get("tie_word_embeddings", self.arch == "gpt2"))
        if name == "lm_head.weight" and tied:
            return None
        target = _gpt2_name(name) if self.arch == "gpt2" else _decoder_name(name)
        if target == "":
            return None  # a constant of old files
        if target is None or (self.arch == "qwen3" and name.endswith("_proj.bias")):
            raise ValueError(f"llama.cpp's model {self.arch} has no place for the tensor {name}")
        shape = weights.shape(name)
        if self.arch == "gpt2" and len(shape) == 2 and ".h." in f".{name}":
            # Conv1D: the matrix is the other way round.
            return Tensor(target, shape[::-1], lambda: weights.read(name).T.copy())
        if self.arch in ("llama", "smollm3") and (".q_proj." in name or ".k_proj." in name):
            # These architectures rotate neighbours, and Hugging Face the two halves of a head.
            return Tensor(target, shape, lambda: _neighbours(weights.read(name), self.head))
        return Tensor(target, shape, lambda: weights.read(name))


def plan_of(config: dict[str, Any], folder: pathlib.Path) -> Plan:
    kind = str(config.get("model_type"))
    arch = {"gpt2": "gpt2", "llama": "llama", "mistral": "llama", "ministral": "llama"}.get(kind)
    arch = arch or {"qwen2": "qwen2", "qwen3": "qwen3", "smollm3": "smollm3"}.get(kind)
    if arch is None:
        raise ValueError(f"{folder}/config.json: model_type {kind} cannot be written as GGUF")
    if "quantization_config" in config:
        raise ValueError(f"{folder}/config.json: quantized weights cannot be written")
    _check_computation(config, arch, folder)
    notes: list[str] = []
    if arch == "gpt2":
        return Plan(arch, config, int(config["n_positions"]), 0, {}, notes)
    positions = int(config["max_position_embeddings"])
    window = _window(config, kind)
    if window is not None and window < positions:
        positions = window
        notes.append(
            f"the file's context is {window} tokens: up to there a token sees all tokens before "
            "it, and llama.cpp has no sliding window for this model"
        )
    rope = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    rope.setdefault("rope_type", rope.pop("type", "default"))
    if config.get("rope_theta") is not None:
        rope.setdefault("rope_theta", config["rope_theta"])
    if rope["rope_type"] not in ("default", "linear", "llama3") or (
        rope["rope_type"] == "llama3" and arch != "llama"
    ):
        raise ValueError(
            f"{folder}/config.json: rotary positions {rope['rope_type']} of the model {kind}, "
            "which llama.cpp does not compute"
        )
    if arch == "smollm3" and _rotary_layers(config) != _each_fourth(config):
        raise ValueError(
            f"{folder}/config.json: llama.cpp leaves out rotary positions in each fourth layer, "
            "and this model in others"
        )
    head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    return Plan(arch, config, positions, int(head), rope, notes)


def _check_computation(config: dict[str, Any], arch: str, folder: pathlib.Path) -> None:
    """ValueError: llama.cpp computes something else than the model."""
    wanted: dict[str, tuple[Any, ...]] = {"hidden_act": ("silu", "swish")}
    if arch == "gpt2":
        gelu = ("gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu_python_tanh")
        wanted = {
            "activation_function": gelu,
            "scale_attn_weights": (True,),
            "scale_attn_by_inverse_layer_idx": (False,),
        }
    for key, allowed in wanted.items():
        found = config.get(key)
        if found is not None and found not in allowed:
            raise ValueError(
                f"{folder}/config.json: {key}: llama.cpp computes {allowed[0]}, found {found}"
            )


def _window(config: dict[str, Any], kind: str) -> int | None:
    if kind.startswith("qwen") and not config.get("use_sliding_window"):
        return None
    return config.get("sliding_window")


def _rotary_layers(config: dict[str, Any]) -> list[int]:
    """Returns 1 for each layer with rotary positions, and 0 for the others."""
    given = config.get("no_rope_layers")
    return list(given) if given else _each_fourth(config, config.get("no_rope_layer_interval") or 4)


def _each_fourth(config: dict[str, Any], step: int = 4) -> list[int]:
    return [int((at + 1) % step != 0) for at in range(int(config["num_hidden_layers"]))]


class _Weights:
    """The tensors of a folder, in one file or several."""

    def __init__(self, folder: pathlib.Path):
        import safetensors

        index = folder / "model.safetensors.index.json"
        if index.exists():
            files = set(json.loads(index.read_text("utf-8"))["weight_map"].values())
            paths = [folder / name for name in sorted(files)]
        else:
            paths = [folder / "model.safetensors"]
        if not all(path.exists() for path in paths):
            raise ValueError(f"{folder} has no weights in safetensors, or not all of their files")
        self._files = [safetensors.safe_open(path, "pt") for path in paths]
        self._places = {name: file for file in self._files for name in file.keys()}

    def names(self) -> list[str]:
        return list(self._places)

    def shape(self, name: str) -> list[int]:
        return list(self._places[name].get_slice(name).get_shape())

    def read(self, name: str) -> Array:
        return self._places[name].get_tensor(name).float().numpy()


_GPT2 = {
    "ln_1": "attn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "ln_2": "ffn_norm",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}
_DECODER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def _gpt2_name(name: str) -> str | None:
    """Returns None for an unknown name, and "" for one that is not needed."""
    name = name.removeprefix("transformer.")
    whole = {
        "wte.weight": "token_embd.weight",
        "wpe.weight": "position_embd.weight",
        "ln_f.weight": "output_norm.weight",
        "ln_f.bias": "output_norm.bias",
        "lm_head.weight": "output.weight",
    }
    if name in whole:
        return whole[name]
    if name.endswith((".attn.bias", ".attn.masked_bias")):
        return ""
    return _in_layer(name, "h.", _GPT2)


def _decoder_name(name: str) -> str | None:
    name = name.removeprefix("model.")
    whole = {
        "embed_tokens.weight": "token_embd.weight",
        "norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    if name in whole:
        return whole[name]
    if name.endswith("rotary_emb.inv_freq"):
        return ""
    return _in_layer(name, "layers.", _DECODER)


def _in_layer(name: str, prefix: str, names: dict[str, str]) -> str | None:
    if not name.startswith(prefix):
        return None
    number, _, rest = name.removeprefix(prefix).partition(".")
    module, _, part = rest.rpartition(".")
    if module not in names or part not in ("weight", "bias"):
        return None
    return f"blk.{number}.{names[module]}.{part}"


def _neighbours(rows: Array, head: int) -> Array:
    """Returns the rows of each head in the order 0, head / 2, 1, head / 2 + 1, ..."""
    parts = rows.reshape(rows.shape[0] // head, 2, head // 2, *rows.shape[1:])
    return parts.swapaxes(1, 2).reshape(rows.shape).copy()


def _llama3_factors(rope: dict[str, Any], head: int) -> Array:
    """Returns what each pair's frequency is divided by (transformers: rope_type llama3)."""
    low = rope["original_max_position_embeddings"] / rope["low_freq_factor"]
    high = rope["original_max_position_embeddings"] / rope["high_freq_factor"]
    factors = []
    for pair in range(head // 2):
        turn = 2 * math.pi * float(rope.get("rope_theta", 10000.0)) ** (2 * pair / head)
        if turn < high:
            factors.append(1.0)
        elif turn > low:
            factors.append(float(rope["factor"]))
        else:
            smooth = (rope["original_max_position_embeddings"] / turn - rope["low_freq_factor"]) / (
                rope["high_freq_factor"] - rope["low_freq_factor"]
            )
            factors.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return numpy.array(factors, numpy.float32)
