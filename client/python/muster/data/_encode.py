"""Records become tokens with marks of what is trained."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy

from muster.data import _shapes, _tokenizer
from muster.data._counts import Counts
from muster.data._records import Chunk, RecordError, records_of

if TYPE_CHECKING:
    from muster.data._template import ChatTemplate, Span

TRAINED = ("assistant", "completion", "last", "all")
LONGER = ("cut", "split", "drop")

# The fields of messages that are read whatever the template.
_READ = frozenset(("role", "content", "weight"))
# Texts of one call of the tokenizer.
_BATCH = 64


@dataclasses.dataclass(frozen=True)
class Settings:
    files: _tokenizer.TokenizerFiles
    shape: _shapes.Shape
    train: str
    # The number of tokens that a document may have, and what becomes of longer ones; 0: no limit.
    limit: int
    longer: str
    # The token after a text; empty: none.
    end: str
    date: datetime.date

    def dtype(self, vocab_size: int) -> numpy.dtype:
        return numpy.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")


@dataclasses.dataclass
class Encoded(Counts):
    """The documents of a chunk, one after the other."""

    tokens: bytes = b""
    trained: bytes = b""  # 0 or 1 for each token
    lengths: list[int] = dataclasses.field(default_factory=list)
    # The number of the record of each document, from 0 in the chunk.
    origins: list[int] = dataclasses.field(default_factory=list)
    # Places of records with an error, and what the error is.
    damaged: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    # Places of records without any trained token, and why.
    untrained: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    # Fields of messages that nothing reads.
    unused: set[str] = dataclasses.field(default_factory=set)
    uses_date: bool = False


class Encoder:
    def __init__(self, settings: Settings):
        """ValueError: the settings do not fit the tokenizer."""
        self._settings = settings
        self._model = _tokenizer.load(settings.files.path, settings.files.content)
        self.vocab_size = _tokenizer.vocab_size(self._model)
        self._dtype = settings.dtype(self.vocab_size)
        self._end: list[int] = []
        if settings.end:
            number = self._model.token_to_id(settings.end)
            if number is None:
                raise ValueError(f"the tokenizer has no token {settings.end!r}")
            self._end = [number]
        added = self._model.get_added_tokens_decoder().values()
        ends = sorted((one.content for one in added if one.special), key=len, reverse=True)
        self._ends = frozenset(ends)
        # The template, and the one for conversations with tools.
        self._templates: list[ChatTemplate] = []
        if settings.shape.name != "text":
            for text in (settings.files.chat_template, settings.files.tool_template):
                if text is not None:
                    self._templates.append(_template(text, settings, ends))

    def encode(self, chunk: Chunk) -> Encoded:
        made = Encoded()
        tokens: list[numpy.ndarray] = []
        trained: list[numpy.ndarray] = []
        for some in _grouped(enumerate(records_of(chunk)), _BATCH):
            texts: list[_Written] = []
            made.records += len(some)
            for origin, (place, record) in some:
                try:
                    texts.append(self._write(origin, place, record, made))
                except RecordError as error:
                    made.damaged.append((place, str(error)))
            for text, ids, marks in self._encoded(texts):
                self._add(made, text, ids, marks, tokens, trained)
        made.tokens = b"".join(one.tobytes() for one in tokens)
        made.trained = b"".join(one.tobytes() for one in trained)
        made.uses_date = any(one.uses_date for one in self._templates)
        return made

    def _write(self, origin: int, place: str, record: Any, made: Encoded) -> _Written:
        if isinstance(record, RecordError):
            raise record
        found = self._settings.shape.read(record)
        if isinstance(found, _shapes.Text):
            text = found.prompt + found.completion
            _check_text(text)
            train = self._settings.train
            begin = 0 if train == "all" else len(found.prompt)
            made.joined += bool(found.prompt and self._templates)
            if not found.completion:
                return _Written(origin, place, text, [], plain=True, why="its text is empty")
            return _Written(origin, place, text, [(begin, len(text))], plain=True)
        return self._conversation(origin, place, found, made)

    def _conversation(
        self, origin: int, place: str, found: _shapes.Conversation, made: Encoded
    ) -> _Written:
        if not self._templates:
            raise RecordError(
                "a conversation needs a chat template, and the tokenizer has none; name a file "
                "with one (--chat-template)"
            )
        if not found.messages:
            return _Written(origin, place, "", [], why="the conversation is empty")
        template = self._templates[-1 if found.tools else 0]
        self._look_at_fields(template, found, made)
        train = self._settings.train
        if train == "all":
            written = template.trained(found.messages, [], found.tools)
            spans = [(0, len(written.text))]
            why = ""
        else:
            turns = _turns_of(found, train)
            written = template.trained(found.messages, turns, found.tools)
            spans = written.spans
            at_end = " at its end" if train == "last" else ""
            roles = ", ".join(dict.fromkeys(one["role"] for one in found.messages))
            why = ""
            if not turns:
                why = f"it has no turn of the assistant{at_end} that is trained; roles: {roles}"
            for number in turns:
                if not _says_something(found.messages[number]):
                    made.empty += 1
                    made.empty_at = made.empty_at or f"{place}: message {number}"
            if turns and not spans:
                why = "the template marks nothing of it as generated"
        if written.left_out:
            made.left_out += len(written.left_out)
            first = written.left_out[0]
            role = found.messages[first]["role"]
            made.left_out_at = made.left_out_at or f"{place}: message {first} ({role})"
        _check_text(written.text)
        return _Written(origin, place, written.text, spans, why=why)

    def _look_at_fields(
        self, template: ChatTemplate, found: _shapes.Conversation, made: Encoded
    ) -> None:
        for message in found.messages:
            for key, value in message.items():
                if key not in _READ and value is not None and not template.names(key):
                    made.unused.add(key)

    def _encoded(
        self, texts: Sequence[_Written]
    ) -> Iterator[tuple[_Written, numpy.ndarray, numpy.ndarray]]:
        """Yields each text with its token ids, and 1 for each token that is trained."""
        for plain in (True, False):
            some = [one for one in texts if one.plain is plain]
            # The tokens that the tokenizer puts around a text are already in a template's text.
            found = self._model.encode_batch([one.text for one in some], add_special_tokens=plain)
            for text, encoding in zip(some, found, strict=True):
                ids = numpy.array(encoding.ids, self._dtype)
                marks = numpy.zeros(len(ids), numpy.uint8)
                for begin, end in text.spans:
                    first, last = _tokens_of(encoding, begin, end, len(text.text))
                    marks[first:last] = 1
                if plain and self._end:
                    if list(ids[-1:]) != self._end:
                        ids = numpy.append(ids, numpy.array(self._end, self._dtype))
                        marks = numpy.append(marks, numpy.uint8(0))
                    marks[-1] = len(text.spans) > 0
                yield text, ids, marks

    def _add(
        self,
        made: Encoded,
        text: _Written,
        ids: numpy.ndarray,
        marks: numpy.ndarray,
        tokens: list[numpy.ndarray],
        trained: list[numpy.ndarray],
    ) -> None:
        if len(ids) > made.longest:
            made.longest, made.longest_at = len(ids), text.place
        marks[:1] = 0  # the first token of a document is never a target
        made.endless += sum(not self._ends_turn(text, end) for _, end in text.spans)
        limit = self._settings.limit or len(ids)
        parts = [(0, len(ids))]
        if len(ids) > limit:
            made.longer += 1
            parts = {"cut": [(0, limit)], "drop": []}.get(
                self._settings.longer,
                # Parts share a token: the last target of one is the first input of the next.
                [(at, min(at + limit, len(ids))) for at in range(0, len(ids) - 1, limit - 1)],
            )
        wanted = int(marks.sum())
        kept = 0
        for begin, end in parts:
            mask = marks[begin:end].copy()
            mask[:1] = 0
            if (count := int(mask.sum())) == 0:
                continue  # nothing can be learned from it
            kept += count
            tokens.append(ids[begin:end])
            trained.append(mask)
            made.lengths.append(end - begin)
            made.origins.append(text.origin)
        made.lost += wanted - kept
        if kept == 0 and not (len(ids) > limit and self._settings.longer == "drop"):
            why = text.why or "no token of it is trained"
            if wanted:
                why = f"the first {limit} of its {len(ids)} tokens have nothing that is trained"
            made.untrained.append((text.place, why))

    def _ends_turn(self, text: _Written, end: int) -> bool:
        if text.plain:
            return bool(self._end)
        # A mark of the template may include a line end after the token.
        whole = text.text[:end].rstrip()
        return any(whole.endswith(token) for token in self._ends)


@dataclasses.dataclass(frozen=True)
class _Written:
    """A record as a text, with the parts of it that are trained."""

    origin: int
    place: str
    text: str
    spans: list[Span]
    # A text without a template: the tokenizer adds its tokens.
    plain: bool = False
    # Why nothing is trained.
    why: str = ""


def _turns_of(found: _shapes.Conversation, train: str) -> list[int]:
    """Returns the messages that may be trained."""
    turns = [
        number
        for number, message in enumerate(found.messages)
        if message["role"] == "assistant"
        and number >= found.given
        and message.get("weight") != 0
    ]
    if train == "last":
        return turns[-1:] if turns and turns[-1] == len(found.messages) - 1 else []
    return turns


def _says_something(message: dict[str, Any]) -> bool:
    """Returns whether a message has a text, a call of a tool, or anything else to learn."""
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content)
    others = [value for key, value in message.items() if key not in ("role", "content", "weight")]
    return bool((content or "").strip()) or any(others)


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise RecordError(
            f"no Unicode: the surrogate {text[error.start]!r} stands by itself"
        ) from error


def _template(text: str, settings: Settings, tokens: Sequence[str]) -> ChatTemplate:
    try:
        from muster.data._template import ChatTemplate
    except ImportError as error:
        raise ImportError(
            "chat templates need the package jinja2 (`pip install jinja2`)"
        ) from error
    return ChatTemplate(text, settings.files.special, tokens, settings.date)


def _tokens_of(encoding: Any, begin: int, end: int, length: int) -> tuple[int, int]:
    """Returns the range of the tokens that have a character of a part of a text."""
    if begin >= end:
        return 0, 0
    first = _token_at(encoding, begin, end)
    if first is None:
        return 0, 0
    last = _token_at(encoding, end, length)
    if last is None:
        last = len(encoding.ids)
        while last > first and encoding.special_tokens_mask[last - 1]:
            last -= 1  # added by the tokenizer: no part of the text
    elif encoding.token_to_chars(last)[0] < end:
        # The token goes across the end. Several tokens may be parts of one character.
        while last < len(encoding.ids) and encoding.token_to_chars(last)[0] < end:
            last += 1
    return first, last


def _token_at(encoding: Any, begin: int, end: int) -> int | None:
    """Returns the first token of the characters from `begin` on. A tokenizer may have no token for
    some, such as white space that it removes."""
    for at in range(begin, end):
        token = encoding.char_to_token(at)
        if token is not None:
            return token  # type: ignore[no-any-return]
    return None


def _grouped(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    some: list[Any] = []
    for one in items:
        some.append(one)
        if len(some) == size:
            yield some
            some = []
    if some:
        yield some
