"""The cases of bench/gpu: models with the batch of a rank."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Case:
    model: dict  # as in a job file
    per_rank: int
    precision: str = "bfloat16"

    @property
    def options(self):
        return next(iter(self.model.values()))

    def tokens(self):
        """Returns the number of tokens in one step."""
        return self.per_rank * self.options["context"]


GPT2_SMALL = {"vocab_size": 50304, "context": 1024, "layers": 12, "heads": 12, "width": 768}
# 1.1 billion parameters, as TinyLlama has them.
LLAMA = {
    "vocab_size": 32000,
    "context": 2048,
    "layers": 22,
    "heads": 32,
    "kv_heads": 4,
    "width": 2048,
    "inner": 5632,
}
CASES = {
    "gpt2-small": Case({"gpt2": GPT2_SMALL}, per_rank=8),
    "llama-1b": Case({"llama": LLAMA}, per_rank=4),
    # To try the measurement itself, also on a CPU.
    "tiny": Case(
        {"gpt2": {"vocab_size": 256, "context": 64, "layers": 2, "heads": 2, "width": 64}}, 4
    ),
}
ADAMW = {"lr": 1e-4, "betas": [0.9, 0.95], "weight_decay": 0.1}
