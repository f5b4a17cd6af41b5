"""Chat templates of Hugging Face's tokenizers: the text of a conversation, and its trained parts.

A template is written in Jinja. Its environment is the one that transformers describes in its guide
for authors of templates ("Chat templates"): a sandbox that cannot change its values, blocks that
leave no line ends, loops with break and continue, the tag `generation`, the filter `tojson`, and
the functions `raise_exception` and `strftime_now`.

Trained parts are what stands between `{% generation %}` and `{% endgeneration %}`, if the template
has these marks, and otherwise the turns of the assistant (_turns.py)."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import re
from collections.abc import Sequence
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

from muster.data import _turns
from muster.data._records import RecordError
from muster.data._turns import Span

Messages = Sequence[dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Written:
    """A conversation as a template has written it."""

    text: str
    # The parts that are trained, in their order.
    spans: list[Span]
    # The numbers of messages whose content is not in the text.
    left_out: list[int]


class ChatTemplate:
    """A template, which writes one conversation after the other."""

    def __init__(
        self,
        text: str,
        special: dict[str, str],
        tokens: Sequence[str] = (),
        today: datetime.date | None = None,
    ):
        """special: the template's variables for tokens, such as {"bos_token": "<s>"}. tokens: all
        special tokens. today: the date of `strftime_now`. ValueError: no template."""
        self._special = special
        self._today = datetime.datetime.combine(today or datetime.date.today(), datetime.time())
        # Whether a text depends on the date.
        self.uses_date = False
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", _Generation],
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = self._now
        # Random marks cannot be in a conversation.
        mark = os.urandom(12).hex()
        self._begin, self._end = f"<{mark}-begin>", f"<{mark}-end>"
        environment.globals["muster_generation"] = lambda body: self._begin + body + self._end
        try:
            self._template = environment.from_string(text)
        except jinja2.TemplateSyntaxError as error:
            raise ValueError(f"the chat template: line {error.lineno}: {error.message}") from error
        self._source = text
        self._marked = re.search(r"{%-?\s*generation\s*-?%}", text) is not None
        end = special.get("eos_token")
        never = {special.get(f"{name}_token") for name in ("bos", "pad", "unk")} - {end}
        self._turns = _turns.Turns(self.render, tokens, [one for one in never if one])

    def names(self, key: str) -> bool:
        """Returns whether the template may read a field of this name."""
        return key in self._source

    def render(
        self, messages: Messages, tools: list[Any] | None = None, prompt: bool = False
    ) -> str:
        """Returns the text of a conversation; with `prompt`, also the start of an answer.
        RecordError: the template refuses it."""
        text = self._render(messages, tools, prompt)
        return text.replace(self._begin, "").replace(self._end, "") if self._marked else text

    def trained(
        self, messages: Messages, turns: Sequence[int], tools: list[Any] | None = None
    ) -> Written:
        """Writes a conversation. turns: the numbers of the messages that may be trained, in rising
        order; all of them are turns of the assistant. RecordError: the template refuses the
        conversation, leaves out tools or a turn, or does not show which parts are these turns."""
        text = self._render(messages, tools, False)
        if not self._marked:
            return Written(text, *self._turns.find(text, messages, turns, tools))
        text, spans = self._marks(text)
        answers = [at for at, one in enumerate(messages) if one.get("role") == "assistant"]
        if list(turns) != answers:
            ranges = [self._turns.range_of(text, messages, turn, tools) for turn in turns]
            spans = [
                (begin, end)
                for begin, end in spans
                if any(low <= begin < high for low, high in ranges)
            ]
        return Written(text, spans, self._turns.left_out(text, messages, turns, tools))

    def _marks(self, marked: str) -> tuple[str, list[Span]]:
        text = ""
        spans: list[Span] = []
        begin = 0
        for part in re.split(f"({self._begin}|{self._end})", marked):
            if part == self._begin:
                begin = len(text)
            elif part == self._end:
                spans.append((begin, len(text)))
            else:
                text += part
        return text, spans

    def _render(self, messages: Messages, tools: list[Any] | None, prompt: bool) -> str:
        try:
            return self._template.render(
                messages=messages,
                tools=tools,
                documents=None,
                add_generation_prompt=prompt,
                **self._special,
            )
        except jinja2.TemplateError as error:
            raise RecordError(f"the chat template refuses it: {error.message}") from error
        except Exception as error:  # whatever a template may compute
            raise RecordError(
                f"the chat template fails: {type(error).__name__}: {error}"
            ) from error

    def _now(self, form: str) -> str:
        self.uses_date = True
        return self._today.strftime(form)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Writes JSON as it is, without HTML's escapes of Jinja's own filter."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)


class _Generation(jinja2.ext.Extension):
    """The tag `generation`: its body goes through the function `muster_generation`."""

    tags = {"generation"}

    def parse(self, parser: Any) -> Any:
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_marked", [jinja2.nodes.Name("muster_generation", "load")])
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _marked(self, mark: Any, caller: Any) -> str:
        return mark(caller())  # type: ignore[no-any-return]
