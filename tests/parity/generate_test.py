"""Prompts of unequal length are continued by Muster, with its cache of keys and values, and by
transformers: the tokens are equal.

Both compute in float32, whose roundings move a logit by some 1e-6 of its size, which is of the
order of 10. A token differs only where the two largest logits are as near as that."""

import json
import subprocess

import pytest
import torch
from transformers import GPT2LMHeadModel, LlamaForCausalLM

from tests import bazel
from tests.parity import cluster, logits, next_token, reference

NEW_TOKENS = 64
# Prompts of unequal lengths, more than one batch of Muster's.
LENGTHS = [5, 1, 17, 32, 8, 3, 9, 2, 1, 30, 11, 4, 6, 7, 21, 16, 13, 10, 12]

CONFIGURATIONS = {
    "gpt2": ("gpt2", dict(vocab_size=256, context=96, layers=2, heads=4, width=64)),
    "gpt2-untied-odd": (
        "gpt2",
        dict(vocab_size=1003, context=97, layers=3, heads=5, width=35, inner=31, tied=False),
    ),
    "llama-grouped-query": (
        "llama",
        dict(vocab_size=256, context=96, layers=2, heads=8, kv_heads=2, width=64, inner=176),
    ),
    "llama-multi-head": (
        "llama",
        dict(vocab_size=257, context=96, layers=2, heads=4, width=64, inner=70),
    ),
    "llama-multi-query-tied": (
        "llama",
        dict(
            vocab_size=1003,
            context=101,
            layers=3,
            heads=5,
            kv_heads=1,
            width=30,
            inner=71,
            tied=True,
            rope_theta=137.5,
        ),
    ),
}
MODELS = {
    "gpt2": lambda options: GPT2LMHeadModel(reference.gpt2_config(options)),
    "llama": lambda options: LlamaForCausalLM(reference.llama_config(options)),
}


class Case:
    def __init__(self, kind, options, folder):
        self.kind = kind
        self.options = options
        self.folder = folder
        self.model = logits.follow_the_text(MODELS[kind](options))
        self.model.save_pretrained(folder / "model")
        generator = torch.Generator().manual_seed(5)
        self.prompts = [
            torch.randint(options["vocab_size"], (length,), generator=generator).tolist()
            for length in LENGTHS
        ]

    def of_muster(self, **request):
        out = self.folder / "completions.json"
        request = {"prompts": self.prompts, "max_tokens": NEW_TOKENS, **request}
        command = [
            bazel.runfile("tests/parity/muster-generate"),
            *("--model", self.kind, "--options", json.dumps(self.options)),
            *("--weights", self.folder / "model" / "model.safetensors"),
            *("--request", json.dumps(request), "--out", out),
        ]
        subprocess.run(
            command, check=True, env=cluster.environment(), stderr=subprocess.PIPE, text=True
        )
        completions = json.loads(out.read_text())["completions"]
        assert [completion["prompt"] for completion in completions] == request["prompts"]
        return [completion["tokens"] for completion in completions]

    def of_transformers(self, prompts):
        """Greedily, as one batch: filled up at the left, as transformers wants it."""
        longest = max(map(len, prompts))
        tokens = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in prompts])
        mask = torch.tensor(
            [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts]
        )
        found = self.model.generate(
            tokens,
            attention_mask=mask,
            max_new_tokens=NEW_TOKENS,
            do_sample=False,
            pad_token_id=0,
            eos_token_id=None,
        )
        assert found.shape == (len(prompts), longest + NEW_TOKENS)
        return found[:, longest:].tolist()


@pytest.fixture(params=CONFIGURATIONS.values(), ids=CONFIGURATIONS.keys())
def case(request, tmp_path):
    return Case(*request.param, tmp_path)


def test_greedy_tokens_are_those_of_transformers(case):
    found = case.of_muster()
    assert all(len(set(tokens)) > NEW_TOKENS / 4 for tokens in found), found
    assert found == case.of_transformers(case.prompts)
    # Alone, nothing fills a prompt up.
    for number in (0, 1, 3):
        assert [found[number]] == case.of_transformers([case.prompts[number]])


@torch.no_grad()
def test_drawn_tokens_are_those_that_the_documentation_says(case):
    settings = {"temperature": 1.5, "top_k": 40, "seed": 2**64 - 3}
    found = case.of_muster(**settings)
    numbers = range(0, len(LENGTHS), 6)
    for number in numbers:
        text = list(case.prompts[number])
        # The logits of all tokens at once: those of a token do not depend on later ones.
        whole = text + found[number]
        values = case.model(torch.tensor([whole])).logits[0].double().tolist()
        for place in range(len(text), len(whole)):
            text.append(
                next_token.next_token(values[place - 1], prompt=number, position=place, **settings)
            )
        assert text == whole
    assert len(set(map(tuple, found))) == len(found)


def test_a_refusal_names_the_prompt(tmp_path):
    case = Case(*CONFIGURATIONS["gpt2"], tmp_path)
    with pytest.raises(subprocess.CalledProcessError) as refused:
        case.of_muster(prompts=[[1, 2], list(range(33))])
    assert (
        "prompts[1]: expected at most 96 tokens (the model's context), found 33 and 64 new ones"
        in refused.value.stderr
    )
