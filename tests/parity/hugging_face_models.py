"""Small models of transformers of every kind that `model.hf` reads, with sizes that reveal a layout
mistake: contexts and vocabularies that divide nothing, groups of heads, heads of another width."""

import torch
from transformers import AutoConfig, AutoModelForCausalLM

DECODER = {
    "vocab_size": 61,
    "hidden_size": 30,
    "intermediate_size": 44,
    "num_hidden_layers": 2,
    "num_attention_heads": 5,
    "num_key_value_heads": 1,
    "head_dim": 6,
    "max_position_embeddings": 37,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": None,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
GPT2 = {
    "vocab_size": 61,
    "n_positions": 37,
    "n_embd": 30,
    "n_layer": 2,
    "n_head": 5,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "attn_pdrop": 0.0,
}

# name: the value of model_type, and the options of its configuration. The first three are trained
# by ./test.sh.
MODELS = {
    "qwen3": ("qwen3", DECODER | {"head_dim": 16, "tie_word_embeddings": True}),
    "llama3": ("llama", DECODER | {"rope_parameters": LLAMA3, "pad_token_id": 7}),
    "mistral": ("mistral", DECODER | {"sliding_window": 7, "head_dim": 12}),
    "gpt2": ("gpt2", GPT2),
    "gpt2-untied": ("gpt2", GPT2 | {"tie_word_embeddings": False, "n_inner": 17}),
    "llama2": ("llama", DECODER | {"num_key_value_heads": 5}),
    "llama-linear": (
        "llama",
        DECODER
        | {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.5}},
    ),
    "llama-biases": (
        "llama",
        DECODER | {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    ),
    "mistral-without-window": ("mistral", DECODER | {"sliding_window": None}),
    "ministral": (
        "ministral",
        DECODER
        | {"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"]},
    ),
    "qwen2": ("qwen2", DECODER | {"tie_word_embeddings": True, "pad_token_id": 1}),
    "qwen2-window": (
        "qwen2",
        DECODER | {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1},
    ),
    "qwen3-biases": (
        "qwen3",
        DECODER
        | {
            "attention_bias": True,
            "use_sliding_window": True,
            "sliding_window": 9,
            "max_window_layers": 0,
        },
    ),
    "smollm2": (
        "llama",
        DECODER
        | {
            "hidden_size": 54,
            "num_attention_heads": 9,
            "num_key_value_heads": 3,
            "tie_word_embeddings": True,
        },
    ),
    "smollm3": (
        "smollm3",
        DECODER | {"num_hidden_layers": 3, "no_rope_layer_interval": 2},
    ),
}


def build(name, **more):
    """The model with the initial values of transformers."""
    model_type, options = MODELS[name]
    torch.manual_seed(5)
    config = AutoConfig.for_model(model_type, **(options | more))
    return AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")


def context_of(name):
    options = MODELS[name][1]
    return options.get("max_position_embeddings") or options["n_positions"]
