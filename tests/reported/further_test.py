"""Reports that issue 49 did not name: what users of other training tools saw, tried on Muster."""

import fcntl
import os
import struct

import numpy
import pytest

from tests.process import harness, jobs, paced_job

F_SETPIPE_SZ = 1031


def metrics_of(muster, job_id):
    lines = muster.cli("metrics", job_id, "-o", "csv").out.splitlines()
    names = lines[0].split(",")
    return [dict(zip(names, line.split(","), strict=True)) for line in lines[1:]]


def validations(muster, job_id):
    return [int(row["step"]) for row in metrics_of(muster, job_id) if row["validation_loss"]]


def test_a_stop_does_not_wait_for_the_end_of_a_validation_pass(muster):
    """NVIDIA-NeMo/Speech pull requests 7731 and 3061: at the end of its time the trainer validated
    before it ended, and was killed. A stop, a drain and a time limit now end the pass, save a
    checkpoint, and the next attempt validates."""
    daemon = muster.musterd(local_slots=2)
    rows = {"npy": {"inputs": ["inputs.npy"], "labels": ["labels.npy"]}}
    job_file = paced_job.write_job(
        muster.folder,
        pace_ms=1,
        more_options={"evaluation_ms": 500},  # a pass has 12 rounds
        data={"train": rows, "validate": rows},
        schedule=None,
        stages=[{"fit": {"steps": 4, "validate_every": 4}}],
        checkpoint={"directory": "checkpoints", "every_steps": 0},
        export=None,
    )
    muster.cli("submit", job_file, "--id", "long")

    def validates():
        ranks = muster.cli("ranks", "long", "-o", "json").json().get("ranks", [])
        return any("validating" in str(rank) for rank in ranks)

    harness.eventually(validates, "the ranks validate")
    muster.cli("stop", "long", "--wait")
    assert validations(muster, "long") == [], "the pass was over before the stop"
    assert list(muster.folder.glob("checkpoints/long/step-4-*")), "a stop saves a checkpoint"

    muster.cli("retry", "long", "--wait")
    assert validations(muster, "long") == [4], "the next attempt validates, once"
    muster.stop(daemon)


def test_files_that_are_too_short_for_a_sample_are_named(muster):
    """OptimalScale/LMFlow pull request 649, huggingface/transformers pull request 17908: short
    documents were left out without a word."""
    jobs.write_tokens(muster.folder / "long.bin", 4096)
    for name in ("a", "b"):
        jobs.write_tokens(muster.folder / f"{name}.bin", 10)
    files = {"path": ["long.bin", "a.bin", "b.bin"], "dtype": "uint16"}
    job_file = jobs.write_job(muster.folder, world_size=1, data={"train": {"tokens": files}})
    result = muster.cli("run", job_file)
    log = result.out + result.err
    assert "a.bin and 1 more: fewer than 17 tokens" in log, log


@pytest.mark.parametrize("path", ["$SCRATCH/ckpt", "${SCRATCH}/ckpt", "~ann/ckpt"])
def test_a_variable_in_a_path_makes_no_folder_of_its_name(muster, path):
    """yjmantilla/sovabids issue 94, Lightning pull request 19058: a folder named '$VAR' (or '~')
    appears beside the configuration, and the results are in it."""
    job_file = jobs.write_job(muster.folder, checkpoint={"directory": path})
    result = muster.cli("validate", job_file, expect=2)
    assert f"checkpoint.directory: found '{path}'" in result.err, result.err
    assert "has no meaning here, write the whole path" in result.err, result.err


def test_averages_that_are_never_made_are_not_exported(muster):
    """lucidrains/ema-pytorch issue 11: averages are used before the first update, and are then the
    weights, without a word."""
    job_file = jobs.write_job(
        muster.folder,
        ema={"every": 21},
        export={"path": "model.safetensors", "from": "ema"},
    )
    result = muster.cli("validate", job_file, expect=2)
    assert "ema.every: found 21, but no average would ever be made" in result.err, result.err
    muster.cli("validate", job_file, "--set", "ema.every=20")


def test_tokens_of_a_large_vocabulary_are_not_cut_to_16_bits(muster):
    """transformers issue 2825, princeton-nlp/LLM-Shearing issue 65: ids above 65535 were written
    with 16 bits, and nothing said that 45% of the vocabulary had become other tokens."""
    large = {"vocab_size": 70000, "context": 16, "layers": 1, "heads": 1, "width": 2}
    tokens = (numpy.arange(401) * 7919 % 70000).astype(numpy.uint32)
    data = {"train": {"tokens": {"path": "large.bin"}}}
    job_file = jobs.write_job(
        muster.folder,
        world_size=1,
        model={"gpt2": large},
        data=data,
        stages=[{"fit": {"steps": 1}}],
        schedule=None,
        checkpoint=None,
        export=None,
    )
    path = muster.folder / "large.bin"
    tokens.astype(numpy.uint16).tofile(path)  # as that script wrote them
    muster.cli("run", job_file, expect=100)
    tokens.tofile(path)
    muster.cli("run", job_file)


def test_training_does_not_wait_for_who_reads_its_output(muster):
    """LlamaFactory pull request 10584, MakazhanAlpamys/Soup issue 688: the pipe of the output was
    full, and the training hung in its next write."""
    job_file = jobs.write_job(muster.folder)
    reader, writer = os.pipe()
    fcntl.fcntl(writer, F_SETPIPE_SZ, 4096)
    os.set_blocking(writer, False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(writer, b"." * 4096)
    os.set_blocking(writer, True)
    run = muster.spawn("muster", "run", job_file, stdout=writer, stderr=writer)
    os.close(writer)
    harness.eventually(lambda: (muster.folder / "model.safetensors").exists(), "it is trained")
    assert run.poll() is None, "its output waits"
    while os.read(reader, 65536):
        pass
    os.close(reader)
    muster.wait(run)


def test_a_proxy_of_the_environment_is_not_asked(muster):
    """determined pull request 2620, grpc issue 9989: with http_proxy set, calls to the same machine
    went to the proxy."""
    job_file = jobs.write_job(muster.folder, world_size=1)
    nowhere = "http://127.0.0.1:9"
    with muster.variables(dict.fromkeys(["http_proxy", "https_proxy", "grpc_proxy"], nowhere)):
        muster.cli("run", job_file)


def test_weights_with_two_values_for_a_tied_parameter_are_refused(muster):
    """transformers pull request 42612, vllm pull request 51665: the file had an lm_head of its own,
    the configuration said tied, and the head was dropped without a word."""
    job_file = jobs.write_job(muster.folder, world_size=1, export=None)
    muster.cli("run", job_file, "--set", "export={path: model.safetensors}")
    contents = (muster.folder / "model.safetensors").read_bytes()
    (size,) = struct.unpack("<Q", contents[:8])
    header, data = contents[8 : 8 + size].decode(), contents[8 + size :]
    head = numpy.ones(256 * 32, numpy.float32).tobytes()
    entry = (
        f'"lm_head.weight":{{"dtype":"F32","shape":[256,32],'
        f'"data_offsets":[{len(data)},{len(data) + len(head)}]}},'
    )
    header = "{" + entry + header.strip()[1:]
    header += " " * (-len(header) % 8)
    packed = struct.pack("<Q", len(header)) + header.encode() + data + head
    (muster.folder / "two.safetensors").write_bytes(packed)
    result = muster.cli("run", job_file, "--set", "model.weights=two.safetensors", expect=100)
    assert "are one parameter of this model, but differ in the file" in result.err, result.err


def test_images_with_channels_last_are_not_read_as_channels_first(muster):
    """elixir-nx/axon pull request 472 (9% instead of 68% accuracy): images [N, H, W, C] went into a
    model of [C, H, W]. As many numbers fit, so nothing failed."""
    images = numpy.zeros((32, 3, 8, 8), numpy.float32)
    numpy.save(muster.folder / "labels.npy", numpy.arange(32) % 3)
    job_file = jobs.write_job(
        muster.folder,
        model={"convnet": {"inputs": [3, 8, 8], "widths": [4], "blocks": [1], "classes": 3}},
        data={"train": {"npy": {"inputs": "images.npy", "labels": "labels.npy"}}},
        schedule=None,
        stages=[{"fit": {"steps": 1}}],
        checkpoint=None,
        export=None,
    )
    numpy.save(muster.folder / "images.npy", images.transpose(0, 2, 3, 1).copy())
    result = muster.cli("run", job_file, expect=100)
    expected = "data.train: inputs: expected [N, 3, 8, 8] as the model takes, found [N, 8, 8, 3]"
    assert expected in result.err, result.err
    numpy.save(muster.folder / "images.npy", images.reshape(32, 192))
    muster.cli("run", job_file)
