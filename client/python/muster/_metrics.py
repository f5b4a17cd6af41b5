"""The measurements of a job as a table."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from muster._proto.proto.muster.v1 import metrics_pb2

if TYPE_CHECKING:
    import pandas

# Columns of integers that are there in each row of a step.
_PASSES = ("validation", "test")
_OF_PASS = ("loss", "accuracy", "top_k_accuracy", "perplexity", "samples", "terms")


def row(entry: metrics_pb2.StepMetrics) -> dict[str, Any]:
    """The fields of an entry that are set, by column."""
    values: dict[str, Any] = {"step": entry.step, "generation": entry.generation}
    for stage in _PASSES:
        if not entry.HasField(stage):
            continue
        evaluation = getattr(entry, stage)
        for name in _OF_PASS:
            field = metrics_pb2.Evaluation.DESCRIPTOR.fields_by_name[name]
            with contextlib.suppress(ValueError):  # a field that always has a value
                if not evaluation.HasField(name):
                    continue
            if field.name == "terms" and evaluation.terms == 0:
                continue
            values[f"{stage}_{name}"] = getattr(evaluation, name)
        return values
    for field in metrics_pb2.StepMetrics.DESCRIPTOR.fields:
        if field.name in values or field.name in _PASSES:
            continue
        if field.name == "duration":
            values["seconds"] = entry.duration.ToNanoseconds() / 1e9
        elif not field.has_presence or entry.HasField(field.name):
            values[field.name] = getattr(entry, field.name)
    return values


def table(entries: Iterable[metrics_pb2.StepMetrics]) -> pandas.DataFrame:
    """One row for each step, by its number; what a pass of validation or test measured stands in
    the row of the step after which it ran (0: before the first)."""
    try:
        import pandas
    except ImportError as error:
        raise ImportError(
            "Job.metrics needs pandas (`pip install pandas`); Job.metrics_entries does not"
        ) from error
    rows: dict[int, dict[str, Any]] = {}
    for entry in entries:
        rows.setdefault(entry.step, {}).update(row(entry))
    frame = pandas.DataFrame.from_records([rows[step] for step in sorted(rows)])
    return frame.set_index("step") if rows else frame
