"""TensorBoard's event files, as TensorBoard's own readers have them, and what they should be."""

import contextlib
import shutil
import subprocess
import tempfile
from pathlib import Path

import grpc
import numpy as np
import tensorboard_data_server
from tensorboard import context
from tensorboard.backend.event_processing import event_accumulator, plugin_event_accumulator
from tensorboard.data import grpc_provider
from tensorboard.util import tensor_util


def files(folder):
    return sorted(path for path in folder.iterdir() if "tfevents" in path.name)


@contextlib.contextmanager
def _copy(folder):
    """The files as they are now, because a job may write to them between two readers."""
    with tempfile.TemporaryDirectory() as copy:
        for path in files(folder):
            shutil.copy(path, copy)
        yield copy


def read(folder):
    """By tag: (step, value) in the order of the reader. Numbers are float32; texts are str."""
    # 0: the readers keep all values, where TensorBoard itself shows a sample of them.
    everything = {event_accumulator.SCALARS: 0, event_accumulator.TENSORS: 0}
    with _copy(folder) as copy:
        # The readers of numbers: those of programs, and TensorBoard's own.
        numbers = event_accumulator.EventAccumulator(copy, size_guidance=everything).Reload()
        shown = plugin_event_accumulator.EventAccumulator(copy, size_guidance=everything).Reload()
    values = {}
    for tag in shown.Tags()[plugin_event_accumulator.TENSORS]:
        plugin = shown.SummaryMetadata(tag).plugin_data.plugin_name
        values[tag] = [
            (event.step, tensor_util.make_ndarray(event.tensor_proto).item())
            for event in shown.Tensors(tag)
        ]
        if plugin == "text":
            values[tag] = [(step, text.decode()) for step, text in values[tag]]
        else:
            assert plugin == "scalars", (tag, plugin)
            scalars = [(event.step, event.value) for event in numbers.Scalars(tag)]
            assert scalars == values[tag], (tag, scalars, values[tag])
    assert set(numbers.Tags()[event_accumulator.SCALARS]) <= set(values)
    return values


@contextlib.contextmanager
def _data_server(folder):
    """A provider of what the data server has read of this folder. TensorBoard uses this server
    unless it is started with --load_fast=false."""
    with tempfile.TemporaryDirectory() as place:
        port = Path(place) / "port"
        command = [tensorboard_data_server.server_binary(), f"--logdir={folder}"]
        command += ["--reload=once", "--samples-per-plugin=scalars=all", "--verbose"]
        command += ["--port=0", f"--port-file={port}", "--die-after-stdin"]
        pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, text=True, **pipes) as server:
            log = iter(server.stderr.readline, "")
            assert any("Finished load cycle" in line for line in log), "the data server has ended"
            address = f"localhost:{int(port.read_text())}"
            with grpc.insecure_channel(address) as channel:
                yield grpc_provider.GrpcDataProvider(address, grpc_provider.make_stub(channel))
            server.stdin.close()


def read_numbers_fast(folder):
    """The numbers that read() has, as the data server has them. It ignores a START, and forgets the
    numbers of a tag when the tag gets a value at the same or an earlier step."""
    request = {"experiment_id": "", "plugin_name": "scalars", "downsample": 1_000_000}
    with _copy(folder) as copy, _data_server(copy) as provider:
        runs = provider.read_scalars(context.RequestContext(), **request)
    return {
        tag: [(datum.step, datum.value) for datum in data]
        for tags in runs.values()
        for tag, data in tags.items()
        if data
    }


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
    """Checks that the files have every value of the store once and in order, as the nearest
    float32, and no other number. Passes that ran again after the same step are an exception: the
    store has the newest pass, and so has the data server."""
    found, shown = read(folder), read_numbers_fast(folder)
    numbers = {
        tag: values
        for tag, values in found.items()
        if not tag.startswith("marks/") and tag not in OTHERS
    }
    wanted = expected(entries)
    assert sorted(numbers) == sorted(wanted)
    for tag, values in wanted.items():
        have = numbers[tag]
        if tag.startswith(("validation/", "test/")):
            have = list(dict(have).items())
        rounded = [(step, float(np.float32(value))) for step, value in values]
        assert have == rounded, f"{tag}: {have}, in the store {rounded}"
        assert shown[tag] == rounded, f"{tag} in the data server: {shown[tag]}, not {rounded}"
    assert set(shown) == set(wanted) | {tag for tag in OTHERS if tag in found}
    assert [step for step, _ in found["speed/seconds"]] == [
        step for step, _ in wanted["speed/samples"]
    ]
    return found
