"""Ollama's `/api/chat` and `/api/generate` bodies → calls in the engine's own words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import Field

from sapwood.chat.body import Body, Text, read_body, shown
from sapwood.chat.messages import Conversation, Message
from sapwood.chat.native_body import (
    MAX_STOPS,
    SAMPLERS_REFUSED,
    ModelCall,
    Penalty,
    Salt,
    Samplers,
    read_within,
    sampler_settings,
    unread,
)
from sapwood.chat.ollama_tools import CallBody, CallIds
from sapwood.chat.openai import MAX_MESSAGES, check_tokens
from sapwood.chat.openai_format import any_object, parse_schema
from sapwood.chat.openai_tools import MAX_TOOLS, parse_tools
from sapwood.chat.tools import ToolUse
from sapwood.chat.unsupported import Neutral, refuse
from sapwood.errors import RequestError
from sapwood.types import Constraint, SamplingDefaults, SamplingParams

_REFUSED: Mapping[str, Neutral] = MappingProxyType(
    {
        "images": ([],),
        "shift": (True, False),
        "suffix": ("",),
        "template": ("",),
    }
)
_MESSAGE_REFUSED: Mapping[str, Neutral] = MappingProxyType({"images": ([],)})
_LONGEST: Mapping[str, int] = MappingProxyType({"messages": MAX_MESSAGES, "tools": MAX_TOOLS})
_EFFORTS = ("low", "medium", "high")
MOST_TOP = 20
"""Tokens that are told beside each that was drawn."""


class _Options(Samplers):
    num_predict: Annotated[int, Field(ge=-2, lt=2**63)] | None = None
    repeat_penalty: Penalty | None = None


class _Fields(Body):
    model: Text | None = None
    stream: bool | None = None
    options: dict[str, Any] | None = None
    keep_alive: Any = None
    cache_salt: Salt | None = None
    format: Any = None
    think: Any = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MOST_TOP)] | None = None


class _Message(Body):
    role: Literal["system", "user", "assistant", "tool"]
    content: Text | None = None
    thinking: Text | None = None
    tool_calls: Annotated[list[CallBody], Field(fail_fast=True)] | None = None
    tool_name: Text | None = None
    tool_call_id: Text | None = None


class _Chat(_Fields):
    messages: Annotated[list[_Message], Field(fail_fast=True)] | None = None
    tools: list[Any] | None = None


class _Generate(_Fields):
    prompt: Text | None = None
    system: Text | None = None
    raw: bool | None = None
    context: list[Any] | None = None


Think = bool | str
"""Whether the model is to think before it answers; a text says how much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OllamaCall(ModelCall):
    """Attributes:
    prompt: a conversation, a raw text, or None to see only that the model is there.
    context: tokens that stand before the prompt: an earlier answer's.
    calls: how the answer may call the conversation's tools; None if it may not.
    think: None leaves it to the model.
    unload: whether the model is to leave memory afterwards.
    """

    prompt: Conversation | str | None
    context: tuple[int, ...]
    calls: ToolUse | None
    think: Think | None
    unload: bool


def parse_ollama_chat(
    fields: Mapping[str, Any], *, vocab_size: int, defaults: SamplingDefaults
) -> OllamaCall:
    """The body of `POST /api/chat`. Raises RequestError that names the offending field."""
    body = read_body(_Chat, fields, _LONGEST)
    ids = CallIds()
    messages = tuple(_message(each, ids, f"messages[{i}]") for i, each in enumerate(body.messages or []))
    tools = parse_tools(body.tools, None, None)
    conversation = _conversation(messages, tools.defined, _think(body.think)) if messages else None
    return _call(body, conversation, (), tools.use, vocab_size, defaults)


def parse_ollama_generate(
    fields: Mapping[str, Any], *, vocab_size: int, defaults: SamplingDefaults
) -> OllamaCall:
    """The body of `POST /api/generate`. Raises RequestError that names the offending field."""
    body = read_body(_Generate, fields, {})
    context = check_tokens(body.context or [], "context", vocab_size)
    prompt: Conversation | str | None = body.prompt or None
    if body.raw and (body.system or context):
        raise RequestError("'raw' takes the prompt as it is; it excludes 'system' and 'context'", param="raw")
    if prompt is not None and not body.raw:
        system = [Message("system", (body.system,))] if body.system else []
        prompt = _conversation((*system, Message("user", (body.prompt or "",))), (), _think(body.think))
    return _call(body, prompt, context, None, vocab_size, defaults)


def _conversation(
    messages: tuple[Message, ...], tools: tuple[Mapping[str, Any], ...], think: Think | None
) -> Conversation:
    """An assistant's last message is gone on with, as Ollama does."""
    goes_on = messages[-1].role == "assistant" and not messages[-1].tool_calls
    return Conversation(
        messages,
        add_generation_prompt=not goes_on,
        continue_final_message=goes_on,
        tools=tools,
        template_kwargs={"reasoning_effort": think} if isinstance(think, str) else {},
    )


def _message(body: _Message, ids: CallIds, path: str) -> Message:
    refuse(body.model_extra or {}, _MESSAGE_REFUSED, f"{path}.")
    if body.tool_calls and body.role != "assistant":
        raise RequestError(f"'{path}.tool_calls' is the assistant's to make", param=f"{path}.tool_calls")
    calls = ids.calls(body.tool_calls, f"{path}.tool_calls") if body.tool_calls else ()
    return Message(
        body.role,
        () if calls and not body.content else (body.content or "",),
        name=body.tool_name,
        tool_call_id=ids.result(body.tool_name, body.tool_call_id) if body.role == "tool" else None,
        tool_calls=calls,
        reasoning=body.thinking if body.role == "assistant" else None,
    )


def _call(
    body: _Fields,
    prompt: Conversation | str | None,
    context: tuple[int, ...],
    calls: ToolUse | None,
    vocab_size: int,
    defaults: SamplingDefaults,
) -> OllamaCall:
    ignored = unread(body, _REFUSED)
    options = read_within(_Options, body.options or {}, {"stop": MAX_STOPS}, "options")
    ignored += unread(options, SAMPLERS_REFUSED, "options.")
    limit = options.num_predict
    params = SamplingParams(
        max_tokens=None if limit is None or limit < 0 else limit,
        logprobs=min(body.top_logprobs or 0, vocab_size) if body.logprobs else None,
        constraint=_form(body.format),
        **sampler_settings(options, defaults, vocab_size, penalty=options.repeat_penalty),
    )
    return OllamaCall(
        model=body.model,
        prompt=prompt,
        context=context,
        params=params,
        calls=calls,
        think=_think(body.think),
        salt=body.cache_salt or "",
        stream=body.stream is not False,
        unload=_unloads(body.keep_alive),
        ignored=ignored,
    )


def _think(value: Any) -> Think | None:
    if value is None or isinstance(value, bool) or (isinstance(value, str) and value in _EFFORTS):
        return value
    raise RequestError(
        f"'think' is {shown(value)}; it must be true, false, or one of {', '.join(_EFFORTS)}", param="think"
    )


def _form(value: object) -> Constraint | None:
    """`format`: nothing, "json" for any object, or a schema."""
    if value in (None, ""):
        return None
    if value == "json":
        return any_object("format")
    if not isinstance(value, dict):
        raise RequestError(f"'format' is {shown(value)}; it must be 'json' or a JSON schema", param="format")
    return parse_schema(value, "format")


def _unloads(keep_alive: object) -> bool:
    """0, as a number or as a duration such as "0s"."""
    if isinstance(keep_alive, str):
        return keep_alive.rstrip("hms") == "0"
    return keep_alive == 0 and not isinstance(keep_alive, bool)
