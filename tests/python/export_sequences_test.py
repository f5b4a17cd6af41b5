"""What muster.export finds out about sequences: free lengths, and whether logits depend on later
tokens. That the worker continues them: tests/parity/exported_generate_test.py."""

import json
import pathlib
import types

import pytest
import torch
from torch import nn

from tests.python import package  # noqa: F401

import muster.export  # isort: skip
from muster.export import NotExportable  # isort: skip


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)
    torch.manual_seed(0)


def tokens():
    return torch.randint(0, 11, (2, 6))


class Language(nn.Module):
    """Logits of each token from the mean of the tokens up to it; or of all tokens, or from the
    place, or of all tokens but the last, or with the length of sequences as the last size."""

    def __init__(self, kind="causal"):
        super().__init__()
        self.kind = kind
        self.table = nn.Embedding(11, 8)
        self.places = nn.Parameter(torch.randn(6, 8))
        self.head = nn.Linear(8, 11)
        self.register_buffer("ids", torch.arange(11))
        if kind == "zeros":
            nn.init.zeros_(self.places)

    def forward(self, ids):
        x = self.table(ids)
        if self.kind == "places":
            return self.head(x + self.places)
        if self.kind == "shorter":
            return self.head(x)[:, :-1]
        if self.kind in ("both_ways", "masked"):
            logits = self.head(x + x.mean(1, keepdim=True) + self.places[0])
            # An id that is never right.
            return logits if self.kind == "both_ways" else logits - 3e38 * (self.ids == 7)
        if self.kind == "zeros":
            return self.head(x + x.mean(1, keepdim=True)) * self.places[0, 0]
        if self.kind == "turned":
            return self.head(x).transpose(1, 2)
        count = torch.arange(1, x.shape[1] + 1).view(1, -1, 1)
        return self.head(x.cumsum(1) / count + self.places[0])


def manifest_of(folder):
    return json.loads((pathlib.Path(folder) / "manifest.json").read_text())


def test_a_free_length_is_written_with_its_range(tmp_path):
    muster.export(Language(), tokens(), tmp_path / "m", dynamic={"sequence": True})
    manifest = manifest_of(tmp_path / "m")
    assert manifest["inputs"][0]["shape"] == ["batch", "sequence"]
    assert manifest["output"]["shape"] == ["batch", "sequence", 11]
    assert manifest["sequence"]["example"] == 6
    assert manifest["sequence"]["min"] <= 2
    assert "max" not in manifest["sequence"]
    # The comparison with the model has other lengths, too.
    tried = [(one["samples"], one["length"]) for one in manifest["reference"]["train"]]
    assert tried == [(1, 6), (2, 6), (5, 6), (2, 3), (2, 7)]


def test_positions_of_a_model_of_transformers_are_the_longest_length(tmp_path):
    model = Language()
    model.config = types.SimpleNamespace(max_position_embeddings=6)
    muster.export(model, tokens(), tmp_path / "m", dynamic={"sequence": True})
    assert manifest_of(tmp_path / "m")["sequence"]["max"] == 6


def test_an_example_may_be_longer_than_the_positions_of_the_configuration(tmp_path):
    model = Language()
    model.config = types.SimpleNamespace(max_position_embeddings=5)
    muster.export(model, tokens(), tmp_path / "m", dynamic={"sequence": True})
    assert "max" not in manifest_of(tmp_path / "m")["sequence"]


class OnlyInEvaluation(Language):
    def forward(self, ids):
        if not self.training:
            torch._check(ids.shape[1] <= 9)
        return super().forward(ids)


def test_the_range_is_that_of_both_graphs(tmp_path):
    muster.export(OnlyInEvaluation(), tokens(), tmp_path / "m", dynamic={"sequence": True})
    assert manifest_of(tmp_path / "m")["sequence"]["max"] == 9


def test_the_first_input_must_be_one_of_sequences(tmp_path):
    model = Language()
    kind = torch.arange(2)
    model.forward = lambda kind, ids: Language.forward(model, ids) + kind[:, None, None]
    with pytest.raises(NotExportable, match="the first input, 'kind', has no second dimension"):
        muster.export(
            model, {"kind": kind, "ids": tokens()}, tmp_path / "m", dynamic={"sequence": True}
        )


def test_a_length_that_is_not_free_stays_a_number(tmp_path):
    muster.export(Language("places"), tokens(), tmp_path / "m")
    manifest = manifest_of(tmp_path / "m")
    assert manifest["inputs"][0]["shape"] == ["batch", 6]
    assert "sequence" not in manifest


@pytest.mark.parametrize(
    ("kind", "dynamic", "expected"),
    [
        ("places", {"sequence": True}, "fixes the length of sequences to 6"),
        ("shorter", {"sequence": True}, "expected logits, with the number of samples"),
        ("turned", {"sequence": True}, "expected the length of sequences only as its second"),
        ("causal", {"batch": False}, "the batch is always free"),
        ("causal", {"length": True}, "found {'length': True}; expected \"sequence\""),
    ],
)
def test_what_cannot_be_free_is_refused_and_nothing_is_written(tmp_path, kind, dynamic, expected):
    with pytest.raises(NotExportable, match=expected.replace("{", r"\{")):
        muster.export(Language(kind), tokens(), tmp_path / "m", dynamic=dynamic)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["causal", "places", "both_ways", "masked", "zeros"])
def test_logits_that_do_not_depend_on_later_tokens_are_named(tmp_path, kind):
    muster.export(Language(kind), tokens(), tmp_path / "m")
    assert manifest_of(tmp_path / "m")["output"]["causal"] == (kind in ("causal", "places"))


def test_an_example_that_cannot_tell_says_nothing_about_later_tokens(tmp_path):
    example = torch.tensor([[3, 3, 3, 3, 3, 3], [5, 5, 5, 5, 5, 5]])
    muster.export(Language(), example, tmp_path / "m")
    assert "causal" not in manifest_of(tmp_path / "m")["output"]
