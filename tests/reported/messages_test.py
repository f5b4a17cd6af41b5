"""Messages say what it is, and the next thing to do."""

import os
import shutil

import pytest
import torch
from safetensors.torch import save_file

from tests.process import jobs


def validate(muster, job_file, expect=2):
    return muster.cli("validate", job_file, expect=expect).err


def small(muster, **changes):
    return jobs.write_job(
        muster.folder,
        **{"world_size": 1, "checkpoint": None, "export": None, "schedule": None} | changes,
    )


@pytest.mark.parametrize("number", ["1_000", "1e3", "1000.0", '"1000"'])
def test_a_number_in_another_spelling_is_one_problem_with_its_spelling_here(muster, number):
    """Muster issue 49: `steps: 1_000` gave a second problem, "nothing is chosen"."""
    job_file = small(muster, stages=[{"fit": {"steps": 987}}])
    job_file.write_text(job_file.read_text().replace("987", number))
    said = validate(muster, job_file)
    assert "1 problem\n" in said, said
    assert "stages[0].fit.steps: found " in said and "; write 1000" in said, said


def test_a_mistyped_choice_is_one_problem(muster):
    """Muster issue 49, a further case: `adamv` also gave "optimizer: nothing is chosen"."""
    said = validate(muster, small(muster, optimizer={"adamv": {"lr": 0.1}}))
    assert "1 problem\n" in said and "did you mean adamw?" in said, said


def test_a_number_with_a_comma_is_explained(muster):
    """Muster issue 49, a further case: `vocab_size: 50,257` said "257: unknown key"."""
    job_file = small(muster)
    text = job_file.read_text()
    job_file.write_text(text[: text.index("stages:")] + "stages: [{fit: {steps: 1,000}}]\n")
    said = validate(muster, job_file)
    assert "write numbers without it" in said, said


def in_a_folder_that_is_not_utf8(muster, *arguments):
    """The command's result in a folder of this name, with the job and its data in it."""
    folder = os.fsencode(muster.folder) + b"/caf\xe9"
    os.mkdir(folder)
    small(muster)
    for name in (b"job.yaml", b"train.bin"):
        shutil.copy(os.fsencode(muster.folder) + b"/" + name, folder)
    before, muster.folder = muster.folder, folder
    try:
        return muster.cli(*arguments, expect=None)
    finally:
        muster.folder = before


@pytest.mark.parametrize("command", ["validate", "run"])
def test_a_folder_that_is_not_utf8_is_named(muster, command):
    """Muster issue 49: "the request's 198 bytes are no message of the type"."""
    result = in_a_folder_that_is_not_utf8(muster, command, "job.yaml")
    assert result.code == 2, result
    assert "whose name is not UTF-8; give the folder another name" in result.err, result.err
    assert "data.train.tokens.path[0]" in result.err and "libprotobuf" not in result.err, result.err


def test_a_text_of_the_command_line_that_is_not_utf8_is_named(muster):
    """Muster issue 49, a further case: protobuf's own words, then "no message of the type"."""
    daemon = muster.musterd()
    result = muster.cli("stop", b"caf\xe9".decode(errors="surrogateescape"), expect=None)
    assert result.code != 0 and "is not UTF-8" in result.err, result
    assert "libprotobuf" not in result.err and "no message of the type" not in result.err, result
    muster.stop(daemon)
    muster.assert_no_process(at_once=True)


LAYER = {
    "self_attn.q_proj": [16, 16],
    "self_attn.k_proj": [16, 16],
    "self_attn.v_proj": [16, 16],
    "self_attn.o_proj": [16, 16],
    "mlp.gate_proj": [24, 16],
    "mlp.up_proj": [24, 16],
    "mlp.down_proj": [16, 24],
    "input_layernorm": [16],
    "post_attention_layernorm": [16],
}


def llama_weights(muster, tied_file):
    """With the names of transformers, whose tied models have no lm_head.weight in their files."""
    shapes = {f"model.layers.0.{name}.weight": shape for name, shape in LAYER.items()}
    shapes |= {"model.embed_tokens.weight": [256, 16], "model.norm.weight": [16]}
    if not tied_file:
        shapes["lm_head.weight"] = [256, 16]
    source = torch.Generator().manual_seed(1)
    tensors = {name: 0.1 * torch.randn(shape, generator=source) for name, shape in shapes.items()}
    save_file(tensors, muster.folder / "weights.safetensors")


@pytest.mark.parametrize("tied_file", [True, False])
def test_weights_without_an_output_layer_say_how_models_are_tied(muster, tied_file):
    """Muster issue 49: "missing lm_head.weight" without a word of `tied`."""
    llama_weights(muster, tied_file)
    llama = {"vocab_size": 256, "context": 16, "layers": 1, "heads": 2, "width": 16, "inner": 24}
    llama["tied"] = not tied_file
    model = {"llama": llama, "weights": "weights.safetensors"}
    job_file = small(muster, model=model, stages=[{"fit": {"steps": 1}}])
    said = muster.cli("run", job_file, expect=100).err
    if tied_file:
        assert "missing 'lm_head.weight'" in said and "model.llama.tied: true" in said, said
    else:
        assert "are one parameter of this model, but differ" in said, said
        assert "with 'tied: false' the model has both" in said, said
    # The advice in the message works.
    llama["tied"] = tied_file
    muster.cli("run", small(muster, model=model, stages=[{"fit": {"steps": 1}}]))
    muster.assert_no_process()
