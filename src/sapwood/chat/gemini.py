"""Gemini-shaped bodies → calls in the engine's own words. Their turns: `gemini_turns.py`; cached objects'
own fields: `gemini_cached.py`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import Field

from sapwood.chat.body import Integer, Number, Text, read_body, shown
from sapwood.chat.gemini_fields import ProtoBody, fields_of
from sapwood.chat.gemini_schema import json_schema
from sapwood.chat.gemini_tools import parse_tools
from sapwood.chat.gemini_turns import parse_contents, parse_system
from sapwood.chat.messages import Conversation, Message
from sapwood.chat.openai import Stop
from sapwood.chat.openai_format import parse_schema
from sapwood.chat.openai_tools import Tools
from sapwood.chat.unsupported import Neutral, refuse
from sapwood.errors import RequestError
from sapwood.types import Constraint, SamplingDefaults, SamplingParams

MAX_STOPS = 64
MOST_LOGPROBS = 20
CACHED_NAME = "cachedContents/"
MODEL_NAME = "models/"

HARMLESS = frozenset(
    {
        "continuationToken",
        "labels",
        "model",
        "safetySettings",
        "serviceTier",
        "store",
        "generationConfig.enableEnhancedCivicAnswers",
        "generationConfig.mediaResolution",
    }
)
"""Known fields that do not change the answer of the models served here."""

_REFUSED: Mapping[str, Neutral] = MappingProxyType(
    {
        "audioTimestamp": (False,),
        "audioTranscriptionConfig": (),
        "imageConfig": (),
        "responseFormat": (),
        "responseModalities": (["TEXT"], []),
        "speechConfig": (),
    }
)
"""Known fields of `generationConfig` that would change the answer, and the values with which they do not."""

_ANY_JSON = '{"type": ["object", "array"]}'


@dataclass(frozen=True, slots=True)
class GeminiPrompt:
    """What is in front of an answer.

    Attributes:
        cached: the id of an object that comes first, with its own instruction and tools.
    """

    system: tuple[Message, ...]
    turns: tuple[Message, ...]
    tools: Tools
    cached: str | None = None

    @property
    def conversation(self) -> Conversation:
        """All of it, where there is no cached object. What ends with the model's words goes on from there."""
        return ending((*self.system, *self.turns), self.tools.defined)


@dataclass(frozen=True, slots=True)
class GenerateCall:
    """Attributes:
    logprobs: whether the answer tells its tokens' probabilities.
    thinks: whether the model is to think first; None leaves that to its template.
    thoughts: whether the answer tells what the model thought.
    ignored: names of fields that nothing here knows.
    """

    prompt: GeminiPrompt
    params: SamplingParams
    logprobs: bool
    thinks: bool | None
    thoughts: bool
    ignored: tuple[str, ...]


class ThinkingConfig(ProtoBody):
    include_thoughts: bool | None = None
    thinking_budget: Integer | None = None


class GenerationConfig(ProtoBody):
    temperature: Annotated[Number, Field(ge=0, le=2)] | None = None
    top_p: Annotated[Number, Field(gt=0, le=1)] | None = None
    top_k: Annotated[Number, Field(ge=0, lt=2**31)] | None = None
    candidate_count: Annotated[int, Field(ge=1, le=128)] | None = None
    max_output_tokens: Annotated[Integer, Field(ge=1)] | None = None
    stop_sequences: Annotated[list[Stop], Field(max_length=MAX_STOPS)] | None = None
    seed: Integer | None = None
    presence_penalty: Annotated[Number, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[Number, Field(ge=-2, le=2)] | None = None
    response_logprobs: bool | None = None
    logprobs: Annotated[int, Field(ge=0, le=MOST_LOGPROBS)] | None = None
    response_mime_type: Text | None = None
    response_schema: Any = None
    response_json_schema: Any = None
    thinking_config: ThinkingConfig | None = None


class PromptBody(ProtoBody):
    """What makes the prompt."""

    contents: Any = None
    system_instruction: Any = None
    tools: Any = None
    tool_config: Any = None
    cached_content: Text | None = None


class _GenerateBody(PromptBody):
    generation_config: GenerationConfig | None = None


class _CountBody(PromptBody):
    generate_content_request: dict[str, Any] | None = None


def parse_generate(
    fields: Mapping[str, Any], *, vocab_size: int, defaults: SamplingDefaults | None = None
) -> GenerateCall:
    """The body of `generateContent` and `streamGenerateContent`; `defaults` fill what it leaves out.

    Raises RequestError that names the offending field.
    """
    body = read_body(_GenerateBody, fields, {})
    config = body.generation_config or GenerationConfig()
    thinking = config.thinking_config or ThinkingConfig()
    budget = thinking.thinking_budget
    return GenerateCall(
        prompt=_prompt(body),
        params=_params(config, vocab_size, defaults),
        logprobs=bool(config.response_logprobs),
        thinks=None if budget is None else budget != 0,
        thoughts=bool(thinking.include_thoughts),
        ignored=_ignored(body, config),
    )


def parse_count(
    fields: Mapping[str, Any], *, vocab_size: int, defaults: SamplingDefaults | None = None
) -> GenerateCall:
    """The body of `countTokens`: contents, or a whole request of `generateContent`, which is what is counted.

    Raises RequestError that names the offending field.
    """
    body = read_body(_CountBody, fields, {})
    request = body.generate_content_request
    if request is not None and body.contents is not None:
        raise RequestError(
            "'contents' and 'generateContentRequest' exclude each other", param="generateContentRequest"
        )
    return parse_generate(fields if request is None else request, vocab_size=vocab_size, defaults=defaults)


def ending(messages: tuple[Message, ...], tools: tuple[Mapping[str, Any], ...]) -> Conversation:
    """A conversation to be answered. Raises RequestError where it waits for a function's result instead."""
    goes_on = messages[-1].role == "assistant"
    if goes_on and messages[-1].tool_calls:
        raise RequestError(
            "the last of 'contents' calls a function; its functionResponse must follow", param="contents"
        )
    return Conversation(
        messages, add_generation_prompt=not goes_on, continue_final_message=goes_on, tools=tools
    )


def model_name(value: str) -> str:
    """A model's id, with or without `models/` in front."""
    return value.removeprefix(MODEL_NAME)


def _prompt(body: PromptBody) -> GeminiPrompt:
    cached = None if body.cached_content is None else body.cached_content.removeprefix(CACHED_NAME)
    if cached is not None:
        for name in ("system_instruction", "tools", "tool_config"):
            if getattr(body, name) not in (None, []):
                raise _belongs_to_the_object(name)
    turns = parse_contents(body.contents)
    if not turns:
        raise RequestError(
            "'contents' is empty; it must hold at least one turn",
            param="contents",
            code="missing_required_parameter",
        )
    return GeminiPrompt(
        parse_system(body.system_instruction), turns, parse_tools(body.tools, body.tool_config), cached
    )


def _belongs_to_the_object(name: str) -> RequestError:
    words = {"system_instruction": "systemInstruction", "tools": "tools", "tool_config": "toolConfig"}
    return RequestError(
        f"'{words[name]}' cannot be given together with 'cachedContent'",
        param=words[name],
        hint="put system_instruction, tools and tool_config into the cached content when it is created",
    )


def _params(config: GenerationConfig, vocab_size: int, defaults: SamplingDefaults | None) -> SamplingParams:
    if config.logprobs is not None and not config.response_logprobs:
        raise RequestError(
            "'generationConfig.logprobs' needs 'responseLogprobs' to be true",
            param="generationConfig.logprobs",
        )
    given = {
        "temperature": config.temperature,
        "top_p": config.top_p,
        "top_k": None if config.top_k is None else min(int(config.top_k), vocab_size),
        "presence_penalty": config.presence_penalty,
        "frequency_penalty": config.frequency_penalty,
        "seed": None if config.seed is None else config.seed % 2**64,
        "n": config.candidate_count,
        "stop": None if config.stop_sequences is None else tuple(config.stop_sequences),
    }
    settings: dict[str, Any] = asdict(defaults or SamplingDefaults())
    settings.update((name, value) for name, value in given.items() if value is not None)
    return SamplingParams(
        max_tokens=config.max_output_tokens,
        logprobs=(config.logprobs or 0) if config.response_logprobs else None,
        constraint=_constraint(config),
        **settings,
    )


def _constraint(config: GenerationConfig) -> Constraint | None:
    path = "generationConfig.responseMimeType"
    own, plain = config.response_schema, config.response_json_schema
    if own is not None and plain is not None:
        raise RequestError(
            "'generationConfig.responseSchema' and 'generationConfig.responseJsonSchema' exclude each other",
            param="generationConfig.responseJsonSchema",
        )
    asked = own is not None or plain is not None
    match config.response_mime_type:
        case None | "" | "text/plain":
            if asked:
                raise RequestError(
                    f"{path!r} is {shown(config.response_mime_type)}; with a schema it must be"
                    " 'application/json' or 'text/x.enum'",
                    param=path,
                )
            return None
        case "application/json":
            if own is not None:
                inner = "generationConfig.responseSchema"
                return parse_schema(json_schema(own, inner), inner)
            return parse_schema(plain, "generationConfig.responseJsonSchema") if asked else _any_json(path)
        case "text/x.enum":
            return _choice(own if plain is None else plain)
    raise RequestError(
        f"{path!r} is {shown(config.response_mime_type)}; it must be 'text/plain', 'application/json' or"
        " 'text/x.enum'",
        param=path,
    )


def _any_json(path: str) -> Constraint:
    return parse_schema(_ANY_JSON, path)


def _choice(schema: object) -> Constraint:
    """One of the schema's values, without quotes."""
    path = "generationConfig.responseSchema"
    values = fields_of(schema, path).get("enum")
    texts = values if isinstance(values, list) else []
    if not texts or not all(isinstance(each, str) and each for each in texts):
        raise RequestError(f"'{path}.enum' must be a list of strings", param=f"{path}.enum")
    json_schema(schema, path)
    return Constraint("grammar", "start: " + " | ".join(map(json.dumps, texts)), path)


def _ignored(body: _GenerateBody, config: GenerationConfig) -> tuple[str, ...]:
    thinking = config.thinking_config or ThinkingConfig()
    inner = fields_of(dict(config.model_extra or {}), "generationConfig")
    refuse(inner, _REFUSED, "generationConfig.")
    unknown = {
        "": body.model_extra,
        "generationConfig.": {name: inner[name] for name in inner.keys() - _REFUSED.keys()},
        "generationConfig.thinkingConfig.": thinking.model_extra,
    }
    names = {path + name for path, extra in unknown.items() for name in fields_of(dict(extra or {}), path)}
    return tuple(sorted(names - HARMLESS))
