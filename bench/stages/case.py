"""The evaluated case: the GPT of bench/ddp over fewer samples, on two ranks."""

import dataclasses

from bench.ddp import cases

WORLD_SIZE = cases.WORLD_SIZE
CASE = dataclasses.replace(cases.CASES["gpt-4x256"], samples=512)
