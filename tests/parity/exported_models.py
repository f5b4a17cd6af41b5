"""Twenty models that people train, small and with random weights under a fixed seed, each with an
example of its inputs, with data, and with what Python makes the loss of."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

from tests.parity import exported_zoo as zoo
from tests.parity import workloads

SGD = {"sgd": {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01}}
# A larger rate lets the rounding of a network with BatchNorm grow: PyTorch, with the micro-batches
# of a step in the other order, then differs from itself by 3e-5 after 18 steps.
SLOW = {"sgd": {"lr": 0.01, "momentum": 0.9, "weight_decay": 0.01}}
ADAMW = {"adamw": {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-5, "weight_decay": 0.1}}

SAMPLES = 150
CONTEXT, VOCABULARY = zoo.CONTEXT, zoo.VOCABULARY
SMALL = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
DECODER = {
    **SMALL,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": None,
    "use_cache": False,
}


def of_transformers(name, config, **options):
    """A model of transformers, made from its class and the class of its configuration."""
    import transformers

    torch.manual_seed(3)
    return getattr(transformers, name)(getattr(transformers, config)(**options))


def decoder(family, config=None, **options):
    return lambda: of_transformers(
        f"{family}ForCausalLM", config or f"{family}Config", **{**DECODER, **options}
    )


def llama_with_scaled_rotations():
    return decoder(
        "Llama",
        tie_word_embeddings=True,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 10000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8,
        },
    )()


def mixtral():
    made = decoder("Mixtral", num_local_experts=4)()
    made.set_experts_implementation("batched_mm")
    return made


def with_adapters():
    """A Llama of which only LoRA's adapters are trained, by PEFT."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(4)
    made = get_peft_model(
        zoo.llama(), LoraConfig(r=4, lora_dropout=0.0, target_modules=["q_proj", "v_proj"])
    )
    for name, parameter in made.named_parameters():
        if "lora_B" in name:  # zeros at first
            nn.init.normal_(parameter, std=0.02)
    return made


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 16)
        self.lstm = nn.LSTM(16, 24, 2, batch_first=True)
        self.head = nn.Linear(24, VOCABULARY)

    def forward(self, tokens):
        return self.head(self.lstm(self.embed(tokens))[0])


class UNet(nn.Module):
    """Gives each pixel a class."""

    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU())
        self.deep = nn.Sequential(
            nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.GroupNorm(2, 16), nn.SiLU()
        )
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.out = nn.Conv2d(16, 3, 1)

    def forward(self, pixels):
        high = self.down(pixels)
        return self.out(torch.cat([high, self.up(self.deep(high))], 1))


class Listener(nn.Module):
    """Whisper's encoder, and a class for each sound."""

    def __init__(self):
        super().__init__()
        from transformers import WhisperConfig
        from transformers.models.whisper.modeling_whisper import WhisperEncoder

        config = WhisperConfig(
            num_mel_bins=8,
            d_model=32,
            encoder_layers=2,
            encoder_attention_heads=4,
            encoder_ffn_dim=48,
            max_source_positions=10,
            dropout=0.0,
        )
        self.encoder = WhisperEncoder(config)
        self.head = nn.Linear(32, 3)

    def forward(self, input_features):
        return self.head(self.encoder(input_features).last_hidden_state.mean(1))


def seeded(module):
    def build():
        torch.manual_seed(3)
        return module()

    return build


def tokens(folder):
    workloads.write_tokens(folder / "train.bin", VOCABULARY, 1000, seed=1)
    return {"tokens": {"path": str(folder / "train.bin"), "dtype": "uint16"}}


def rows(*shape):
    """Rows of this shape, with a class of three for each."""

    def make(folder):
        generator = numpy.random.default_rng(1)
        numpy.save(folder / "inputs.npy", generator.random((SAMPLES, *shape), dtype=numpy.float32))
        numpy.save(folder / "labels.npy", generator.integers(0, 3, SAMPLES))
        return {"npy": {"inputs": str(folder / "inputs.npy"), "labels": str(folder / "labels.npy")}}

    return make


def arrays(inputs, targets=None, **made):
    """Arrays by name. made: functions that make the arrays with a generator."""

    def make(folder):
        generator = torch.Generator().manual_seed(5)
        save_file(
            {name: one(generator).contiguous() for name, one in made.items()},
            folder / "data.safetensors",
        )
        source = {"path": str(folder / "data.safetensors"), "inputs": inputs}
        return {"safetensors": source if targets is None else source | {"targets": targets}}

    return make


def numbers(below, *shape):
    return lambda generator: torch.randint(0, below, (SAMPLES, *shape), generator=generator)


def reals(*shape, dtype=torch.float32):
    return lambda generator: torch.rand(SAMPLES, *shape, generator=generator, dtype=dtype)


def lengths(generator):
    """Masks of sequences of different lengths."""
    length = torch.randint(3, CONTEXT + 1, (SAMPLES, 1), generator=generator)
    # Another type than the model's, which the worker converts.
    return torch.arange(CONTEXT) < length


def answers(generator):
    """Tokens of which some are no targets: the first of each sample, up to all but one."""
    found = torch.randint(0, VOCABULARY, (SAMPLES, CONTEXT), generator=generator)
    prompt = torch.randint(0, CONTEXT, (SAMPLES, 1), generator=generator)
    return found.masked_fill(torch.arange(CONTEXT) < prompt, -100)


def of_logits(output, targets):
    logits = zoo.logits_of(output)
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))


def of_the_model(output, _):
    return output.loss


def of_pixels(output, labels):
    return F.cross_entropy(output, labels)


@dataclasses.dataclass
class Case:
    build: Callable[[], nn.Module]
    example: Callable[[], Any]
    # Writes the data into a folder, and returns the data set of the job file.
    data: Callable[[Any], dict]
    optimizer: dict = dataclasses.field(default_factory=lambda: ADAMW)
    # The loss in Python, of the model's output and of the targets of the data.
    loss: Callable[[Any, Any], torch.Tensor] = of_logits
    # For muster.export.
    options: dict = dataclasses.field(default_factory=dict)


SEQUENCES = arrays(
    ["input_ids", "attention_mask"],
    "kind",
    input_ids=numbers(VOCABULARY, CONTEXT),
    attention_mask=lengths,
    kind=numbers(3),
)
IMAGE = rows(3, 16, 16)


def image():
    return torch.rand(2, 3, 16, 16)


def own_example():
    return {
        "numbers": torch.rand(3, 4),
        "kind": torch.tensor([5, 0, 2]),
        "wanted": torch.rand(3, 2),
    }


MODELS = {
    "gpt2": Case(zoo.gpt2, zoo.tokens, tokens),
    "network": Case(zoo.network, zoo.images, rows(1, 6, 6), SLOW),
    "own": Case(
        zoo.two_inputs,
        own_example,
        arrays(
            ["numbers", "kind"],
            "wanted",
            numbers=reals(4, dtype=torch.float64),
            kind=numbers(7),
            wanted=reals(2),
        ),
        loss=zoo.huber,
        options={"loss": zoo.huber},
    ),
    "llama": Case(zoo.llama, zoo.tokens, tokens, SGD),
    "bert": Case(zoo.bert, zoo.sequences, SEQUENCES),
    "transformers-loss": Case(
        zoo.gpt2,
        lambda: {"input_ids": zoo.tokens(), "labels": zoo.tokens()},
        arrays(
            ["input_ids", "labels"],
            input_ids=numbers(VOCABULARY, CONTEXT),
            labels=answers,
        ),
        loss=of_the_model,
    ),
    "t5": Case(
        lambda: of_transformers(
            "T5ForConditionalGeneration",
            "T5Config",
            vocab_size=VOCABULARY,
            d_model=32,
            d_kv=8,
            d_ff=48,
            num_layers=2,
            num_heads=4,
            dropout_rate=0.0,
            use_cache=False,
            decoder_start_token_id=0,
        ),
        lambda: {
            "input_ids": zoo.tokens(),
            "attention_mask": zoo.sequences()["attention_mask"],
            "labels": zoo.tokens()[:, :5].contiguous(),
        },
        arrays(
            ["input_ids", "attention_mask", "labels"],
            input_ids=numbers(VOCABULARY, CONTEXT),
            attention_mask=lengths,
            labels=numbers(VOCABULARY, 5),
        ),
        loss=of_the_model,
    ),
    "lora": Case(with_adapters, lambda: {"input_ids": zoo.tokens()}, tokens),
    "mixtral": Case(mixtral, lambda: {"input_ids": zoo.tokens()}, tokens),
    "vit": Case(
        lambda: of_transformers(
            "ViTForImageClassification",
            "ViTConfig",
            **{name: one for name, one in SMALL.items() if name != "vocab_size"},
            image_size=16,
            patch_size=4,
            num_labels=3,
        ),
        image,
        IMAGE,
    ),
    "llama3.2": Case(llama_with_scaled_rotations, lambda: {"input_ids": zoo.tokens()}, tokens),
    "qwen2.5": Case(
        decoder("Qwen2", tie_word_embeddings=True), lambda: {"input_ids": zoo.tokens()}, tokens
    ),
    "qwen3": Case(decoder("Qwen3", head_dim=16), lambda: {"input_ids": zoo.tokens()}, tokens),
    "mistral": Case(
        decoder("Mistral", sliding_window=4), lambda: {"input_ids": zoo.tokens()}, tokens
    ),
    "gemma3": Case(
        decoder("Gemma3", "Gemma3TextConfig", head_dim=8, sliding_window=4),
        lambda: {"input_ids": zoo.tokens()},
        tokens,
    ),
    "phi3": Case(decoder("Phi3"), lambda: {"input_ids": zoo.tokens()}, tokens),
    "modernbert": Case(
        lambda: of_transformers(
            "ModernBertForSequenceClassification",
            "ModernBertConfig",
            **SMALL,
            max_position_embeddings=CONTEXT,
            local_attention=4,
            pad_token_id=0,
            num_labels=3,
            attn_implementation="sdpa",
        ),
        zoo.sequences,
        SEQUENCES,
    ),
    "convnext": Case(
        lambda: of_transformers(
            "ConvNextForImageClassification",
            "ConvNextConfig",
            num_stages=2,
            hidden_sizes=[8, 16],
            depths=[1, 1],
            patch_size=2,
            image_size=16,
            num_labels=3,
        ),
        image,
        IMAGE,
    ),
    "resnet": Case(
        lambda: of_transformers(
            "ResNetForImageClassification",
            "ResNetConfig",
            embedding_size=8,
            hidden_sizes=[8, 16],
            depths=[1, 1],
            layer_type="basic",
            num_labels=3,
        ),
        image,
        IMAGE,
        SLOW,
    ),
    "unet": Case(
        seeded(UNet),
        lambda: {"pixels": torch.rand(2, 1, 8, 8), "labels": torch.randint(0, 3, (2, 8, 8))},
        arrays(["pixels"], "labels", pixels=reals(1, 8, 8), labels=numbers(3, 8, 8)),
        SGD,
        of_pixels,
        {"loss": of_pixels},
    ),
    "whisper": Case(
        seeded(Listener),
        lambda: {"input_features": torch.rand(2, 8, 20)},
        rows(8, 20),
    ),
    "mamba": Case(
        lambda: of_transformers(
            "MambaForCausalLM",
            "MambaConfig",
            vocab_size=VOCABULARY,
            hidden_size=16,
            num_hidden_layers=2,
            state_size=4,
            use_cache=False,
            bos_token_id=0,
            eos_token_id=0,
            pad_token_id=0,
        ),
        lambda: {"input_ids": zoo.tokens()},
        tokens,
    ),
    "lstm": Case(seeded(Lstm), zoo.tokens, tokens, SGD),
}


# Models that single tests need.
FURTHER = {
    "dropout": Case(zoo.dropout, zoo.images, rows(1, 6, 6), SGD),
    # So wide that a kill after the first checkpoint comes before the end.
    "wide": Case(zoo.wide, zoo.images, rows(1, 6, 6), SGD),
    "four-blocks": Case(zoo.four_blocks, lambda: torch.rand(2, 200), rows(200)),
}


def converted(source, folder):
    """Returns a data set of arrays with the types that Python's models take."""
    if "safetensors" not in source:
        return source
    given = source["safetensors"]
    save_file(
        {
            name: one.float() if one.is_floating_point() else one.long()
            for name, one in load_file(given["path"]).items()
        },
        folder / "python.safetensors",
    )
    return {"safetensors": given | {"path": str(folder / "python.safetensors")}}
