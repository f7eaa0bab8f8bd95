"""OpenAI-shaped bodies of `/v1/completions` and `/v1/chat/completions` → calls in the engine's own words.

What happens to fields that are not parsed here is told in `unsupported.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from sapwood.chat.body import Body, Integer, Number, Text, at, clean_text, one_or_list, read_body, shown
from sapwood.chat.messages import Conversation
from sapwood.chat.openai_format import parse_format
from sapwood.chat.openai_messages import MessageBody, parse_message
from sapwood.chat.openai_tools import MAX_TOOLS, Tools, parse_tools
from sapwood.chat.retention import FIELD, parse_retention
from sapwood.chat.template_kwargs import check_template_kwargs
from sapwood.chat.token_details import TokenDetails
from sapwood.chat.tools import ToolUse
from sapwood.chat.unsupported import (
    CHAT_REFUSED,
    COMPLETION_REFUSED,
    HARMLESS,
    Neutral,
    refuse,
    refuse_misspelt,
    unknown,
)
from sapwood.errors import RequestError
from sapwood.types import MOST_WISHES, Retain, SamplingDefaults, SamplingParams, Scope

Prompt = str | tuple[int, ...]
"""A text still to be encoded, or token ids taken as they are."""

_DECIMAL = re.compile("0|[1-9][0-9]{0,10}")

MAX_STOPS = 4
MAX_SEQUENCES = 256
"""Most samples, over all prompts, that one call may ask for."""
MAX_MESSAGES = 16_384
LONGEST: Mapping[str, int] = MappingProxyType(
    {
        FIELD: MOST_WISHES,
        "chat_template_kwargs": 64,
        "logit_bias": 4096,
        "messages": MAX_MESSAGES,
        "stop": MAX_STOPS,
        "stop_token_ids": 4096,
        "stream_options": 16,
        "tools": MAX_TOOLS,
    }
)
"""Most entries of the lists and objects in a body."""


@dataclass(frozen=True, slots=True)
class Options:
    """What both routes share."""

    model: str | None
    params: SamplingParams
    scope: Scope
    priority: int
    retain: tuple[Retain, ...]
    stream: bool
    include_usage: bool
    ignored: tuple[str, ...]
    """Names of unknown fields in the body."""
    details: TokenDetails = field(default_factory=TokenDetails)


@dataclass(frozen=True, slots=True)
class CompletionCall:
    options: Options
    prompts: tuple[Prompt, ...]
    echo: bool
    add_special_tokens: bool


@dataclass(frozen=True, slots=True)
class ChatCall:
    options: Options
    conversation: Conversation
    tool_use: ToolUse | None = None
    """How the answer may call the conversation's tools; None for not at all."""
    thinks: bool = True
    """False where no effort is to be made on thinking."""


class StreamOptions(Body):
    include_usage: bool | None = None


Stop = Annotated[Text, Field(min_length=1)]
Stops = Annotated[list[Stop], BeforeValidator(one_or_list)]


Scored = Annotated[
    Annotated[int, Field(ge=0, le=20)] | None,
    BeforeValidator(lambda value: None if value is False else value),
]


class _Fields(Body):
    model: Text | None = None
    n: Integer | None = None
    max_tokens: Integer | None = None
    temperature: Annotated[Number, Field(ge=0, le=2)] | None = None
    top_p: Number | None = None
    top_k: Annotated[int, Field(ge=-1, lt=2**31)] | None = None
    min_p: Number | None = None
    presence_penalty: Number | None = None
    frequency_penalty: Number | None = None
    repetition_penalty: Number | None = None
    logit_bias: dict[str, Annotated[Number, Field(ge=-100, le=100)]] | None = None
    seed: Integer | None = None
    stop: Stops | None = None
    stop_token_ids: Annotated[list[int], Field(fail_fast=True)] | None = None
    ignore_eos: bool | None = None
    min_tokens: Integer | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    cache_salt: Annotated[Text, Field(min_length=1, max_length=256)] | None = None
    priority: Integer | None = None
    cache_retention: Any = None
    prompt_logprobs: Scored = None
    return_token_ids: bool | None = None
    response_format: Any = None
    structured_outputs: Any = None
    guided_json: Any = None
    guided_regex: Any = None
    guided_choice: Any = None
    guided_grammar: Any = None


class CompletionBody(_Fields):
    prompt: Any
    best_of: Integer | None = None
    echo: bool | None = None
    logprobs: Annotated[int, Field(ge=0, le=5)] | None = None
    add_special_tokens: bool | None = None


class ChatBody(_Fields):
    messages: Annotated[list[MessageBody], Field(min_length=1, fail_fast=True)]
    max_completion_tokens: Integer | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: Text | None = None


def parse_completion(
    fields: Mapping[str, Any], *, vocab_size: int, defaults: SamplingDefaults | None = None
) -> CompletionCall:
    """The body of `POST /v1/completions`; `defaults` fill what it leaves out.

    Raises RequestError that names the offending field.
    """
    body = read_body(CompletionBody, fields, LONGEST)
    ignored = _unparsed(body, COMPLETION_REFUSED)
    max_tokens = 16 if body.max_tokens is None else body.max_tokens
    echo = bool(body.echo)
    params = _params(
        body,
        vocab_size,
        max_tokens=max_tokens,
        logprobs=body.logprobs,
        prompt_logprobs=_most(body.logprobs if echo else None, body.prompt_logprobs),
        best_of=body.best_of,
        defaults=defaults,
    )
    if body.stream and params.ranked:
        raise RequestError(
            f"'best_of' is {params.drawn} and 'stream' is true; the best samples are known only when all are done",
            param="best_of",
            hint=f"set best_of to n ({params.n}), or stream to false",
        )
    return CompletionCall(
        options=_options(body, params, ignored),
        prompts=_prompts(body.prompt, params, vocab_size),
        echo=echo,
        add_special_tokens=body.add_special_tokens is not False,
    )


def parse_chat(
    fields: Mapping[str, Any], *, vocab_size: int, defaults: SamplingDefaults | None = None
) -> ChatCall:
    """The body of `POST /v1/chat/completions`; `defaults` fill what it leaves out.

    Raises RequestError that names the offending field.
    """
    body = read_body(ChatBody, fields, LONGEST)
    ignored = _unparsed(body, CHAT_REFUSED)
    if body.top_logprobs is not None and not body.logprobs:
        raise RequestError("'top_logprobs' needs 'logprobs' to be true", param="top_logprobs")
    limit = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
    logprobs = (body.top_logprobs or 0) if body.logprobs else None
    params = _params(
        body,
        vocab_size,
        max_tokens=limit,
        logprobs=logprobs,
        prompt_logprobs=body.prompt_logprobs,
        defaults=defaults,
    )
    tools = _tools(body)
    return ChatCall(
        _options(body, params, ignored),
        _conversation(body, tools),
        tools.use,
        thinks=body.reasoning_effort != "none",
    )


def parse_conversation(fields: Mapping[str, Any]) -> Conversation:
    """Only the conversation of a chat body. Raises RequestError that names the offending field."""
    body = read_body(ChatBody, fields, LONGEST)
    _unparsed(body, CHAT_REFUSED)
    return _conversation(body, _tools(body))


def parse_prompt(value: object, path: str, vocab_size: int) -> Prompt:
    """One prompt: a text, or a list of token ids. Raises RequestError."""
    if isinstance(value, str):
        return at(path, clean_text, value)
    if not isinstance(value, list):
        raise RequestError(
            f"{path!r} is {shown(value)}; it must be a string or a list of token ids", param=path
        )
    if not value:
        raise RequestError(f"{path!r} is empty; it must hold at least one token", param=path)
    return check_tokens(value, path, vocab_size)


def check_tokens(values: list[Any], path: str, vocab_size: int) -> tuple[int, ...]:
    """`values` if all are token ids of the vocabulary. Raises RequestError naming the first that is not."""
    if values and {*map(type, values)} == {int} and 0 <= min(values) <= max(values) < vocab_size:
        return tuple(values)  # Thousands are looked at by no loop of ours.
    for i, value in enumerate(values):
        if type(value) is not int or not 0 <= value < vocab_size:
            raise RequestError(
                f"'{path}[{i}]' is {shown(value)}; it must be a token id from 0 to {vocab_size - 1}",
                param=f"{path}[{i}]",
            )
    return tuple(values)


def _prompts(value: object, params: SamplingParams, vocab_size: int) -> tuple[Prompt, ...]:
    if not isinstance(value, list) or (value and type(value[0]) in (int, float, bool)):
        return (parse_prompt(value, "prompt", vocab_size),)
    if not value:
        raise RequestError("'prompt' is empty; it must hold at least one prompt", param="prompt")
    samples = len(value) * params.drawn
    if samples > MAX_SEQUENCES:
        name = "best_of" if params.ranked else "n"
        raise RequestError(
            f"'prompt' holds {len(value)} prompts, each to be answered {params.drawn} times ({name}): "
            f"{samples} samples;"
            f" one call may ask for at most {MAX_SEQUENCES}",
            param="prompt",
            hint="split the call",
        )
    return tuple(parse_prompt(item, f"prompt[{i}]", vocab_size) for i, item in enumerate(value))


def _params(
    body: _Fields,
    vocab_size: int,
    *,
    max_tokens: int | None,
    logprobs: int | None,
    prompt_logprobs: int | None,
    best_of: int | None = None,
    defaults: SamplingDefaults | None,
) -> SamplingParams:
    given = {
        "temperature": body.temperature,
        "top_k": None if body.top_k is None else min(max(body.top_k, 0), vocab_size),
        "top_p": body.top_p,
        "min_p": body.min_p,
        "repetition_penalty": body.repetition_penalty,
        "presence_penalty": body.presence_penalty,
        "frequency_penalty": body.frequency_penalty,
        "seed": None if body.seed is None else body.seed % 2**64,
        "n": body.n,
        "stop": None if body.stop is None else tuple(body.stop),
        "stop_token_ids": None
        if body.stop_token_ids is None
        else check_tokens(body.stop_token_ids, "stop_token_ids", vocab_size),
        "logit_bias": None if body.logit_bias is None else _logit_bias(body.logit_bias, vocab_size),
        "ignore_eos": body.ignore_eos,
        "min_tokens": body.min_tokens,
    }
    if max_tokens is not None and (body.min_tokens or 0) > max_tokens >= 0:
        raise RequestError(
            f"'min_tokens' is {body.min_tokens}; it must be at most max_tokens ({max_tokens})",
            param="min_tokens",
        )
    settings: dict[str, Any] = asdict(defaults or SamplingDefaults())
    settings.update((name, value) for name, value in given.items() if value is not None)
    return SamplingParams(
        max_tokens=max_tokens,
        logprobs=logprobs,
        prompt_logprobs=prompt_logprobs,
        best_of=best_of,
        constraint=parse_format(body.__dict__),
        **settings,
    )


def _logit_bias(biases: Mapping[str, float], vocab_size: int) -> dict[int, float]:
    checked: dict[int, float] = {}
    for key, bias in biases.items():
        # "017" would be a second name of 17.
        if not _DECIMAL.fullmatch(key) or int(key) >= vocab_size:
            raise RequestError(
                f"'logit_bias' has the key {shown(key)}; it must be a token id from 0 to {vocab_size - 1}",
                param="logit_bias",
            )
        checked[int(key)] = bias
    return checked


def _unparsed(body: _Fields, refused: Mapping[str, Neutral]) -> tuple[str, ...]:
    """Names of fields that nothing here knows. Raises RequestError for those that must not be ignored."""
    extra = dict(body.model_extra or {})
    if body.stream_options is not None:
        extra.update((f"stream_options.{k}", v) for k, v in (body.stream_options.model_extra or {}).items())
    refuse(extra, refused)
    names = unknown(extra, refused)
    nested = [f"stream_options.{name}" for name in StreamOptions.model_fields]
    refuse_misspelt(names, [*type(body).model_fields, *nested, *refused, *HARMLESS])
    return tuple(names)


def _options(body: _Fields, params: SamplingParams, ignored: tuple[str, ...]) -> Options:
    stream = bool(body.stream)
    if body.stream_options is not None and not stream:
        raise RequestError("'stream_options' needs 'stream' to be true", param="stream_options")
    if body.prompt_logprobs is not None and stream:
        raise RequestError("'prompt_logprobs' needs 'stream' to be false", param="prompt_logprobs")
    return Options(
        model=body.model,
        params=params,
        scope=Scope(salt=body.cache_salt or ""),
        priority=body.priority or 0,
        retain=parse_retention(body.cache_retention),
        stream=stream,
        include_usage=bool(body.stream_options and body.stream_options.include_usage),
        ignored=ignored,
        details=TokenDetails(bool(body.return_token_ids), body.prompt_logprobs),
    )


def _most(one: int | None, other: int | None) -> int | None:
    return max((each for each in (one, other) if each is not None), default=None)


def _tools(body: ChatBody) -> Tools:
    return parse_tools(body.tools, body.tool_choice, body.parallel_tool_calls)


def _conversation(body: ChatBody, tools: Tools) -> Conversation:
    messages = tuple(parse_message(message, f"messages[{i}]") for i, message in enumerate(body.messages))
    goes_on = bool(body.continue_final_message)
    if goes_on and messages[-1].role != "assistant":
        raise RequestError(
            "'continue_final_message' needs the last message to be the assistant's",
            param="continue_final_message",
        )
    if goes_on and body.add_generation_prompt:
        raise RequestError(
            "'add_generation_prompt' and 'continue_final_message' exclude each other",
            param="continue_final_message",
        )
    return Conversation(
        messages=messages,
        add_generation_prompt=body.add_generation_prompt is not False and not goes_on,
        continue_final_message=goes_on,
        tools=tools.defined,
        template_kwargs=check_template_kwargs(body.chat_template_kwargs or {}),
    )
