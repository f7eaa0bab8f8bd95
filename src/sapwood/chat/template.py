"""Chat templates: a model's own Jinja, sandboxed, from messages to the prompt's tokens."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jinja2
from jinja2 import meta, nodes
from jinja2.defaults import DEFAULT_NAMESPACE
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from sapwood.chat.default_templates import default_template
from sapwood.chat.lookalikes import STAND_INS, LookalikeGuard, Segment
from sapwood.chat.thinking import CLOSE as THOUGHT_END
from sapwood.chat.thinking import OPEN as THOUGHT
from sapwood.chat.thinking import switch_of
from sapwood.chat.tokenizer import SpecialToken, Tokenizer
from sapwood.chat.tools import style_of
from sapwood.errors import ModelError, RequestError

__all__ = ["RESERVED_NAMES", "ChatTemplate", "Segment"]

RESERVED_NAMES = frozenset(
    {
        "add_generation_prompt",
        "bos_token",
        "documents",
        "eos_token",
        "messages",
        "raise_exception",
        "strftime_now",
        "tools",
        *DEFAULT_NAMESPACE,
    }
)
"""Variables and functions of every template; a request's own variables cannot take their names."""


class ChatTemplate:
    """A compiled template.

    Attributes:
        notice: what an operator should know about it, or None.
        knows_tools: whether it writes tools into the prompt.
        tool_style: the format in which its model calls them.
        thinks: whether its model may think before it answers.
        thinking_switch: the variable that lets it think or not; None if there is none.
        text_arguments: whether it wants the arguments of earlier calls as JSON text. Most want the object.
    """

    def __init__(
        self,
        source: str | None,
        *,
        special_tokens: Sequence[SpecialToken] = (),
        bos_token: str = "",
        eos_token: str = "",
        strftime_now: Callable[[str], str] | None = None,
    ) -> None:
        """Raises ModelError if `source` is not Jinja. None takes the format that its tokens tell of.

        `special_tokens` are those that user text must not become. `strftime_now` answers templates that ask
        for the date; without it the name is undefined and they take the date that is written in them.
        """
        self.notice: str | None = None
        if source is None:
            chosen = default_template(token.text for token in special_tokens)
            self.notice = f"the model has no chat template; {chosen.name} is used"
            source = chosen.source
        self._special_tokens = special_tokens
        self._facts = {"bos_token": bos_token, "eos_token": eos_token}
        environment = _environment()
        if strftime_now is not None:
            environment.globals["strftime_now"] = strftime_now
        self.source = source
        try:
            self._template = environment.from_string(source)
            self._reads = meta.find_undeclared_variables(environment.parse(source))
        except (jinja2.TemplateError, RecursionError) as error:
            raise ModelError(f"the model's chat template is not valid Jinja: {error}") from error
        self.knows_tools = "tools" in self._reads
        self.tool_style = style_of(source, knows_tools=self.knows_tools)
        self.thinks = THOUGHT_END in source or any(token.text == THOUGHT for token in special_tokens)
        self.thinking_switch = switch_of(self._reads)
        self.text_arguments = "tool_calls" in source and not self._takes({}) and self._takes("{}")

    @classmethod
    def for_tokenizer(
        cls, source: str | None, tokenizer: Tokenizer, strftime_now: Callable[[str], str] | None = None
    ) -> ChatTemplate:
        """The template with the tokenizer's own control tokens."""
        return cls(
            source,
            special_tokens=tokenizer.special_tokens,
            bos_token="" if tokenizer.bos_id is None else tokenizer.token_text(tokenizer.bos_id),
            eos_token="" if tokenizer.eos_id is None else tokenizer.token_text(tokenizer.eos_id),
            strftime_now=strftime_now,
        )

    def _takes(self, arguments: Any) -> bool:
        """Whether it renders an earlier call with such arguments."""
        call = {"id": "a1b2c3d4e", "type": "function", "function": {"name": "f", "arguments": arguments}}
        try:
            self.render(
                [
                    {"role": "user", "content": "a"},
                    {"role": "assistant", "content": "", "tool_calls": [call]},
                    {"role": "tool", "content": "b", "tool_call_id": "a1b2c3d4e", "name": "f"},
                ]
            )
        except RequestError:
            return False
        return True

    def unread(self, names: Iterable[str]) -> list[str]:
        """Those of a request's own variables that the template never looks at."""
        return [name for name in names if name not in self._reads]

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> list[Segment]:
        """The prompt, cut so that only what the template wrote can be a control token.

        `extra` are the request's own variables, such as `enable_thinking`.
        Raises RequestError with the template's own words where it refuses the messages, or fails over them.
        """
        given = {**(extra or {}), "messages": messages, "tools": tools, "documents": None}
        try:
            guard = LookalikeGuard(self._special_tokens, [given])
            context = {**guard.hide(given), **self._facts, "add_generation_prompt": add_generation_prompt}
            return guard.segments(self._template.render(context))
        except _Refusal as error:
            raise _request_error(f"the chat template refuses the messages: {error}") from error
        except RequestError:
            raise
        except Exception as error:  # a template is foreign code and fails in its own ways
            raise _request_error(f"the chat template fails over the messages: {error}") from error


class _Refusal(jinja2.TemplateError):
    """A template called raise_exception."""


class _GenerationBlock(Extension):
    """`{% generation %}…{% endgeneration %}` marks the model's words for training; here it is nothing."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlock, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    return environment


def _refuse(message: str) -> None:
    raise _Refusal(message)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own filter escapes for HTML, which prompts must not. Stand-ins are never escaped."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys)
    return re.sub(r"[^\x00-\x7f]", _escaped, text) if ensure_ascii else text


def _escaped(match: re.Match[str]) -> str:
    return match[0] if ord(match[0]) in STAND_INS else json.dumps(match[0])[1:-1]


def _request_error(message: str) -> RequestError:
    return RequestError(message, param="messages", code="invalid_messages")
