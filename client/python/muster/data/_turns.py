"""The turns of the assistant in the text that a chat template has written, without marks.

A turn's part begins where the model begins to write: where the text of the messages before, with
the start of an answer, ends. It ends with the message, and with the tokens that end a turn.

Both places are found by comparing the whole text with texts of the conversation's beginning. Some
templates write a turn in another way once others follow, and leave out its thoughts, for example.
For these the whole text is compared with texts in which only the turn has other contents."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import Any

from muster.data._records import RecordError

Span = tuple[int, int]
Messages = Sequence[dict[str, Any]]
# (messages, tools, with the start of an answer) -> text
Render = Callable[[Messages, list[Any] | None, bool], str]

_NOT_FOUND = (
    "what the template writes does not show which part is message {}; mark it in the template with "
    "{{% generation %}} and {{% endgeneration %}}"
)


class Turns:
    """Finds turns in the texts of one template."""

    def __init__(self, render: Render, tokens: Sequence[str], never: Sequence[str] = ()):
        """tokens: all special tokens, which are never cut. never: those that end no turn."""
        self._render = render
        self._never = frozenset(never)
        some = sorted(tokens, key=len, reverse=True)
        self._tokens = re.compile("|".join(map(re.escape, some)) or r"(?!)")
        self._mark = "x" + os.urandom(12).hex()
        # The start of an answer and what follows its content, by whether there are tools.
        self._known: dict[bool, tuple[str, str]] = {}

    def find(
        self, text: str, messages: Messages, turns: Sequence[int], tools: list[Any] | None
    ) -> tuple[list[Span], list[int]]:
        """Returns the parts of these turns, and the numbers of messages that the template leaves
        out. RecordError: a part cannot be found, or `left_out` raises it."""
        quick = self._quick(text, messages, turns, tools)
        if quick is not None:
            return quick, []
        left_out = self.left_out(text, messages, turns, tools)
        spans: list[Span] = []
        for turn in turns:
            begin = self._begin(text, messages, turn, tools)
            end = self._end(text, messages, turn, tools, begin)
            if end < begin or (spans and begin < spans[-1][1]):
                raise RecordError(_NOT_FOUND.format(turn))
            spans.append((begin, end))
        return spans, left_out

    def range_of(
        self, text: str, messages: Messages, turn: int, tools: list[Any] | None
    ) -> Span:
        """Returns the part of the text that belongs to a message, with its header."""
        edges = []
        for count in (turn, turn + 1):
            part = self._render(messages[:count], tools, False) if count else ""
            common = _common(text, part)
            if count < len(messages) and self._has_words(part[common:]):
                raise RecordError(_NOT_FOUND.format(turn))
            edges.append(self._whole(text, common) if count < len(messages) else len(text))
        return edges[0], edges[1]

    def left_out(
        self, text: str, messages: Messages, turns: Sequence[int], tools: list[Any] | None
    ) -> list[int]:
        """Returns the numbers of messages whose content the template does not write. RecordError:
        one of them is among `turns`, or the template does not write tools or their calls."""
        unwritten: list[int] = []
        if tools is not None and self._same(text, messages, None):
            raise RecordError("the chat template does not write `tools`")
        for number, message in enumerate(messages):
            if message.get("tool_calls") and self._same(
                text, _changed(messages, number, self._mark, "tool_calls"), tools
            ):
                raise RecordError(
                    f"the chat template does not write the `tool_calls` of message {number}"
                )
            if isinstance(message.get("content"), str) and message["content"].strip():
                if self._same(text, _changed(messages, number, self._mark, "content"), tools):
                    unwritten.append(number)
        for number in unwritten:
            if number in turns:
                raise RecordError(f"the chat template does not write message {number}")
        return unwritten

    def _same(self, text: str, messages: Messages, tools: list[Any] | None) -> bool:
        try:
            return self._render(messages, tools, False) == text
        except RecordError:
            return False  # the template reads it

    def _quick(
        self, text: str, messages: Messages, turns: Sequence[int], tools: list[Any] | None
    ) -> list[Span] | None:
        """Finds all turns with one text more, in which all contents are others. Returns None unless
        the template writes the contents as they are, or without white space at their ends, each
        turn after the start of an answer and before what ends a turn."""
        plain = all(message.keys() <= {"role", "content", "weight"} for message in messages)
        contents = [
            content for one in messages if isinstance(content := one.get("content"), str)
        ]
        if tools is not None or not plain or len(contents) < len(messages):
            return None
        start, after = self._probe(tools)
        if not self._tokens.search(start) or not self._tokens.search(after):
            return None
        marks = [f"{self._mark}{number}y" for number in range(len(messages))]
        try:
            other = self._render(
                [
                    {**message, "content": mark}
                    for message, mark in zip(messages, marks, strict=True)
                ],
                tools,
                False,
            )
        except RecordError:
            return None
        wanted = set(turns)
        spans: list[Span] = []
        at = 0
        for number, content in enumerate(contents):
            before, mark, other = other.partition(marks[number])
            if not mark or not text.startswith(before, at):
                return None
            at += len(before)
            written = next(
                (one for one in (content, content.strip()) if text.startswith(one, at)), None
            )
            if written is None:
                return None
            if number in wanted:
                end = self._after(text, at + len(written), after)
                if not text.endswith(start, 0, at) or not content or end == at + len(written):
                    return None
                spans.append((at, end))
            at += len(written)
        return spans if text[at:] == other else None

    def _probe(self, tools: list[Any] | None) -> tuple[str, str]:
        """Returns the start of an answer, and what follows the content of a last answer; empty if
        the template does not show them."""
        key = tools is not None
        if key not in self._known:
            asked = [{"role": "user", "content": self._mark}]
            mark = self._mark + "z"
            try:
                before = self._render(asked, tools, False)
                after = self._render(asked, tools, True)
                start = after[self._whole(after, _common(before, after)) :]
                whole = self._render([*asked, {"role": "assistant", "content": mark}], tools, False)
                self._known[key] = start, whole.rpartition(mark)[2].rstrip()
            except RecordError:
                self._known[key] = "", ""
        return self._known[key]

    def _begin(self, text: str, messages: Messages, turn: int, tools: list[Any] | None) -> int:
        before = self._render(messages[:turn], tools, True)
        common = _common(text, before)
        if common == len(before):
            return common
        # The start of an answer may say something about thoughts that this turn says otherwise.
        asked = self._render(messages[:turn], tools, False) if turn else ""
        if text.startswith(asked) and common >= len(asked):
            return self._whole(text, common)
        content = self._content(text, messages, turn, tools)
        since = 0
        if turn:
            since = self._content(text, messages, turn - 1, tools)[1]
        start, _ = self._probe(tools)
        at = text.find(start, since, content[0]) if self._tokens.search(start) else -1
        if at < 0:
            raise RecordError(_NOT_FOUND.format(turn))
        return at + len(start)

    def _end(
        self, text: str, messages: Messages, turn: int, tools: list[Any] | None, begin: int
    ) -> int:
        upto = self._render(messages[: turn + 1], tools, False)
        common = self._whole(text, _common(text, upto))
        if common >= begin and not self._has_words(upto[common:]):
            end = _without_space(text, begin, common)
            if any(token.end() == end for token in self._tokens.finditer(text, begin, end)):
                return end
            # A last turn may end with another token than a turn that others follow.
            over = self._over(text, common, len(self._tokens.findall(upto, common)))
            return over if over > common else end
        _, end = self._content(text, messages, turn, tools)
        after = self._probe(tools)[1]
        if messages[turn].get("tool_calls") and (token := self._tokens.search(after)):
            # The signs that close a call follow its arguments.
            closed = text.find(token.group(), end)
            if closed < 0 or self._tokens.search(text, end, closed):
                raise RecordError(_NOT_FOUND.format(turn))
            end = closed
            after = after[token.start() :]
        return self._after(text, end, after)

    def _over(self, text: str, end: int, count: int) -> int:
        """Returns the end of this number of special tokens that directly follow."""
        for _ in range(count):
            token = self._tokens.match(text, end)
            if token is None or token.group() in self._never:
                break
            end = token.end()
        return end

    def _content(
        self, text: str, messages: Messages, turn: int, tools: list[Any] | None
    ) -> Span:
        """Returns where the contents of a message are in the text."""
        # Two other contents have no start and no end in common.
        others = []
        for mark in (self._mark + "y", "b" + self._mark + "z"):
            changed = _changed(messages, turn, mark, "content")
            if messages[turn].get("tool_calls"):
                changed = _changed(changed, turn, mark, "tool_calls")
            try:
                others.append(self._render(changed, tools, False))
            except RecordError as error:
                raise RecordError(_NOT_FOUND.format(turn)) from error
        begin = min(_common(text, other) for other in others)
        end = len(text) - min(_common(text[::-1], other[::-1]) for other in others)
        if begin > end:
            raise RecordError(_NOT_FOUND.format(turn))
        return begin, end

    def _after(self, text: str, end: int, after: str) -> int:
        """Returns the end of the tokens that end a turn, if they follow its content."""
        common = self._whole(text, end + _common(text[end : end + len(after)], after))
        return _without_space(text, end, max(end, common))

    def _whole(self, text: str, at: int) -> int:
        """Returns `at`, or the begin of the special token that goes across it."""
        for token in self._tokens.finditer(text, max(0, at - 200), at + 200):
            if token.start() < at < token.end():
                return token.start()
        return at

    def _has_words(self, text: str) -> bool:
        """Returns whether the text has more than special tokens and white space."""
        return bool(self._tokens.sub("", text).strip())


def _changed(messages: Messages, number: int, mark: str, key: str) -> list[dict[str, Any]]:
    """Returns the conversation with another content, or other arguments of calls, of a message."""
    message = dict(messages[number])
    if key == "content":
        message["content"] = mark
    else:
        message["tool_calls"] = [_other_call(call, mark) for call in message["tool_calls"]]
    return [message if at == number else one for at, one in enumerate(messages)]


def _other_call(call: Any, mark: str) -> Any:
    if not isinstance(call, dict):
        return call
    inner = call.get("function")
    if isinstance(inner, dict):
        return {**call, "function": _other_call(inner, mark)}
    if "arguments" in call:
        text = isinstance(call["arguments"], str)
        return {**call, "arguments": f'{{"{mark}": "{mark}"}}' if text else {mark: mark}}
    return call


def _common(one: str, other: str) -> int:
    """Returns the number of characters at the start that two texts have in common."""
    least, most = 0, min(len(one), len(other))
    while least < most:
        middle = (least + most + 1) // 2
        if one[least:middle] == other[least:middle]:
            least = middle
        else:
            most = middle - 1
    return least


def _without_space(text: str, begin: int, end: int) -> int:
    """Returns the end of the part without white space at its end."""
    return begin + len(text[begin:end].rstrip())
