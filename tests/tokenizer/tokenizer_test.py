"""Texts become the tokens of the Python package `tokenizers`, and tokens become its texts.

The texts are lines of programs and pages on this machine, and random ones of all scripts. With
MUSTER_CASES=every_combination there are 100,000 for each tokenizer.

Two programs agree only about characters that both know. The tables of the package's parts are of
different versions of Unicode: its normalizer does not know the newest marks, and its regular
expressions know letters that Debian's PCRE2 does not. Such characters are left out here."""

import json
import pathlib
import random
import subprocess
import unicodedata

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from tests import bazel, cases
from tests.tokenizer import tokenizers_of_families

COUNT = 100_000 if cases.asked_for() == "every_combination" else 4000
NAMES = list(tokenizers_of_families.FAMILIES)
# Parts of random lines: what tokenizers treat in ways of their own.
PARTS = [
    "it's WE'RE I\u2019ll don't 'Twas x'S",
    "  two  spaces\t\ttabs\n\n\nlines\r\n \u00a0\u2003\u3000\u180e\u200b",
    "12345 67.89 \u00bd \u0663\u0664 \u2167 1,000,000",
    "caf\u00e9 cafe\u0301 \u212b \ufb01 \u1100\u1161\u11a8 \uac01 A\u030a",
    "\u4f60\u597d\uff0c\u4e16\u754c \u3053\u3093\u306b\u3061\u306f \ud55c\uad6d\uc5b4",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \u2764\ufe0f",
    "<|im_start|>user\nhello<|im_end|> <|begin|><|end|><|begin",
    "<tool_call> </tool_call><think>caf\u00e9cafe\u0301",
    "class classes  class, <left>  x  <left> <right>   y <both>  <both>  z <bot <both",
    "\u017fong 'K \u0130stanbul \u1e9e \u0149",
    "<0x0A> \u2581 \u2581\u2581x <unk> <s> </s>",
    "\x00\x01\x7f\x85 \ufffd \ufeff",
    "a\x85b\x85\x85 c \x85d",
    "https://example.org/a_b?c=d&e=%20f",
]


def page_lines():
    """Lines of the pages and programs of the Python packages that the tests use."""
    folder = pathlib.Path(json.__file__).parent.parent
    for path in sorted(folder.glob("*.py")):
        yield from path.read_text(encoding="utf-8", errors="ignore").splitlines(keepends=True)


def is_known(character):
    """Whether Unicode 14 has the character, and 3.2 if it is a combining mark."""
    if unicodedata.category(character) in ("Cn", "Cs"):
        return False
    old = unicodedata.ucd_3_2_0
    return not unicodedata.combining(character) or old.category(character) != "Cn"


def random_line(dice):
    kind = dice.randrange(4)
    if kind == 0:
        return "".join(dice.choice(PARTS)[dice.randrange(6) :] for _ in range(dice.randrange(1, 4)))
    if kind == 1:
        block = dice.randrange(0x20, 0x1FB00, 0x80)
        codes = (block + dice.randrange(0x80) for _ in range(dice.randrange(1, 30)))
    elif kind == 2:
        codes = (dice.randrange(0x110000) for _ in range(dice.randrange(1, 20)))
    else:
        codes = (dice.choice(b" \n\t'aZ09.,_-<|>\xa0\xc3") for _ in range(dice.randrange(1, 60)))
    return "".join(chr(code) for code in codes if is_known(chr(code)))


def lines(count, seed):
    dice = random.Random(seed)
    pages = [line for line in page_lines()]
    return [
        random_line(dice) if i % 2 else dice.choice(pages).rstrip("\n") for i in range(count)
    ]


def of_muster(path, texts):
    ran = subprocess.run(
        [bazel.runfile("tests/tokenizer/muster-tokenize"), path],
        input="".join(json.dumps(text) + "\n" for text in texts),
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
    )
    return [json.loads(line) for line in ran.stdout.split("\n") if line]


@pytest.mark.parametrize("name", NAMES)
def test_tokens_and_texts_are_those_of_the_package(name, tmp_path):
    tokenizer = tokenizers_of_families.FAMILIES[name](lines(4000, seed=1))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    texts = PARTS + [""] + lines(COUNT, seed=2)
    found = of_muster(tmp_path / "tokenizer.json", texts)
    assert len(found) == len(texts)
    for text, one in zip(texts, found):
        expected = tokenizer.encode(text).ids
        assert one.get("tokens") == expected, (text, one, tokenizer.encode(text).tokens)
        assert one["text"] == tokenizer.decode(expected), (text, expected)
    # Tokens as a model may give them: parts of characters, special tokens.
    dice = random.Random(3)
    drawn = [
        [dice.randrange(tokenizer.get_vocab_size()) for _ in range(dice.randrange(9))]
        for _ in range(2000)
    ]
    # The first tokens are special ones and bytes.
    drawn += [[dice.randrange(300) for _ in range(6)] for _ in range(2000)]
    for ids, one in zip(drawn, of_muster(tmp_path / "tokenizer.json", drawn)):
        assert one["text"] == tokenizer.decode(ids), ids


REFUSED = {
    "a-model-of-words": (lambda: Tokenizer(models.WordLevel({"a": 0}, unk_token="a")), "BPE"),
    "another-normalizer": (
        lambda: changed(normalizer=normalizers.Lowercase()),
        "normalizer: expected NFC",
    ),
    "another-split": (
        lambda: changed(pre_tokenizer=pre_tokenizers.BertPreTokenizer()),
        "pre_tokenizer: expected ByteLevel",
    ),
    "another-decoder": (lambda: changed(decoder=decoders.WordPiece()), "decoder: expected"),
    "words": (
        lambda: with_added(AddedToken("a", single_word=True)),
        "added_tokens: single_word",
    ),
    "suffixes": (
        lambda: Tokenizer(models.BPE({"a</w>": 0}, [], end_of_word_suffix="</w>")),
        "model: end_of_word_suffix",
    ),
}


def with_added(token):
    tokenizer = changed()
    tokenizer.add_tokens([token])
    return tokenizer


def changed(**parts):
    tokenizer = Tokenizer(models.BPE({"a": 0}, []))
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    return tokenizer


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_make_other_tokens_is_refused_by_name(name, tmp_path):
    make, said = REFUSED[name]
    tokenizer = make()
    if tokenizer.decoder is None:
        tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    ran = subprocess.run(
        [bazel.runfile("tests/tokenizer/muster-tokenize"), tmp_path / "tokenizer.json"],
        input="",
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    assert str(tmp_path / "tokenizer.json") in ran.stderr
    assert said in ran.stderr
