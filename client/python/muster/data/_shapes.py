"""The shapes of records: which fields hold the example, and how they are read.

    text         {"text": "..."}
    messages     {"messages": [{"role": "user", "content": "..."}, ...], "tools": [...]}
    sharegpt     {"conversations": [{"from": "human", "value": "..."}, ...], "system": "..."}
    prompt       {"prompt": ..., "completion": ...}, both texts or both lists of messages
    alpaca       {"instruction": "...", "input": "...", "output": "...", "system": "...",
                 "history": [["...", "..."], ...]}

An example becomes a Text, whose pieces are joined, or a Conversation, which a chat template writes.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any

from muster.data._records import RecordError

SHAPES = ("messages", "sharegpt", "prompt", "alpaca", "text")


@dataclasses.dataclass(frozen=True)
class Text:
    # The text that a model is given, and the text that it learns to write.
    prompt: str
    completion: str


@dataclasses.dataclass(frozen=True)
class Conversation:
    messages: list[dict[str, Any]]
    tools: list[Any] | None = None
    # The number of messages at the start that are given: they are never trained.
    given: int = 0


@dataclasses.dataclass(frozen=True)
class Shape:
    name: str
    # Fields that the records have under other names, by the name that they should have.
    columns: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # The field with the messages, of the shapes `messages` and `sharegpt`.
    field: str = ""

    def fields(self) -> tuple[str, ...]:
        """Returns the fields that are read."""
        return _FIELDS[self.name] if not self.field else (self.field, *_FIELDS[self.name])

    def read(self, record: Any) -> Text | Conversation:
        """RecordError: the record has another shape."""
        return _READERS[self.name](_fields(record, self.columns), self)

    def unused(self, record: Mapping[str, Any]) -> list[str]:
        """Returns the fields of a record that are not read."""
        taken = {self.columns.get(name, name) for name in self.fields()}
        return [str(key) for key in record if key not in taken]


def check_columns(columns: Mapping[str, str], wanted: str | None) -> None:
    """ValueError: names of fields that no shape has, or not the wanted one."""
    shapes = (wanted,) if wanted else SHAPES
    known = {field for shape in shapes for field in _FIELDS[shape]}
    if any(shape in ("messages", "sharegpt") for shape in shapes):
        known |= set(_LISTS)
    for name in columns:
        if name not in known:
            raise ValueError(f"column {name}: expected one of {', '.join(sorted(known))}")


def recognise(record: Any, columns: Mapping[str, str], wanted: str | None) -> Shape:
    """Returns the shape of records like this one. RecordError: none fits, or not the wanted one."""
    fields = _fields(record, columns)
    for name in (wanted,) if wanted else SHAPES:
        shape = Shape(name, dict(columns))
        if name in ("messages", "sharegpt"):
            keys = ("role", "content") if name == "messages" else ("from", "value")
            for field in _LISTS:
                if _is_list_of_turns(fields.get(field), keys):
                    return dataclasses.replace(shape, field=field)
        elif all(fields.get(key) is not None for key in _NEEDED[name]):
            return shape
    if {"chosen", "rejected"} <= fields.keys():
        raise RecordError(
            "preferences (`chosen` and `rejected`) cannot be trained; keep `chosen` as `completion`"
        )
    for name in _LISTS:
        turns = _parsed(fields[name]) if isinstance(fields.get(name), str) else fields.get(name)
        if isinstance(turns, list) and turns and isinstance(turns[0], Mapping):
            raise RecordError(
                f"`{name}[0]`: expected `role` and `content`, or `from` and `value`; found "
                f"{', '.join(map(str, turns[0])) or '(none)'}; rename these fields in the file"
            )
    raise RecordError(
        f"expected {_EXPECTED[wanted] if wanted else 'one of ' + '; '.join(_EXPECTED.values())}; "
        f"found the fields {', '.join(fields) or '(none)'}; name other fields, for example "
        "--column text=body"
    )


# The fields that may hold a list of turns.
_LISTS = ("messages", "conversations", "conversation")
_NEEDED = {
    "prompt": ("prompt", "completion"),
    "alpaca": ("instruction", "output"),
    "text": ("text",),
}
# All fields that are read, besides the one of Shape.field.
_FIELDS: dict[str, tuple[str, ...]] = {
    "messages": ("system", "tools"),
    "sharegpt": ("system", "tools"),
    "prompt": ("prompt", "completion", "tools"),
    "alpaca": ("instruction", "input", "output", "system", "history"),
    "text": ("text",),
}
_EXPECTED = {
    "messages": "`messages` (a list with `role` and `content`)",
    "sharegpt": "`conversations` (a list with `from` and `value`)",
    "prompt": "`prompt` and `completion`",
    "alpaca": "`instruction` and `output`",
    "text": "`text`",
}
# The names of roles in ShareGPT's files.
_ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "model": "assistant",
    "assistant": "assistant",
    "system": "system",
    "tool": "tool",
    "observation": "tool",
}


def _fields(record: Any, columns: Mapping[str, str]) -> dict[str, Any]:
    if not isinstance(record, Mapping):
        raise RecordError(f"expected fields with names, found {_brief(record)}")
    for other in columns.values():
        if other not in record:
            raise RecordError(f"there is no field `{other}`; found {', '.join(record) or '(none)'}")
    moved = {*columns, *columns.values()}
    found = {key: value for key, value in record.items() if key not in moved}
    return found | {name: record[other] for name, other in columns.items()}


def _is_list_of_turns(found: Any, keys: tuple[str, str]) -> bool:
    if isinstance(found, str):
        found = _parsed(found)
    # An empty list has no shape.
    return (
        isinstance(found, list)
        and len(found) > 0
        and all(isinstance(turn, Mapping) and keys[0] in turn for turn in found)
    )


def _parsed(text: str) -> Any:
    """Tables may hold lists as JSON in a text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _text(fields: Mapping[str, Any], name: str, default: str | None = None) -> str:
    found = fields.get(name)
    if found is None and default is not None:
        return default
    if not isinstance(found, str):
        raise RecordError(f"`{name}`: expected a text, found {_brief(found)}")
    return found


def _turns(found: Any, name: str) -> list[dict[str, Any]]:
    if isinstance(found, str):
        found = _parsed(found)
    if not isinstance(found, list):
        raise RecordError(f"`{name}`: expected a list of messages, found {_brief(found)}")
    for number, turn in enumerate(found):
        if not isinstance(turn, Mapping):
            raise RecordError(f"`{name}[{number}]`: expected a message, found {_brief(turn)}")
    return [dict(turn) for turn in found]


def _checked(messages: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    for number, message in enumerate(messages):
        place = f"`{name}[{number}]`"
        if not isinstance(message.get("role"), str):
            raise RecordError(f"{place}: expected a `role`, found {_brief(message)}")
        content = message.get("content")
        if isinstance(content, list):
            for part in content:
                if not isinstance(part, Mapping) or part.get("type") != "text":
                    raise RecordError(f"{place}: only texts can be trained, found {_brief(part)}")
        elif content is None:
            if not message.get("tool_calls"):
                raise RecordError(f"{place}: expected a `content`, found {_brief(message)}")
        elif not isinstance(content, str):
            raise RecordError(f"{place}.content: expected a text, found {_brief(content)}")
        weight = message.get("weight")
        if weight is not None and weight not in (0, 1):
            raise RecordError(f"{place}.weight: expected 0 or 1, found {_brief(weight)}")
    return messages


def _tools(fields: Mapping[str, Any]) -> list[Any] | None:
    found = fields.get("tools")
    if isinstance(found, str):
        found = _parsed(found) if found.strip() else None
    if found is not None and not isinstance(found, list):
        raise RecordError(f"`tools`: expected a list, found {_brief(found)}")
    return found or None


def _messages(fields: Mapping[str, Any], shape: Shape) -> Conversation:
    messages = _checked(_turns(fields.get(shape.field), shape.field), shape.field)
    return Conversation(_after_system(fields, messages), _tools(fields))


def _sharegpt(fields: Mapping[str, Any], shape: Shape) -> Conversation:
    messages = []
    for number, turn in enumerate(_turns(fields.get(shape.field), shape.field)):
        role = _ROLES.get(str(turn.get("from")))
        if role is None:
            raise RecordError(
                f"`{shape.field}[{number}]`: `from` is one of {', '.join(_ROLES)}; found "
                f"{_brief(turn.get('from'))}"
            )
        more = {key: value for key, value in turn.items() if key not in ("from", "value")}
        messages.append({**more, "role": role, "content": _text(turn, "value")})
    _checked(messages, shape.field)
    return Conversation(_after_system(fields, messages), _tools(fields))


def _after_system(
    fields: Mapping[str, Any], messages: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    system = _text(fields, "system", "")
    if not system or (messages and messages[0]["role"] == "system"):
        return messages
    return [{"role": "system", "content": system}, *messages]


def _prompt(fields: Mapping[str, Any], shape: Shape) -> Text | Conversation:
    prompt, completion = fields.get("prompt"), fields.get("completion")
    if isinstance(prompt, str) and isinstance(completion, str):
        # Tables may hold lists of messages as JSON in texts.
        lists = _parsed(prompt), _parsed(completion)
        if not all(_is_list_of_turns(one, ("role", "content")) for one in lists):
            return Text(prompt, completion)
        prompt, completion = lists
    if not isinstance(prompt, list) or not isinstance(completion, list):
        raise RecordError(
            "`prompt` and `completion`: expected two texts or two lists of messages, found "
            f"{_brief(prompt)} and {_brief(completion)}"
        )
    before = _checked(_turns(prompt, "prompt"), "prompt")
    after = _checked(_turns(completion, "completion"), "completion")
    return Conversation(before + after, _tools(fields), given=len(before))


def _alpaca(fields: Mapping[str, Any], shape: Shape) -> Conversation:
    messages = []
    for number, pair in enumerate(fields.get("history") or []):
        pair = list(pair) if isinstance(pair, (list, tuple)) else pair
        if (
            not isinstance(pair, list)
            or len(pair) != 2
            or not all(isinstance(one, str) for one in pair)
        ):
            raise RecordError(f"`history[{number}]`: expected two texts, found {_brief(pair)}")
        messages += [
            {"role": role, "content": text}
            for role, text in zip(("user", "assistant"), pair, strict=True)
        ]
    asked = _text(fields, "instruction")
    more = _text(fields, "input", "")
    messages.append({"role": "user", "content": f"{asked}\n{more}" if more else asked})
    messages.append({"role": "assistant", "content": _text(fields, "output")})
    return Conversation(_after_system(fields, messages))


def _plain(fields: Mapping[str, Any], shape: Shape) -> Text:
    return Text("", _text(fields, "text"))


_READERS: dict[str, Callable[[Mapping[str, Any], Shape], Text | Conversation]] = {
    "messages": _messages,
    "sharegpt": _sharegpt,
    "prompt": _prompt,
    "alpaca": _alpaca,
    "text": _plain,
}


def _brief(value: Any) -> str:
    if value is None:
        return "nothing"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
