"""Tokenizers with the settings of well-known models, trained on the lines of a test: the files on
Hugging Face's hub have larger vocabularies, and are otherwise the same."""

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
GPT4O = "|".join(
    [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)
SPECIAL = ["<|begin|>", "<|end|>", "<|im_start|>", "<|im_end|>"]


def trained(tokenizer, lines, special=SPECIAL, **options):
    alphabet = options.pop("alphabet", pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=options.pop("vocab_size", 3000),
        special_tokens=special,
        initial_alphabet=alphabet,
        show_progress=False,
        **options,
    )
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer


def split(pattern):
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def byte_level(lines, pre_tokenizer, normalizer=None, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return trained(tokenizer, lines)


def gpt2(lines):
    return byte_level(lines, pre_tokenizers.ByteLevel(add_prefix_space=False))


def gpt2_with_prefix(lines):
    return byte_level(lines, pre_tokenizers.ByteLevel(add_prefix_space=True))


def llama3(lines):
    tokenizer = byte_level(lines, split(LLAMA3), ignore_merges=True)
    tokenizer.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single="<|begin|> $A", pair="<|begin|> $A $B", special_tokens=[("<|begin|>", 0)]
            ),
        ]
    )
    return tokenizer


def qwen(lines):
    tokenizer = byte_level(lines, split(QWEN), normalizers.NFC())
    tokenizer.add_tokens(["<tool_call>", "</tool_call>", "<think>", "cafe\u0301"])
    return tokenizer


def smollm(lines):
    digits = pre_tokenizers.Digits(individual_digits=True)
    return byte_level(
        lines,
        pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)]),
    )


def gpt4o(lines):
    return byte_level(lines, split(GPT4O))


def sentencepiece_model(lines):
    """The characters and pieces of SentencePiece, with bytes for unknown characters."""
    bytes_as_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    special = ["<unk>", "<s>", "</s>"]
    short = [line.replace(" ", "\u2581")[:200] for line in lines[:2000]]
    return trained(
        tokenizer,
        short,
        special + bytes_as_tokens,
        alphabet=[],
        limit_alphabet=150,
        max_token_length=12,
        vocab_size=1500,
    )


def with_start(tokenizer):
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
    )
    return tokenizer


def llama2(lines):
    tokenizer = with_start(sentencepiece_model(lines))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    return tokenizer


def mistral(lines):
    tokenizer = with_start(sentencepiece_model(lines))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("\u2581", "first", split=False)
    return tokenizer


def words_of_their_own(lines):
    tokenizer = byte_level(lines, pre_tokenizers.ByteLevel(add_prefix_space=False))
    tokenizer.add_tokens(
        [
            AddedToken("class"),
            AddedToken("<left>", lstrip=True),
            AddedToken("<right>", rstrip=True),
            AddedToken("<both>", lstrip=True, rstrip=True, normalized=False),
            AddedToken("<bot", normalized=False),
        ]
    )
    return tokenizer


FAMILIES = {
    "qwen": qwen,
    "llama3": llama3,
    "llama2": llama2,
    "gpt2": gpt2,
    "gpt2-with-prefix": gpt2_with_prefix,
    "smollm": smollm,
    "gpt4o": gpt4o,
    "mistral": mistral,
    "words-of-their-own": words_of_their_own,
}
