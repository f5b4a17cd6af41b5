"""TensorBoard's event files, as TensorBoard's own reader has them, and what they should be."""

import numpy as np
from tensorboard.backend.event_processing import plugin_event_accumulator as accumulator
from tensorboard.util import tensor_util


def files(folder):
    return sorted(path for path in folder.iterdir() if "tfevents" in path.name)


def read(folder):
    """By tag: (step, value) in the order of the reader. Numbers are float64; texts are str."""
    # 0: the reader keeps all values, where TensorBoard itself shows a sample of them.
    reader = accumulator.EventAccumulator(
        str(folder), size_guidance={accumulator.TENSORS: 0}
    ).Reload()
    values = {}
    for tag in reader.Tags()[accumulator.TENSORS]:
        for event in reader.Tensors(tag):
            value = tensor_util.make_ndarray(event.tensor_proto).item()
            if isinstance(value, bytes):
                value = value.decode()
            else:
                # What TensorBoard shows is the nearest float32.
                shown, (value,) = value, event.tensor_proto.double_val
                assert np.float32(shown) == np.float32(value), (tag, event.step)
            values.setdefault(tag, []).append((event.step, value))
    return values


def _pass(evaluation):
    numbers = {"loss": evaluation.loss, "samples": evaluation.samples}
    for name in ("accuracy", "top_k_accuracy", "perplexity"):
        if evaluation.HasField(name):
            numbers[name] = getattr(evaluation, name)
    return numbers


def _step(entry):
    numbers = {"speed/samples": entry.samples}
    for name in ("loss", "perplexity", "learning_rate", "grad_norm", "loss_scale"):
        if entry.HasField(name):
            numbers[f"train/{name}"] = getattr(entry, name)
    for name in ("samples_per_second", "tokens_per_second", "model_flops_per_second"):
        if entry.HasField(name):
            numbers[f"speed/{name}"] = getattr(entry, name)
    if entry.skipped:
        numbers["train/skipped"] = 1
    return numbers


def expected(entries):
    """The same of all entries that the coordinator has, in their order."""
    values = {}
    for entry in entries:
        if entry.HasField("validation"):
            prefix, numbers = "validation/", _pass(entry.validation)
        elif entry.HasField("test"):
            prefix, numbers = "test/", _pass(entry.test)
        else:
            prefix, numbers = "", _step(entry)
        for name, number in numbers.items():
            values.setdefault(prefix + name, []).append((entry.step, number))
    return values


# Texts, and what the coordinator does not store or not with each step.
OTHERS = {"speed/seconds", "train/trainable_parameters"}


def assert_as_stored(folder, entries):
    """Every value of the store is in the files exactly once and in order, with the same bits, and
    no other number is."""
    found = read(folder)
    numbers = {
        tag: values
        for tag, values in found.items()
        if not tag.startswith("marks/") and tag not in OTHERS
    }
    wanted = expected(entries)
    assert sorted(numbers) == sorted(wanted)
    for tag, values in wanted.items():
        assert numbers[tag] == values, f"{tag}: {numbers[tag]}, in the store {values}"
    assert [step for step, _ in found["speed/seconds"]] == [
        step for step, _ in wanted["speed/samples"]
    ]
    return found
