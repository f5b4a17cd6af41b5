"""The table of Job.metrics: its columns have the same types, whatever the rows are."""

import math

import pandas
import pytest

from tests.python import package  # noqa: F401

from muster import _metrics  # isort: skip
from muster._proto.proto.muster.v1 import metrics_pb2  # isort: skip

STEP = {
    "generation": "UInt64",
    "samples": "UInt64",
    "tokens": "UInt64",
    "seconds": "float64",
    "loss": "float64",
    "grad_norm": "float64",
    "model_flops_utilization": "float64",
    "skipped": "boolean",
}
PASS = {
    "loss": "float64",
    "accuracy": "float64",
    "top_k_accuracy": "float64",
    "perplexity": "float64",
    "samples": "UInt64",
    "terms": "UInt64",
}


def step(number, **fields):
    entry = metrics_pb2.StepMetrics(step=number, generation=1, loss=0.5, samples=4, **fields)
    entry.duration.FromMilliseconds(250)
    return entry


def evaluation(number, stage, generation=1, **fields):
    of_stage = {stage: metrics_pb2.Evaluation(loss=0.25, samples=8, **fields)}
    return metrics_pb2.StepMetrics(step=number, generation=generation, **of_stage)


@pytest.mark.parametrize(
    "entries",
    [
        [],
        [step(1), step(2, tokens=64, grad_norm=2.0, skipped=True)],
        [evaluation(0, "test", terms=8)],
        [evaluation(0, "validation"), step(1), evaluation(1, "validation", accuracy=0.5)],
    ],
)
def test_columns_and_their_types_do_not_depend_on_the_rows(entries):
    table = _metrics.table(entries)
    types = table.dtypes.astype(str).to_dict()
    expected = {f"{stage}_{name}": PASS[name] for stage in ("validation", "test") for name in PASS}
    assert types.items() >= (STEP | expected).items()
    names = {field.name for field in metrics_pb2.StepMetrics.DESCRIPTOR.fields}
    no_columns = {"step", "duration", "validation", "test"}
    assert set(types) == names - no_columns | {"seconds"} | set(expected)
    assert (table.index.name, str(table.index.dtype)) == ("step", "uint64")


def test_what_was_not_measured_is_missing():
    entries = [evaluation(0, "validation"), step(1, tokens=64), evaluation(1, "test", terms=8)]
    table = _metrics.table(entries)
    assert list(table.index) == [0, 1]
    assert list(table["loss"].isna()) == [True, False]
    assert table["tokens"][0] is pandas.NA and table["tokens"][1] == 64
    assert table["skipped"][0] is pandas.NA and not table["skipped"][1]
    assert table["seconds"][1] == 0.25
    assert (table["validation_loss"][0], table["test_terms"][1]) == (0.25, 8)
    assert table["validation_terms"][0] is pandas.NA and math.isnan(table["validation_loss"][1])


def test_the_generation_is_that_of_the_step():
    entries = [evaluation(0, "validation", generation=1), step(1), evaluation(1, "test", 3)]
    assert list(_metrics.table(entries)["generation"]) == [1, 1]
