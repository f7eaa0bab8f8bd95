"""Ollama's `/api/chat` and `/api/generate` bodies → calls in the engine's own words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import Field

from sapwood.chat.body import Body, Text, read_body
from sapwood.chat.messages import Conversation, Message
from sapwood.chat.native_body import (
    MAX_STOPS,
    SAMPLERS_REFUSED,
    Penalty,
    Samplers,
    sampler_settings,
    unread,
)
from sapwood.chat.openai import MAX_MESSAGES, check_tokens
from sapwood.chat.unsupported import Neutral, refuse
from sapwood.errors import RequestError
from sapwood.types import SamplingDefaults, SamplingParams

_REFUSED: Mapping[str, Neutral] = MappingProxyType(
    {
        "format": ("",),
        "images": ([],),
        "logprobs": (False,),
        "shift": (True, False),
        "suffix": ("",),
        "template": ("",),
        "think": (False,),
        "tools": ([],),
        "top_logprobs": (0,),
    }
)
_MESSAGE_REFUSED: Mapping[str, Neutral] = MappingProxyType({"images": ([],), "tool_calls": ([],)})


class _Options(Samplers):
    num_predict: Annotated[int, Field(ge=-2, lt=2**63)] | None = None
    repeat_penalty: Penalty | None = None


class _Fields(Body):
    model: Text | None = None
    stream: bool | None = None
    options: dict[str, Any] | None = None
    keep_alive: Any = None
    cache_salt: Annotated[Text, Field(min_length=1, max_length=256)] | None = None


class _Message(Body):
    role: Literal["system", "user", "assistant", "tool"]
    content: Text | None = None
    tool_name: Text | None = None


class _Chat(_Fields):
    messages: Annotated[list[_Message], Field(fail_fast=True)] | None = None


class _Generate(_Fields):
    prompt: Text | None = None
    system: Text | None = None
    raw: bool | None = None
    context: list[Any] | None = None


@dataclass(frozen=True, slots=True)
class OllamaCall:
    """Attributes:
    prompt: a conversation, a raw text, or None to see only that the model is there.
    context: tokens that stand before the prompt: an earlier answer's.
    unload: whether the model is to leave memory afterwards.
    """

    model: str | None
    prompt: Conversation | str | None
    context: tuple[int, ...]
    params: SamplingParams
    salt: str
    stream: bool
    unload: bool
    ignored: tuple[str, ...]


def parse_ollama_chat(
    fields: Mapping[str, Any], *, vocab_size: int, defaults: SamplingDefaults
) -> OllamaCall:
    """The body of `POST /api/chat`. Raises RequestError that names the offending field."""
    body = read_body(_Chat, fields, {"messages": MAX_MESSAGES})
    messages = tuple(_message(each, f"messages[{i}]") for i, each in enumerate(body.messages or []))
    return _call(body, _conversation(messages) if messages else None, (), vocab_size, defaults)


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
        prompt = _conversation((*system, Message("user", (body.prompt or "",))))
    return _call(body, prompt, context, vocab_size, defaults)


def _conversation(messages: tuple[Message, ...]) -> Conversation:
    """An assistant's last message is gone on with, as Ollama does."""
    goes_on = messages[-1].role == "assistant"
    return Conversation(messages, add_generation_prompt=not goes_on, continue_final_message=goes_on)


def _message(body: _Message, path: str) -> Message:
    refuse(body.model_extra or {}, _MESSAGE_REFUSED, f"{path}.")
    return Message(body.role, (body.content or "",), name=body.tool_name)


def _call(
    body: _Fields,
    prompt: Conversation | str | None,
    context: tuple[int, ...],
    vocab_size: int,
    defaults: SamplingDefaults,
) -> OllamaCall:
    ignored = unread(body, _REFUSED)
    options = _options(body.options or {})
    ignored += unread(options, SAMPLERS_REFUSED, "options.")
    limit = options.num_predict
    params = SamplingParams(
        max_tokens=None if limit is None or limit < 0 else limit,
        **sampler_settings(options, defaults, vocab_size, penalty=options.repeat_penalty),
    )
    return OllamaCall(
        model=body.model,
        prompt=prompt,
        context=context,
        params=params,
        salt=body.cache_salt or "",
        stream=body.stream is not False,
        unload=_unloads(body.keep_alive),
        ignored=ignored,
    )


def _options(given: Mapping[str, Any]) -> _Options:
    try:
        return read_body(_Options, given, {"stop": MAX_STOPS})
    except RequestError as error:
        if error.param is None:
            raise
        inner = f"options.{error.param}"
        raise RequestError(error.message.replace(error.param, inner, 1), param=inner) from None


def _unloads(keep_alive: object) -> bool:
    """0, as a number or as a duration such as "0s"."""
    if isinstance(keep_alive, str):
        return keep_alive.rstrip("hms") == "0"
    return keep_alive == 0 and not isinstance(keep_alive, bool)
