"""llama.cpp's `/completion` body → a call in the engine's own words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import Field

from sapwood.chat.body import Integer, Text, at, clean_text, read_body, shown
from sapwood.chat.native_body import (
    MAX_STOPS,
    SAMPLERS_REFUSED,
    ModelCall,
    Penalty,
    Salt,
    Samplers,
    sampler_settings,
    unread,
)
from sapwood.chat.openai import MAX_SEQUENCES, check_tokens
from sapwood.chat.openai_format import only_one, parse_grammar, parse_schema
from sapwood.chat.unsupported import Neutral
from sapwood.errors import RequestError
from sapwood.types import Constraint, SamplingDefaults, SamplingParams

Piece = str | tuple[int, ...]
"""A text still to be encoded, or token ids taken as they are."""

MAX_PIECES = 4096
MAX_BIASES = 4096
MAX_RESPONSE_FIELDS = 64
MOST_PROBS = 100
NEVER = -1e9
"""The bias of a token that is never to be drawn."""

_REFUSED: Mapping[str, Neutral] = MappingProxyType(
    {
        **SAMPLERS_REFUSED,
        "lora": ([],),
        "multimodal_data": ([],),
        "n": (1,),
        "n_cmpl": (1,),
        "n_indent": (0,),
        "post_sampling_probs": (False,),
        "samplers": (),
        "t_max_predict_ms": (0, -1),
    }
)
_LONGEST: Mapping[str, int] = MappingProxyType(
    {"logit_bias": MAX_BIASES, "response_fields": MAX_RESPONSE_FIELDS, "stop": MAX_STOPS}
)


class _Body(Samplers):
    prompt: Any = None
    model: Text | None = None
    n_predict: Annotated[int, Field(ge=-2, lt=2**63)] | None = None
    max_tokens: Annotated[int, Field(ge=-1, lt=2**63)] | None = None
    repeat_penalty: Penalty | None = None
    logit_bias: list[Any] | None = None
    ignore_eos: bool | None = None
    n_probs: Annotated[int, Field(ge=0, le=MOST_PROBS)] | None = None
    cache_prompt: bool | None = None
    return_tokens: bool | None = None
    timings_per_token: bool | None = None
    return_progress: bool | None = None
    response_fields: list[Text] | None = None
    json_schema: Any = None
    grammar: Any = None
    stream: bool | None = None
    cache_salt: Salt | None = None
    priority: Integer | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaCall(ModelCall):
    """Attributes:
    prompts: of each, its pieces in order; texts and token ids can follow one another.
    reuse: whether the cache may be read.
    tokens: whether a whole answer lists its token ids; a stream always does.
    timed: whether each frame says how long it took.
    progress: whether a stream says how much of the prompt has been read.
    only: the fields that an answer has, as paths within the whole one; none for all of them.
    """

    prompts: tuple[tuple[Piece, ...], ...]
    reuse: bool
    priority: int
    tokens: bool
    timed: bool
    progress: bool
    only: tuple[str, ...]


def parse_llama_completion(
    fields: Mapping[str, Any], *, vocab_size: int, defaults: SamplingDefaults
) -> LlamaCall:
    """The body of `POST /completion`. Raises RequestError that names the offending field."""
    body = read_body(_Body, fields, _LONGEST)
    ignored = unread(body, _REFUSED)
    limit = body.max_tokens if body.n_predict is None else body.n_predict
    params = SamplingParams(
        max_tokens=None if limit is None or limit < 0 else limit,
        ignore_eos=bool(body.ignore_eos),
        logit_bias=_biases(body.logit_bias or [], vocab_size),
        logprobs=min(body.n_probs, vocab_size) if body.n_probs else None,
        constraint=_form(body),
        **sampler_settings(body, defaults, vocab_size, penalty=body.repeat_penalty),
    )
    return LlamaCall(
        prompts=_prompts(body.prompt, vocab_size),
        model=body.model,
        params=params,
        reuse=body.cache_prompt is not False,
        salt=body.cache_salt or "",
        priority=body.priority or 0,
        stream=bool(body.stream),
        tokens=bool(body.return_tokens),
        timed=bool(body.timings_per_token),
        progress=bool(body.return_progress),
        only=tuple(body.response_fields or ()),
        ignored=ignored,
    )


def _form(body: _Body) -> Constraint | None:
    """What the answer must be: of a JSON schema, of which an empty one is any JSON, or a grammar in GBNF."""
    schema = None if body.json_schema is None else parse_schema(body.json_schema, "json_schema")
    return only_one([schema, None if body.grammar is None else parse_grammar(body.grammar, "grammar")])


def _prompts(value: object, vocab_size: int) -> tuple[tuple[Piece, ...], ...]:
    """One prompt or several: a list of texts alone, or of which an entry is a list, holds several."""
    if value is None:
        raise RequestError("'prompt' is required", param="prompt", code="missing_required_parameter")
    several = isinstance(value, list) and (
        any(isinstance(each, list) for each in value) or all(isinstance(each, str) for each in value)
    )
    if not several:
        return (_prompt(value, "prompt", vocab_size),)
    assert isinstance(value, list)
    if not 0 < len(value) <= MAX_SEQUENCES:
        raise RequestError(
            f"'prompt' holds {len(value)} prompts; from 1 to {MAX_SEQUENCES} are taken", param="prompt"
        )
    return tuple(_prompt(each, f"prompt[{i}]", vocab_size) for i, each in enumerate(value))


def _prompt(value: object, path: str, vocab_size: int) -> tuple[Piece, ...]:
    if isinstance(value, str):
        return (at(path, clean_text, value),)
    if not isinstance(value, list) or not value:
        raise RequestError(
            f"{path!r} is {shown(value)}; it must be a string, or a list of token ids and strings", param=path
        )
    texts = [i for i, each in enumerate(value) if isinstance(each, str)]
    if len(texts) > MAX_PIECES:
        raise RequestError(f"{path!r} holds {len(texts)} texts; at most {MAX_PIECES} are taken", param=path)
    pieces: list[Piece] = []
    start = 0
    for i in texts:
        pieces += [_tokens(value, start, i, path, vocab_size), at(f"{path}[{i}]", clean_text, value[i])]
        start = i + 1
    pieces.append(_tokens(value, start, len(value), path, vocab_size))
    return tuple(piece for piece in pieces if piece) or ("",)


def _tokens(value: list[Any], start: int, end: int, path: str, vocab_size: int) -> tuple[int, ...]:
    try:
        return check_tokens(value[start:end], path, vocab_size)
    except RequestError:
        wrong = next(
            i for i in range(start, end) if type(value[i]) is not int or not 0 <= value[i] < vocab_size
        )
        raise RequestError(
            f"'{path}[{wrong}]' is {shown(value[wrong])};"
            f" it must be a string or a token id from 0 to {vocab_size - 1}",
            param=f"{path}[{wrong}]",
        ) from None


def _biases(given: Sequence[Any], vocab_size: int) -> dict[int, float]:
    checked: dict[int, float] = {}
    for i, pair in enumerate(given):
        path = f"logit_bias[{i}]"
        if not isinstance(pair, list) or len(pair) != 2 or not _is_bias(pair[1]):
            raise RequestError(
                f"{path!r} is {shown(pair)}; it must be a token id and a number, or a token id and false",
                param=path,
            )
        (token,) = check_tokens(pair[:1], path, vocab_size)
        checked[token] = NEVER if pair[1] is False else float(pair[1])
    return checked


def _is_bias(value: object) -> bool:
    if isinstance(value, bool):
        return not value
    return isinstance(value, int | float) and abs(value) <= -NEVER
