"""Anthropic-shaped bodies of `/v1/messages` → calls in the engine's own words. Its turns: `anthropic_turns.py`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import Field

from sapwood.chat.anthropic_blocks import MAX_BLOCKS
from sapwood.chat.anthropic_format import Output, parse_output
from sapwood.chat.anthropic_markers import Piece, place_markers
from sapwood.chat.anthropic_turns import TurnBody, parse_turns
from sapwood.chat.body import Body, Integer, Number, Text, read_body, shown
from sapwood.chat.messages import Conversation
from sapwood.chat.openai import Options, Stop
from sapwood.chat.tools import ToolUse
from sapwood.chat.unsupported import Neutral, refuse
from sapwood.errors import RequestError
from sapwood.types import Constraint, SamplingDefaults, SamplingParams, Scope

LONGEST: Mapping[str, int] = MappingProxyType(
    {"messages": 16_384, "stop_sequences": 64, "system": MAX_BLOCKS, "tools": 4096}
)
"""Most entries of the lists in a body."""

LEAST_THINKING = 1024
"""Tokens; a smaller budget is refused. Within it nothing is counted: a model thinks as long as it does."""

THINKING = ("enabled", "adaptive")
"""Types of `thinking` with which a model may think. Without, it does not, if its template can tell it so."""

HARMLESS = frozenset(
    {
        "anthropic_beta",
        "betas",
        "container",
        "context_management",
        "diagnostics",
        "inference_geo",
        "metadata",
        "output_config",
        "output_format",
        "service_tier",
        "speed",
        "user_profile_id",
    }
)
"""Known fields that do not change the answer of the models served here."""

REFUSED: Mapping[str, Neutral] = MappingProxyType({"mcp_servers": ([],)})
"""Known fields that would change the answer, and the values with which they do not."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    asked: bool = False
    previous: str | None = None
    """The id of the message before this one; the first has none."""


@dataclass(frozen=True, slots=True)
class MessagesCall:
    """Attributes:
    pieces: the blocks of the body in prompt order, and their cache markers.
    settings: per level of the prompt, what a cached prefix is found by besides its tokens.
    calls: how the answer may call tools; None if it may not.
    diagnosis: whether it asks to be told why less was read from the cache than could be, and of which message.
    thinks: whether the model may think before it answers.
    """

    options: Options
    conversation: Conversation
    pieces: tuple[Piece, ...]
    settings: Mapping[str, str]
    calls: ToolUse | None
    diagnosis: Diagnosis
    thinks: bool = False


@dataclass(frozen=True, slots=True)
class CountCall:
    model: str
    conversation: Conversation
    thinks: bool = False


class _PromptBody(Body):
    """What makes the prompt."""

    model: Text
    messages: Annotated[list[TurnBody], Field(min_length=1, fail_fast=True)]
    system: Any = None
    tools: list[Any] | None = None
    tool_choice: dict[str, Any] | None = None
    thinking: dict[str, Any] | None = None
    cache_control: Any = None


class _MessagesBody(_PromptBody):
    max_tokens: Annotated[Integer, Field(ge=0)]
    stop_sequences: list[Stop] | None = None
    temperature: Annotated[Number, Field(ge=0, le=2)] | None = None
    top_p: Annotated[Number, Field(ge=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, lt=2**31)] | None = None
    stream: bool | None = None


def parse_messages(
    fields: Mapping[str, Any], *, vocab_size: int, defaults: SamplingDefaults | None = None
) -> MessagesCall:
    """The body of `POST /v1/messages`; `defaults` fill what it leaves out.

    Raises RequestError that names the offending field.
    """
    body = read_body(_MessagesBody, fields, LONGEST)
    turns = parse_turns(body.system, body.tools, body.messages)
    thinks = _thinks(body.thinking)
    budgeted = thinks and _has_budget(body.thinking, body.max_tokens)
    forced, output = _forced(body.tool_choice), parse_output(body.model_extra or {})
    if body.max_tokens == 0:
        _check_pre_warm(body, thinks=budgeted, forced=forced, form=output.form)
    options = Options(
        model=body.model,
        params=_params(body, vocab_size, defaults, output.form),
        scope=Scope(),
        priority=0,
        retain=(),
        stream=bool(body.stream),
        include_usage=True,
        ignored=(*_ignored(body), *(["thinking"] if budgeted else [])),
    )
    pieces = place_markers(turns.pieces, body.cache_control)
    return MessagesCall(
        options,
        turns.conversation,
        pieces,
        _settings(body, output),
        _calls(body, turns.conversation),
        _diagnosis(body),
        thinks=thinks,
    )


def parse_count(fields: Mapping[str, Any]) -> CountCall:
    """The body of a `POST /v1/messages/count_tokens`.

    Raises RequestError that names the offending field.
    """
    body = read_body(_PromptBody, fields, LONGEST)
    turns = parse_turns(body.system, body.tools, body.messages)
    forced = _forced(body.tool_choice)
    place_markers(turns.pieces, body.cache_control)
    free = not forced and parse_output(body.model_extra or {}).form is None
    return CountCall(body.model, turns.conversation, thinks=_thinks(body.thinking) and free)


def _ignored(body: _MessagesBody) -> list[str]:
    extra = body.model_extra or {}
    refuse(extra, REFUSED)
    return sorted(set(extra) - HARMLESS - REFUSED.keys())


def _params(
    body: _MessagesBody, vocab_size: int, defaults: SamplingDefaults | None, form: Constraint | None
) -> SamplingParams:
    given = {
        "temperature": body.temperature,
        "top_p": body.top_p,
        "top_k": None if body.top_k is None else min(max(body.top_k, 0), vocab_size),
        "stop": None if body.stop_sequences is None else tuple(body.stop_sequences),
    }
    settings: dict[str, Any] = asdict(defaults or SamplingDefaults())
    settings.update((name, value) for name, value in given.items() if value is not None)
    return SamplingParams(max_tokens=body.max_tokens, constraint=form, **settings)


def _thinks(thinking: Mapping[str, Any] | None) -> bool:
    if thinking is None:
        return False
    kind = thinking.get("type")
    if not isinstance(kind, str):
        raise RequestError(f"'thinking.type' is {shown(kind)}; it must be a string", param="thinking.type")
    return kind in THINKING


def _has_budget(thinking: Mapping[str, Any] | None, max_tokens: int) -> bool:
    """Whether the call asks for thinking with a budget. Raises RequestError for one that is none."""
    if thinking is None or thinking.get("type") != "enabled":
        return False
    budget = thinking.get("budget_tokens")
    expected = f"a whole number from {LEAST_THINKING} up and below max_tokens ({max_tokens})"
    if type(budget) is not int or budget < LEAST_THINKING or (0 < max_tokens <= budget):
        raise RequestError(
            f"'thinking.budget_tokens' is {shown(budget)}; it must be {expected}",
            param="thinking.budget_tokens",
        )
    return True


def _forced(choice: Mapping[str, Any] | None) -> bool:
    """Whether a tool must be called. Raises RequestError for what is no choice."""
    if not choice:
        return False
    kind = choice.get("type")
    if kind not in ("auto", "any", "tool", "none"):
        raise RequestError(
            f"'tool_choice.type' is {shown(kind)}; it must be auto, any, tool or none",
            param="tool_choice.type",
        )
    return kind in ("any", "tool")


def _check_pre_warm(body: _MessagesBody, *, thinks: bool, forced: bool, form: Constraint | None) -> None:
    wrong = "stream" if body.stream else "thinking" if thinks else "tool_choice" if forced else None
    if wrong is None and form is not None:
        wrong = form.param.removesuffix(".schema")
    if wrong is not None:
        raise RequestError(
            f"'max_tokens' is 0, which only reads the prompt into the cache; {wrong!r} does not go with it",
            param=wrong,
            hint=f"leave {wrong} out, or set max_tokens to 1 or more",
        )


def _calls(body: _MessagesBody, conversation: Conversation) -> ToolUse | None:
    choice = body.tool_choice or {}
    kind, forced = choice.get("type"), _forced(choice)
    names = frozenset(str(tool["function"]["name"]) for tool in conversation.tools)
    if forced and not names:
        raise RequestError("'tool_choice' needs 'tools'", param="tool_choice")
    if not names or kind == "none":
        return None
    parallel = not choice.get("disable_parallel_tool_use")
    if kind != "tool":
        return ToolUse(names, forced, parallel)
    name = choice.get("name")
    if not isinstance(name, str) or name not in names:
        raise RequestError(
            f"'tool_choice.name' is {shown(name)}; it must be one of 'tools'", param="tool_choice.name"
        )
    return ToolUse(frozenset({name}), forced, parallel=False)


def _diagnosis(body: _MessagesBody) -> Diagnosis:
    asked = (body.model_extra or {}).get("diagnostics")
    if not isinstance(asked, dict):
        return Diagnosis()
    previous = asked.get("previous_message_id")
    return Diagnosis(True, previous if isinstance(previous, str) else None)


def _settings(body: _MessagesBody, output: Output) -> Mapping[str, str]:
    """A default that is spelled out is the same as one that is left out."""
    extra, choice, thinking = body.model_extra or {}, dict(body.tool_choice or {}), body.thinking or {}
    if choice.get("type") == "auto":
        del choice["type"]
    if not choice.get("disable_parallel_tool_use"):
        choice.pop("disable_parallel_tool_use", None)
    return {
        "system": json.dumps([extra.get("speed") == "fast", output.system_key]),
        "messages": json.dumps(
            [
                choice,
                thinking if thinking.get("type") in THINKING else {},
                output.effort,
            ]
        ),
    }
