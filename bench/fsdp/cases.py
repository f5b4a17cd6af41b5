"""The measured cases: the cases of bench/ddp with none, half and almost all of their parameters
frozen, and a model of many small units."""

import dataclasses

from bench.ddp import cases

ALL_BUT_BIASES = ({"freeze": "*"}, {"unfreeze": "*bias"})


def every_other(blocks, count):
    return tuple({"freeze": f"{blocks}.{i}.*"} for i in range(0, count, 2))


def variants(name, half):
    """0%, about 50% and over 99% of the parameters."""
    case = cases.CASES[name]
    for percent, trainable in [(0, ()), (50, half), (99, ALL_BUT_BIASES)]:
        yield dataclasses.replace(case, name=f"{name}-frozen-{percent}", trainable=trainable)


CASES = {
    case.name: case
    for case in [
        *variants("mlp-8x1024", every_other("layers", 8)),
        *variants("gpt-4x256", every_other("transformer.h", 4)),
        cases.CASES["linear-200x64"],
    ]
}
