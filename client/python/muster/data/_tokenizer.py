"""A tokenizer of Hugging Face with what stands beside it: special tokens and the chat template."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tokenizers


@dataclasses.dataclass(frozen=True)
class TokenizerFiles:
    """The files of a tokenizer, as they were read once."""

    path: pathlib.Path
    content: bytes
    # The special tokens by their names in chat templates: {"eos_token": "</s>"}.
    special: dict[str, str]
    chat_template: str | None
    # Another template for conversations with tools, if there is one.
    tool_template: str | None = None

    @property
    def end(self) -> str | None:
        """The token that ends a text."""
        return self.special.get("eos_token")


def read(
    given: str | os.PathLike[str], chat_template: str | os.PathLike[str] | None = None
) -> TokenizerFiles:
    """Reads a tokenizer.json, or the one in a folder, and the files beside it. chat_template: a
    file with a template, in place of the tokenizer's own. OSError: a file cannot be read.
    ValueError: a file is damaged."""
    path = pathlib.Path(given)
    if path.is_dir():
        if not (path / "tokenizer.json").exists():
            raise ValueError(f"{path} has no tokenizer.json; expected a tokenizer or model folder")
        path = path / "tokenizer.json"
    content = path.read_bytes()
    config = _json(path.with_name("tokenizer_config.json"))
    special = {
        key: text
        for source in (_json(path.with_name("special_tokens_map.json")), config)
        for key, value in source.items()
        if key.endswith("_token") and (text := _token(value)) is not None
    }
    tools: str | None = None
    if chat_template is not None:
        template: str | None = pathlib.Path(chat_template).read_text("utf-8")
    elif (own := path.with_name("chat_template.jinja")).exists():
        template = own.read_text("utf-8")
        more = path.with_name("additional_chat_templates") / "tool_use.jinja"
        tools = more.read_text("utf-8") if more.exists() else None
    else:
        template, tools = _templates(config.get("chat_template"), path)
    return TokenizerFiles(path, content, special, template, tools)


def load(path: str | os.PathLike[str], content: bytes) -> tokenizers.Tokenizer:
    """Returns the tokenizer, without the limits of length and the padding that its file may have:
    these are for models that read one text at a time, and would lose or add tokens here."""
    try:
        import tokenizers
    except ImportError as error:
        raise ImportError(
            "muster.data needs the package tokenizers (`pip install tokenizers`)"
        ) from error
    try:
        model = tokenizers.Tokenizer.from_str(content.decode())
    except Exception as error:  # the package raises plain Exceptions
        raise ValueError(f"{os.fspath(path)} is no tokenizer of the package tokenizers: {error}")
    model.no_truncation()
    model.no_padding()
    return model


def vocab_size(model: tokenizers.Tokenizer) -> int:
    """Returns the smallest vocabulary that has all tokens. This is not the number of tokens,
    because some ids may have no token."""
    return 1 + max(model.get_vocab(with_added_tokens=True).values(), default=-1)


def _json(path: pathlib.Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ValueError(f"{path}: no JSON: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path}: expected an object, found {type(found).__name__}")
    return found


def _token(value: Any) -> str | None:
    """A token is a text, or an object with its text."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _templates(value: Any, path: pathlib.Path) -> tuple[str | None, str | None]:
    """A template is a text, or the ones called `default` and `tool_use` in a list."""
    tools: Any = None
    if isinstance(value, list):
        named = {one.get("name"): one.get("template") for one in value if isinstance(one, dict)}
        if "default" not in named:
            raise ValueError(
                f"{path.with_name('tokenizer_config.json')}: there are the chat templates "
                f"{', '.join(map(str, named))} and none called `default`; name a file with one"
            )
        value, tools = named["default"], named.get("tool_use")
    return (
        value if isinstance(value, str) else None,
        tools if isinstance(tools, str) else None,
    )
