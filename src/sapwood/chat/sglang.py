"""SGLang's `/generate` body → calls in the engine's own words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import Field

from sapwood.chat.body import Body, Integer, Number, Text, object_at, read_body, shown, text_at
from sapwood.chat.native_body import (
    MAX_STOP_TOKENS,
    MAX_STOPS,
    NativeCall,
    Penalty,
    Samplers,
    read_within,
    sampler_settings,
    unread,
)
from sapwood.chat.openai import MAX_SEQUENCES, Prompt, check_tokens
from sapwood.chat.openai_format import only_one, parse_grammar, parse_regex, parse_schema
from sapwood.chat.unsupported import Neutral
from sapwood.errors import RequestError
from sapwood.types import Constraint, SamplingDefaults, SamplingParams

MAX_NEW_TOKENS = 128
"""Where a client says nothing."""
MOST_TOP = 100
MAX_FORMS = 16
"""Different schemas and grammars in one call: each may take a second or more."""

_BODY_REFUSED: Mapping[str, Neutral] = MappingProxyType(
    {
        "audio_data": ([], ""),
        "custom_logit_processor": ("",),
        "image_data": ([], ""),
        "input_embeds": (),
        "lora_id": (),
        "lora_path": ("",),
        "return_hidden_states": (False,),
        "session_params": ({},),
        "token_ids_logprob": ([],),
        "video_data": ([], ""),
    }
)
_PARAMS_REFUSED: Mapping[str, Neutral] = MappingProxyType(
    {
        "custom_params": ({},),
        "no_stop_trim": (False,),
        "skip_special_tokens": (True,),
        "spaces_between_special_tokens": (True,),
        "stop_regex": ("", []),
        "structural_tag": ("",),
    }
)

_LONGEST: Mapping[str, int] = MappingProxyType(
    {"logit_bias": MAX_STOP_TOKENS, "stop": MAX_STOPS, "stop_token_ids": MAX_STOP_TOKENS}
)


class _Params(Samplers):
    max_new_tokens: Annotated[int, Field(ge=0, lt=2**63)] | None = MAX_NEW_TOKENS
    min_new_tokens: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    repetition_penalty: Penalty | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    n: Annotated[int, Field(ge=1, le=128)] | None = None
    sampling_seed: Integer | None = None
    logit_bias: dict[str, Annotated[Number, Field(ge=-1e9, le=1e9)]] | None = None
    json_schema: Any = None
    regex: Any = None
    ebnf: Any = None


class _Body(Body):
    text: Any = None
    input_ids: Any = None
    sampling_params: Any = None
    rid: Any = None
    extra_key: Any = None
    cache_salt: Any = None
    return_logprob: Any = None
    logprob_start_len: Any = None
    top_logprobs_num: Any = None
    return_text_in_logprobs: bool | None = None
    stream: bool | None = None
    priority: Integer | None = None


class _One(Body):
    """What each prompt of a batch may have of its own."""

    rid: Annotated[Text, Field(max_length=256)] | None = None
    extra_key: Annotated[Text, Field(max_length=256)] | None = None
    cache_salt: Annotated[Text, Field(max_length=256)] | None = None
    return_logprob: bool | None = None
    logprob_start_len: Annotated[int, Field(ge=-1, lt=2**31)] | None = None
    top_logprobs_num: Annotated[int, Field(ge=0, le=MOST_TOP)] | None = None


@dataclass(frozen=True, slots=True)
class GeneratePrompt:
    """One prompt and all that was said of it.

    Attributes:
        salt: what separates its prefixes from those of others.
        scored_from: index of the first prompt token whose logprob is wanted; None wants none.
        limited: whether the client itself bounded the answer.
    """

    prompt: Prompt
    params: SamplingParams
    rid: str | None
    salt: str
    scored_from: int | None
    limited: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateCall(NativeCall):
    """Attributes:
    batch: whether the answer is a list, even of one.
    """

    prompts: tuple[GeneratePrompt, ...]
    batch: bool
    priority: int
    with_text: bool


def parse_generate(fields: Mapping[str, Any], *, vocab_size: int) -> GenerateCall:
    """The body of `POST /generate`. Raises RequestError that names the offending field."""
    body = read_body(_Body, fields, {"text": MAX_SEQUENCES, "sampling_params": MAX_SEQUENCES})
    ignored = unread(body, _BODY_REFUSED)
    name = _prompt_field(body)
    values, batch = _values(getattr(body, name), name)
    drawn = [_params_fields(body.sampling_params, i, len(values), batch) for i in range(len(values))]
    parsed = [read_within(_Params, each, _LONGEST, path) for each, path in drawn]
    # The settings are most often one object for all prompts: each schema is read once.
    own = {path: params for params, (_, path) in zip(parsed, drawn, strict=True)}
    forms = {path: _form(params, path) for path, params in own.items()}
    different = {(form.kind, form.text) for form in forms.values() if form is not None}
    if len(different) > MAX_FORMS:
        raise RequestError(
            f"'sampling_params' have {len(different)} different schemas or grammars; at most {MAX_FORMS} are taken",
            param="sampling_params",
            hint="split the call",
        )
    samples = sum(params.n or 1 for params in parsed)
    if samples > MAX_SEQUENCES:
        raise RequestError(
            f"{name!r} holds {len(values)} prompts, {samples} samples in all; at most {MAX_SEQUENCES} are taken",
            param=name,
            hint="split the call",
        )
    # Each name is said once.
    unknown = dict.fromkeys(
        each
        for params, (_, path) in zip(parsed, drawn, strict=True)
        for each in unread(params, _PARAMS_REFUSED, f"{path}.")
    )
    return GenerateCall(
        prompts=tuple(
            _constrained(_prompt(body, name, i, value, params, batch, len(values), vocab_size), forms[path])
            for i, (value, params, (_, path)) in enumerate(zip(values, parsed, drawn, strict=True))
        ),
        batch=batch,
        stream=bool(body.stream),
        priority=body.priority or 0,
        with_text=bool(body.return_text_in_logprobs),
        ignored=(*ignored, *unknown),
    )


def _constrained(asked: GeneratePrompt, form: Constraint | None) -> GeneratePrompt:
    return asked if form is None else replace(asked, params=replace(asked.params, constraint=form))


def _prompt_field(body: _Body) -> str:
    given = [name for name in ("text", "input_ids") if getattr(body, name) is not None]
    if not given:
        raise RequestError(
            "'text' or 'input_ids' is required", param="text", code="missing_required_parameter"
        )
    if len(given) > 1:
        raise RequestError("'text' and 'input_ids' exclude each other", param="input_ids")
    return given[0]


def _values(value: Any, name: str) -> tuple[list[Any], bool]:
    """The prompts, and whether they are a batch."""
    if name == "text":
        batch = isinstance(value, list)
    else:
        batch = isinstance(value, list) and bool(value) and isinstance(value[0], list)
    values = value if batch else [value]
    if not values:
        raise RequestError(f"{name!r} is empty; it must hold at least one prompt", param=name)
    if len(values) > MAX_SEQUENCES:
        raise RequestError(
            f"{name!r} holds {len(values)} prompts; at most {MAX_SEQUENCES} are taken", param=name
        )
    return values, batch


def _params_fields(given: Any, i: int, count: int, batch: bool) -> tuple[Mapping[str, Any], str]:
    path = "sampling_params"
    if batch and isinstance(given, list):
        given, path = _entry(given, i, count, path), f"{path}[{i}]"
    return {} if given is None else object_at(given, path), path


def _form(params: _Params, path: str) -> Constraint | None:
    """What the answer must be; an empty text asks for nothing."""
    fields: Mapping[str, Callable[[object, str], Constraint | None]] = {
        "json_schema": parse_schema,
        "regex": parse_regex,
        "ebnf": parse_grammar,
    }
    given = ((name, parse, getattr(params, name)) for name, parse in fields.items())
    return only_one(parse(value, f"{path}.{name}") for name, parse, value in given if value not in (None, ""))


def _entry(values: list[Any], i: int, count: int, name: str) -> Any:
    if len(values) != count:
        raise RequestError(f"{name!r} has {len(values)} entries for {count} prompts", param=name)
    return values[i]


def _own(body: _Body, i: int, count: int, batch: bool) -> _One:
    """The fields that are one value for all prompts, or a list of one for each."""
    own = {name: getattr(body, name) for name in _One.model_fields}
    if batch:
        own = {n: _entry(v, i, count, n) if isinstance(v, list) else v for n, v in own.items()}
    return read_body(_One, own, {})


def _prompt(
    body: _Body,
    name: str,
    i: int,
    value: Any,
    params: _Params,
    batch: bool,
    count: int,
    vocab_size: int,
) -> GeneratePrompt:
    path = f"{name}[{i}]" if batch else name
    own = _own(body, i, count, batch)
    scored_from = own.logprob_start_len if own.return_logprob else None
    scored_from = None if scored_from is None or scored_from < 0 else scored_from
    top = (own.top_logprobs_num or 0) if own.return_logprob else None
    top = None if top is None else min(top, vocab_size)
    rid = own.rid if own.rid is None or count == 1 or isinstance(body.rid, list) else f"{own.rid}_{i}"
    return GeneratePrompt(
        prompt=_tokens_or_text(name, value, path, vocab_size),
        params=_sampling(params, vocab_size, top, scored_from),
        rid=rid,
        # No text holds NUL, so no two pairs make one salt; one of the two alone is the salt itself.
        salt="\0".join(part for part in (own.cache_salt, own.extra_key) if part),
        scored_from=scored_from,
        limited="max_new_tokens" in params.model_fields_set,
    )


def _tokens_or_text(name: str, value: Any, path: str, vocab_size: int) -> Prompt:
    if name == "text":
        return text_at(value, path)
    if not isinstance(value, list) or not value:
        raise RequestError(f"{path!r} is {shown(value)}; it must be a list of token ids", param=path)
    return check_tokens(value, path, vocab_size)


def _sampling(
    params: _Params, vocab_size: int, logprobs: int | None, scored_from: int | None
) -> SamplingParams:
    settings = sampler_settings(params, SamplingDefaults(), vocab_size, penalty=params.repetition_penalty)
    if params.sampling_seed is not None:
        settings["seed"] = params.sampling_seed % 2**64
    least = params.min_new_tokens or 0
    if params.max_new_tokens is not None and least > params.max_new_tokens:
        raise RequestError(
            f"'sampling_params.min_new_tokens' is {least}; it must be at most"
            f" max_new_tokens ({params.max_new_tokens})",
            param="sampling_params.min_new_tokens",
        )
    return SamplingParams(
        max_tokens=params.max_new_tokens,
        min_tokens=least,
        stop_token_ids=check_tokens(
            params.stop_token_ids or [], "sampling_params.stop_token_ids", vocab_size
        ),
        ignore_eos=bool(params.ignore_eos),
        n=params.n or 1,
        logit_bias=_bias(params.logit_bias or {}, vocab_size),
        logprobs=logprobs,
        prompt_logprobs=None if scored_from is None else logprobs,
        # The first of the list has no value, wherever it begins.
        prompt_logprobs_start=0 if scored_from is None else scored_from + 1,
        **settings,
    )


def _bias(given: Mapping[str, float], vocab_size: int) -> dict[int, float]:
    checked = {}
    for key, bias in given.items():
        if not (key.isascii() and key.isdigit() and len(key) < 12 and int(key) < vocab_size):
            path = "sampling_params.logit_bias"
            raise RequestError(
                f"{path!r} has the key {shown(key)}; it must be a token id from 0 to {vocab_size - 1}",
                param=path,
            )
        checked[int(key)] = bias
    return checked
