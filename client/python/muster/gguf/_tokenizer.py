"""The vocabulary of a GGUF file, from a tokenizer.json."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import Any

# llama.cpp's names for how a text is split before byte-pair encoding, by the pattern that
# tokenizer.json has for it.
_PATTERNS = {
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+": "llama-bpe",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+": "qwen2",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+": "tekken",
}
# The numbers of llama.cpp's kinds of tokens.
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)


@dataclasses.dataclass
class Vocabulary:
    model: str  # "gpt2" (byte-level BPE) or "llama" (SentencePiece)
    pre: str
    tokens: list[str]
    kinds: list[int]
    scores: list[float] | None
    merges: list[str] | None
    special: dict[str, int]  # "bos", "eos", "pad", "unk"
    add_bos: bool
    # Of SentencePiece: whether a text begins with a space.
    space_before: bool
    template: str | None

    def add_to(self, writer: Any) -> None:
        writer.add_tokenizer_model(self.model)
        writer.add_tokenizer_pre(self.pre)
        writer.add_token_list(self.tokens)
        writer.add_token_types(self.kinds)
        if self.scores is not None:
            writer.add_token_scores(self.scores)
        if self.merges is not None:
            writer.add_token_merges(self.merges)
        for name, add in (
            ("bos", writer.add_bos_token_id),
            ("eos", writer.add_eos_token_id),
            ("pad", writer.add_pad_token_id),
            ("unk", writer.add_unk_token_id),
        ):
            if name in self.special:
                add(self.special[name])
        writer.add_add_bos_token(self.add_bos)
        if self.scores is not None:
            writer.add_add_space_prefix(self.space_before)
        if self.template is not None:
            writer.add_chat_template(self.template)


def vocabulary_of(folder: pathlib.Path, vocab_size: int, pre: str | None) -> Vocabulary:
    """Reads tokenizer.json and the files beside it. ValueError: a kind that llama.cpp does not
    have, or that cannot be told."""
    from muster.data import _tokenizer

    path = folder / "tokenizer.json"
    if not path.exists():
        raise ValueError(f"{folder} has no tokenizer.json")
    files = _tokenizer.read(path)
    described = json.loads(files.content)
    model = described.get("model") or {}
    if model.get("type", "BPE") != "BPE" or "merges" not in model:
        raise ValueError(f"{path}: a model {model.get('type')}; expected BPE")
    added = {one["id"]: one for one in described.get("added_tokens") or []}
    names = {number: token for token, number in model["vocab"].items()}
    names.update({number: one["content"] for number, one in added.items()})
    if max(names, default=-1) >= vocab_size:
        raise ValueError(
            f"{path}: has the token {max(names)}, and the model only {vocab_size} of them"
        )
    sentencepiece = bool(model.get("byte_fallback"))
    merges = [one if isinstance(one, str) else " ".join(one) for one in model["merges"]]
    tokens = [names.get(number, f"[PAD{number}]") for number in range(vocab_size)]
    kinds = [_kind(number, names, added, sentencepiece, model) for number in range(vocab_size)]
    numbers = {token: number for number, token in names.items()}
    special = _special(folder, files.special, numbers)
    if sentencepiece and pre is not None:
        raise ValueError(f"{path}: a SentencePiece vocabulary, which does not use --pre")
    space_before = sentencepiece and _space_before(described, path)
    return Vocabulary(
        model="llama" if sentencepiece else "gpt2",
        pre="default" if sentencepiece else pre or _pre_of(described, path),
        tokens=tokens,
        kinds=kinds,
        scores=_scores(tokens, merges) if sentencepiece else None,
        merges=None if sentencepiece else merges,
        special=special,
        add_bos=_adds_bos(described, special.get("bos")),
        space_before=space_before,
        template=files.chat_template,
    )


def _special(
    folder: pathlib.Path, texts: dict[str, str], numbers: dict[str, int]
) -> dict[str, int]:
    """Returns the numbers of special tokens. Without one, llama.cpp takes a token by its number,
    which may be any. ValueError: the folder does not say which token ends a text."""
    special = {
        name: numbers[texts[f"{name}_token"]]
        for name in ("bos", "eos", "pad", "unk")
        if texts.get(f"{name}_token") in numbers
    }
    for file in ("generation_config.json", "config.json"):
        path = folder / file
        config = json.loads(path.read_text("utf-8")) if path.exists() else {}
        for name in ("bos", "eos", "pad"):
            found = config.get(f"{name}_token_id")
            found = found[0] if isinstance(found, list) and found else found
            if isinstance(found, int):
                special.setdefault(name, found)
    if "eos" not in special:
        raise ValueError(
            f"{folder} does not say which token ends a text; expected `eos_token` in "
            "tokenizer_config.json, or `eos_token_id` in config.json"
        )
    return special


def _space_before(described: dict[str, Any], path: pathlib.Path) -> bool:
    """Returns whether the tokenizer puts a space before a text."""
    found = described.get("normalizer") or {}
    parts = found.get("normalizers") or [found]
    kinds = [(part.get("type"), part.get("prepend") or part.get("content")) for part in parts]
    replace = ("Replace", "\u2581")
    if described.get("pre_tokenizer") is None:
        if kinds == [("Prepend", "\u2581"), replace]:
            return True
        if kinds == [replace]:
            return False
    raise ValueError(f"{path}: a normalizer or pre-tokenizer that llama.cpp does not have")


def _kind(
    number: int,
    names: dict[int, str],
    added: dict[int, Any],
    sentencepiece: bool,
    model: dict[str, Any],
) -> int:
    if number not in names:
        return _UNUSED
    name = names[number]
    if sentencepiece and len(name) == 6 and name.startswith("<0x") and name.endswith(">"):
        return _BYTE
    if number in added:
        if sentencepiece and names[number] == model.get("unk_token"):
            return _UNKNOWN
        return _CONTROL if added[number].get("special") else _USER_DEFINED
    return _NORMAL


def _scores(tokens: list[str], merges: list[str]) -> list[float]:
    """SentencePiece merges the pair whose token has the highest score, so the scores follow the
    order of the merges."""
    ranks: dict[str, int] = {}
    for rank, merge in enumerate(merges):
        ranks.setdefault(merge.replace(" ", "", 1), rank)
    return [-float(ranks.get(token, len(merges))) for token in tokens]


def _parts(described: dict[str, Any]) -> list[dict[str, Any]]:
    found = described.get("pre_tokenizer") or {}
    return list(found.get("pretokenizers") or [found])


def _pre_of(described: dict[str, Any], path: pathlib.Path) -> str:
    parts = _parts(described)
    kinds = [part.get("type") for part in parts]
    normalizer = (described.get("normalizer") or {}).get("type")
    last = parts[-1]
    if last.get("type") == "ByteLevel" and not last.get("add_prefix_space"):
        splits = last.get("use_regex", True)
        pattern = (parts[0].get("pattern") or {}).get("Regex")
        if kinds == ["Split", "ByteLevel"] and not splits and pattern in _PATTERNS:
            # llama.cpp leaves out the normalizer of Qwen, too.
            if normalizer is None or (normalizer == "NFC" and _PATTERNS[pattern] == "qwen2"):
                return _PATTERNS[pattern]
        if kinds == ["ByteLevel"] and splits and normalizer is None:
            return "gpt-2"
        digits = parts[0].get("individual_digits")
        if kinds == ["Digits", "ByteLevel"] and splits and digits and normalizer is None:
            return "smollm"
    raise ValueError(
        f"{path}: no known name for how this tokenizer splits texts "
        f"({', '.join(map(str, kinds))}); "
        "give llama.cpp's name for it (--pre)"
    )


def _adds_bos(described: dict[str, Any], bos: int | None) -> bool:
    """Returns whether the tokenizer puts the token that begins a text before each text."""
    if bos is None:
        return False
    found = described.get("post_processor") or {}
    for part in found.get("processors") or [found]:
        if part.get("type") == "TemplateProcessing":
            special = part.get("special_tokens") or {}
            for piece in part.get("single") or []:
                name = (piece.get("SpecialToken") or {}).get("id")
                if name is None:
                    break
                if bos in (special.get(name) or {}).get("ids", []):
                    return True
    return False
