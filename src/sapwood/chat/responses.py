"""OpenAI-shaped bodies of `/v1/responses` → calls in the engine's own words. Items and tools: `responses_*.py`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import Field

from sapwood.chat.body import Body, Integer, Number, Text, read_body
from sapwood.chat.messages import Conversation
from sapwood.chat.openai import Options
from sapwood.chat.openai_format import parse_format
from sapwood.chat.openai_render import Json
from sapwood.chat.openai_tools import MAX_DEPTH, MAX_TOOLS
from sapwood.chat.prompt_cache import Breakpoint, PromptCache, parse_prompt_cache
from sapwood.chat.responses_items import MAX_ITEMS, parse_items, turns_of
from sapwood.chat.responses_tools import ResponseTools, parse_response_tools
from sapwood.chat.template_kwargs import check_json, check_template_kwargs
from sapwood.chat.tools import ToolUse
from sapwood.chat.unsupported import CHAT_REFUSED, HARMLESS, Neutral, refuse
from sapwood.errors import RequestError
from sapwood.types import Constraint, SamplingDefaults, SamplingParams, Scope

LONGEST: Mapping[str, int] = MappingProxyType(
    {"chat_template_kwargs": 64, "include": 64, "input": MAX_ITEMS, "metadata": 16, "tools": MAX_TOOLS}
)
"""Most entries of the lists and objects in a body."""

_HARMLESS = HARMLESS | {
    "access_programs",
    "background_options",
    "client_metadata",
    "context_management",
    "image",
    "max_tool_calls",
    "moderation",
    "personality",
    "stream_options",
}
_REFUSED: Mapping[str, Neutral] = MappingProxyType(
    {
        **CHAT_REFUSED,
        "background": (False,),
        "conversation": (),
        "frequency_penalty": (0,),
        "logit_bias": ({},),
        "logprobs": (False,),
        "max_completion_tokens": (),
        "max_tokens": (),
        "messages": (),
        "min_tokens": (0,),
        "n": (1,),
        "presence_penalty": (0,),
        "response_format": (),
        "stop": ([], ""),
    }
)
"""Known fields that would change the answer, and the values with which they do not."""

Recall = Callable[[str], Sequence[Json]]
"""All items, in and out, of an earlier response by its id. Raises RequestError where there is none."""


@dataclass(frozen=True, slots=True)
class ResponseCall:
    """Attributes:
    items: all that the response is made from, those of earlier ones included.
    tool_use: how the answer may call the conversation's tools; None for not at all.
    settings: what a cached prefix of the newer models is found by besides its tokens, by the name of the thing.
    thinks: False where no effort is to be made on thinking.
    truncates: where it is all too long, it begins later.
    prewarm: only fill the cache.
    comparison: id of the response to tell the cache's misses against.
    sealed: reasoning is also wanted in the form that clients carry.
    echo: the fields of the body that the answer repeats.
    """

    options: Options
    conversation: Conversation
    items: tuple[Json, ...]
    tool_use: ToolUse | None
    cache: PromptCache
    settings: Mapping[str, str]
    thinks: bool
    truncates: bool
    prewarm: bool
    comparison: str | None
    store: bool
    sealed: bool
    echo: Json


@dataclass(frozen=True, slots=True)
class ResponseCount:
    model: str | None
    conversation: Conversation
    thinks: bool


class _CacheOptions(Body):
    prewarm: bool | None = None
    comparison_response_id: Text | None = None


class _PromptBody(Body):
    """What makes the prompt."""

    model: Text | None = None
    input: Any = None
    instructions: Text | None = None
    previous_response_id: Text | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    text: dict[str, Any] | None = None
    reasoning: dict[str, Any] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class _ResponseBody(_PromptBody):
    max_output_tokens: Annotated[Integer, Field(ge=1)] | None = None
    temperature: Annotated[Number, Field(ge=0, le=2)] | None = None
    top_p: Number | None = None
    top_k: Annotated[int, Field(ge=-1, lt=2**31)] | None = None
    min_p: Number | None = None
    seed: Integer | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    include: list[Text] | None = None
    metadata: dict[str, Annotated[Text, Field(max_length=512)]] | None = None
    store: bool | None = None
    stream: bool | None = None
    cache_salt: Annotated[Text, Field(min_length=1, max_length=256)] | None = None
    priority: Integer | None = None
    prompt_cache_options: _CacheOptions | None = None


def parse_response(
    fields: Mapping[str, Any],
    *,
    stem: str,
    recall: Recall,
    usual_ttl: str,
    vocab_size: int,
    defaults: SamplingDefaults | None = None,
) -> ResponseCall:
    """The body of `POST /v1/responses`; `stem` makes ids of items, `defaults` fill what it leaves out, and
    `usual_ttl` is how long a breakpoint lives of which nothing is said.

    Raises RequestError that names the offending field.
    """
    body = read_body(_ResponseBody, fields, LONGEST)
    extra = body.model_extra or {}
    refuse(extra, _REFUSED)
    prompt = _prompt(body, recall, stem)
    asked = body.prompt_cache_options or _CacheOptions()
    cache = parse_prompt_cache(fields, prompt.breakpoints)
    params = _params(body, vocab_size, defaults, prewarm=bool(asked.prewarm))
    return ResponseCall(
        options=Options(
            model=body.model,
            params=params,
            scope=Scope(salt=body.cache_salt or ""),
            priority=body.priority or 0,
            retain=(),
            stream=bool(body.stream),
            include_usage=True,
            ignored=_ignored(extra, prompt.tools),
        ),
        conversation=prompt.conversation,
        items=prompt.items,
        tool_use=prompt.tools.tools.use,
        cache=cache,
        settings=_settings(body, extra, prompt.tools),
        thinks=_thinks(body),
        truncates=body.truncation == "auto",
        prewarm=bool(asked.prewarm),
        comparison=asked.comparison_response_id,
        store=body.store is not False,
        sealed="reasoning.encrypted_content" in (body.include or ()),
        echo=_echo(body, extra, params, prompt.tools) | _cache_echo(cache, asked, usual_ttl),
    )


def parse_response_count(fields: Mapping[str, Any], *, recall: Recall) -> ResponseCount:
    """The body of `POST /v1/responses/input_tokens`. Raises RequestError that names the offending field."""
    body = read_body(_PromptBody, fields, LONGEST)
    refuse(body.model_extra or {}, _REFUSED)
    _format(body.text)
    return ResponseCount(body.model, _prompt(body, recall, "count").conversation, _thinks(body))


def _thinks(body: _PromptBody) -> bool:
    return (body.reasoning or {}).get("effort") != "none"


@dataclass(frozen=True, slots=True)
class _Prompt:
    conversation: Conversation
    items: tuple[Json, ...]
    breakpoints: tuple[Breakpoint, ...]
    tools: ResponseTools


def _prompt(body: _PromptBody, recall: Recall, stem: str) -> _Prompt:
    tools = parse_response_tools(body.tools, body.tool_choice, body.parallel_tool_calls)
    items: tuple[Json, ...] = ()
    if body.previous_response_id is not None:
        items = tuple(recall(body.previous_response_id))
    if body.input is not None or not items:
        items += parse_items(body.input, stem=stem, taken=[item["id"] for item in items])
    if len(items) > MAX_ITEMS:
        raise RequestError(
            f"'input' and what comes before it have {len(items)} items; at most {MAX_ITEMS} are taken",
            param="input",
        )
    turns = turns_of(body.instructions, items)
    if not turns.messages:
        raise RequestError("'input' is empty; it must hold at least one item", param="input")
    conversation = Conversation(
        turns.messages,
        tools=tools.tools.defined,
        template_kwargs=check_template_kwargs(body.chat_template_kwargs or {}),
    )
    return _Prompt(conversation, items, turns.breakpoints, tools)


def _params(
    body: _ResponseBody, vocab_size: int, defaults: SamplingDefaults | None, *, prewarm: bool
) -> SamplingParams:
    given = {
        "temperature": body.temperature,
        "top_p": body.top_p,
        "top_k": None if body.top_k is None else min(max(body.top_k, 0), vocab_size),
        "min_p": body.min_p,
        "seed": None if body.seed is None else body.seed % 2**64,
    }
    settings: dict[str, Any] = asdict(defaults or SamplingDefaults())
    settings.update((name, value) for name, value in given.items() if value is not None)
    scored = "message.output_text.logprobs" in (body.include or ()) or bool(body.top_logprobs)
    wanted = _format(body.text)
    return SamplingParams(
        max_tokens=0 if prewarm else body.max_output_tokens,
        logprobs=(body.top_logprobs or 0) if scored and not prewarm else None,
        constraint=None if prewarm else wanted,
        **settings,
    )


def _format(text: Mapping[str, Any] | None) -> Constraint | None:
    """`text.format`: as the chat's `response_format`, but flat."""
    form = (text or {}).get("format")
    if isinstance(form, dict) and form.get("type") == "json_schema":
        named = {name: value for name, value in form.items() if name != "type"}
        form = {"type": "json_schema", "json_schema": named}

    def own(path: str) -> str:
        return re.sub(r"response_format(\.json_schema)?", "text.format", path)

    try:
        wanted = parse_format({"response_format": form})
    except RequestError as error:
        param = None if error.param is None else own(error.param)
        raise RequestError(own(error.message), param=param, code=error.code, hint=error.hint) from None
    return None if wanted is None else replace(wanted, param=own(wanted.param))


def _ignored(extra: Mapping[str, Any], tools: ResponseTools) -> tuple[str, ...]:
    unknown = set(extra) - _HARMLESS - _REFUSED.keys()
    return (*sorted(unknown), *(f"tools.{kind}" for kind in tools.skipped))


def _settings(body: _ResponseBody, extra: Mapping[str, Any], tools: ResponseTools) -> Mapping[str, str]:
    """A default that is spelled out is the same as one that is left out."""
    text, reasoning = body.text or {}, body.reasoning or {}
    form = text.get("format")
    things = {
        "prompt_cache_key": [extra.get("prompt_cache_key"), body.cache_salt],
        "service_tier": _unless(extra.get("service_tier"), "auto", "default"),
        "tools": [tools.listed, body.parallel_tool_calls is not False],
        "text_format": None if form == {"type": "text"} else form,
        "reasoning_effort": _unless(reasoning.get("effort"), "medium"),
        "verbosity": _unless(text.get("verbosity"), "medium"),
    }
    return {name: json.dumps(value) for name, value in things.items()}


def _unless(value: object, *usual: str) -> object:
    return None if value in usual else value


def _echo(
    body: _ResponseBody,
    extra: Mapping[str, Any],
    params: SamplingParams,
    tools: ResponseTools,
) -> Json:
    for name in ("text", "reasoning", "tool_choice"):
        check_json(getattr(body, name), name, MAX_DEPTH)
    reasoning, text = body.reasoning or {}, body.text or {}
    return {
        "background": False,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "metadata": body.metadata or {},
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": body.previous_response_id,
        "prompt_cache_key": extra.get("prompt_cache_key"),
        "prompt_cache_retention": extra.get("prompt_cache_retention"),
        "reasoning": {"effort": reasoning.get("effort"), "summary": reasoning.get("summary")},
        "service_tier": "default",
        "store": body.store is not False,
        "temperature": params.temperature,
        "text": {**text, "format": text.get("format") or {"type": "text"}},
        "tool_choice": body.tool_choice if body.tool_choice is not None else "auto",
        "tools": list(tools.listed),
        "top_logprobs": body.top_logprobs or 0,
        "top_p": params.top_p,
        "truncation": body.truncation or "disabled",
    }


def _cache_echo(cache: PromptCache, asked: _CacheOptions, usual_ttl: str) -> Json:
    if cache.mode is None:
        return {}
    told = {"mode": cache.mode, "ttl": cache.ttl or usual_ttl}
    if asked.comparison_response_id is not None:
        told["comparison_response_id"] = asked.comparison_response_id
    return {"prompt_cache_options": told}
