"""A model of another vocabulary than its weights: padded, cut, and cut back in the export."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.parity import cluster, hugging_face_models, logits, shared_cluster, twin, workloads
from tests.parity.hugging_face_jobs import as_initialized, assert_close, job, save, tokens_of

# A job that trains nothing.
FEW = {"stages": [{"fit": {"steps": 1}}], "trainable": {"rules": [{"freeze": "*"}]}}

muster = shared_cluster.with_slots(2)


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.mark.parametrize("name, strategy", [("qwen3", "fsdp"), ("gpt2-untied", "ddp")])
def test_a_vocabulary_is_padded_and_cut_back(muster, tmp_path, name, strategy):
    model = save(name, tmp_path / "model", as_initialized)
    context = hugging_face_models.context_of(name)

    def padded(job_id, steps, **more):
        out = tmp_path / job_id / "model.safetensors"
        stages = [{"fit": {"steps": steps}}]
        export = {"path": str(out), **more.pop("export", {})}
        spec = job(tmp_path, job_id, strategy={strategy: {}}, stages=stages, **more, export=export)
        spec["model"]["vocab_size"] = 64
        muster.run(spec, job_id)
        return spec, AutoModelForCausalLM.from_pretrained(out.parent)

    frozen = {"trainable": {"rules": [{"freeze": "*"}]}}
    _, begin = padded(f"begin-{strategy}", 1, **frozen)
    assert begin.config.vocab_size == 64
    given = model.get_input_embeddings().weight
    found = begin.get_input_embeddings().weight
    assert torch.equal(found[:61], given)
    assert 0.005 < found[61:].std() < 0.05  # initial values
    events = str(muster.job(f"begin-{strategy}")["events"])
    assert "of these padded" in events and "from 61 to 64 rows" in events

    def loss(output, targets):
        return twin.cross_entropy(output.logits, targets)

    spec, end = padded(f"end-{strategy}", 6, export={"vocab_size": 61})
    expected = twin.train(spec, begin, loss, context=context)
    twin.assert_close(muster.losses(f"end-{strategy}"), expected.losses, 1e-6)
    assert end.config.vocab_size == 61
    tokens = tokens_of(name)
    assert_close(
        logits.of_transformers(end, tokens), logits.of_transformers(begin, tokens)[..., :61]
    )
    with pytest.raises(cluster.JobFailed, match="is beyond the model's vocabulary of 50"):
        padded(f"cut-{strategy}", 1, export={"vocab_size": 50})


def test_a_smaller_vocabulary_has_the_first_rows(muster, tmp_path):
    model = save("llama2", tmp_path / "model", as_initialized)
    spec = job(tmp_path, "small", world_size=2, strategy={"fsdp": {}}, **FEW)
    spec["model"]["vocab_size"] = 40
    workloads.write_tokens(tmp_path / "train.bin", 40, 2000, seed=1)
    muster.run(spec, "small")
    opened = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert opened.config.vocab_size == 40
    given = model.get_input_embeddings().weight
    assert torch.equal(opened.get_input_embeddings().weight, given[:40])
    assert torch.equal(opened.lm_head.weight, model.lm_head.weight[:40])
