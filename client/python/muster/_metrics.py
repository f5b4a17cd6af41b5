"""The measurements of a job as a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from google.protobuf.descriptor import FieldDescriptor

from muster._proto.proto.muster.v1 import metrics_pb2

if TYPE_CHECKING:
    import pandas

# Fields of StepMetrics with the result of a pass.
_PASSES = ("validation", "test")
# Fields of Evaluation that are columns.
_OF_PASS = ("loss", "accuracy", "top_k_accuracy", "perplexity", "samples", "terms")


def _columns() -> dict[str, str]:
    """Returns the types of all columns, in order. The types do not depend on the rows."""
    types = {
        FieldDescriptor.CPPTYPE_DOUBLE: "float64",
        FieldDescriptor.CPPTYPE_UINT64: "UInt64",
        FieldDescriptor.CPPTYPE_BOOL: "boolean",
    }
    columns = {}
    for field in metrics_pb2.StepMetrics.DESCRIPTOR.fields:
        if field.name == "duration":
            columns["seconds"] = "float64"
        elif field.name not in ("step", *_PASSES):
            columns[field.name] = types[field.cpp_type]
    of_pass = metrics_pb2.Evaluation.DESCRIPTOR.fields_by_name
    for stage in _PASSES:
        for name in _OF_PASS:
            columns[f"{stage}_{name}"] = types[of_pass[name].cpp_type]
    return columns


def _of_step(entry: metrics_pb2.StepMetrics) -> dict[str, Any]:
    """Returns the measurements of a step, by column."""
    values: dict[str, Any] = {}
    for field in metrics_pb2.StepMetrics.DESCRIPTOR.fields:
        if field.name == "duration":
            values["seconds"] = entry.duration.ToNanoseconds() / 1e9
        elif not field.has_presence or entry.HasField(field.name):
            values[field.name] = getattr(entry, field.name)
    return values


def _of_pass(stage: str, evaluation: metrics_pb2.Evaluation) -> dict[str, Any]:
    """Returns the measurements of a pass, by column."""
    values: dict[str, Any] = {}
    for name in _OF_PASS:
        field = metrics_pb2.Evaluation.DESCRIPTOR.fields_by_name[name]
        there = evaluation.HasField(name) if field.has_presence else True
        if there and (name != "terms" or evaluation.terms):  # 0: not known
            values[f"{stage}_{name}"] = getattr(evaluation, name)
    return values


def table(entries: Iterable[metrics_pb2.StepMetrics]) -> pandas.DataFrame:
    """Returns a table with one row for each step, by its number. The measurements of a pass of
    validation or test are in the row of the step after which the pass ran (0: before the first
    step). The generation is that of the step; in a row without a step, that of the pass."""
    try:
        import pandas
    except ImportError as error:
        raise ImportError(
            "Job.metrics needs pandas (`pip install pandas`); Job.metrics_entries does not"
        ) from error
    rows: dict[int, dict[str, Any]] = {}
    for entry in entries:
        row = rows.setdefault(entry.step, {})
        stage = next((name for name in _PASSES if entry.HasField(name)), None)
        if stage is None:
            row.update(_of_step(entry))
        else:
            row.setdefault("generation", entry.generation)
            row.update(_of_pass(stage, getattr(entry, stage)))
    steps = sorted(rows)
    index = pandas.Index(steps, dtype="uint64", name="step")
    columns = {
        name: pandas.Series([rows[step].get(name) for step in steps], index=index, dtype=dtype)
        for name, dtype in _columns().items()
    }
    return pandas.DataFrame(columns, index=index)
