"""The words every room shares: what a request asks for and what the engine says about it. Standard library only."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral
from typing import Literal, NewType

from sapwood.errors import RequestError

PageId = NewType("PageId", int)
"""A numbered place in the pool; holds the KV of `page_size` tokens."""

SeqId = NewType("SeqId", int)
"""One running or waiting sequence: one sample of one request."""

FinishReason = Literal["stop", "length", "abort", "error"]


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose prefixes a request may share. With the model's fingerprint it makes a cache namespace."""

    tenant: str = ""
    adapter: str = ""
    salt: str = ""


@dataclass(frozen=True, slots=True)
class Constraint:
    """A grammar that the answer must be in.

    Attributes:
        kind: `json_schema`, `regex` (of the whole answer), or `grammar` (Lark, or GBNF).
        text: the schema as JSON, the expression, or the grammar.
        param: the field that asked for it, to name in errors.
    """

    kind: Literal["json_schema", "regex", "grammar"]
    text: str
    param: str = "constraint"


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are drawn and when to stop. Raises RequestError for a value out of range, or a count not whole.

    Attributes:
        max_tokens: most tokens to generate; None means up to the context limit; 0 only prefills.
        temperature: 0 is greedy.
        top_k: keep the k likeliest tokens; 0 keeps all.
        top_p: keep the smallest set whose probability reaches top_p.
        min_p: drop tokens below min_p × the likeliest token's probability.
        repetition_penalty: divides (positive) or multiplies (negative) logits of tokens seen in prompt or output.
        presence_penalty, frequency_penalty: subtracted per token seen in the output (once, per count).
        logit_bias: token id → value added to its logit, at most 1e9 in size.
        seed: key of the counter-based draws; None lets the engine pick one.
        n: samples of the same prompt.
        best_of: samples to draw, of which the n with the highest mean logprob per token are given; None draws n.
            If it is more than n, nothing is given before all are done.
        stop: strings that end the text; the text is cut before the match.
        stop_token_ids: token ids that end the sequence.
        ignore_eos: do not stop at the model's end token.
        min_tokens: end and stop tokens cannot be drawn before that many tokens.
        logprobs: None, or how many top entries to report per generated token (0 = the chosen one only).
        prompt_logprobs: the same for the prompt's own tokens. What is cached is reused as far as their scores are
            known, or not asked for.
        prompt_logprobs_start: index of the first prompt token to score; the first token of all has no score.
        constraint: what the answer must be, or None. The model may end it only where it is complete.
    """

    max_tokens: int | None = 16
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    n: int = 1
    best_of: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    prompt_logprobs_start: int = 0
    constraint: Constraint | None = None

    def __post_init__(self) -> None:
        _require_whole(self, _WHOLE, or_none=False)
        _require_whole(self, _WHOLE_OR_NONE, or_none=True)
        checks = (
            ("max_tokens", self.max_tokens is None or self.max_tokens >= 0, "at least 0"),
            ("temperature", 0.0 <= self.temperature <= 100.0, "between 0 and 100"),
            ("top_k", self.top_k >= 0, "at least 0 (0 keeps all tokens)"),
            ("top_p", 0.0 < self.top_p <= 1.0, "above 0 and at most 1"),
            ("min_p", 0.0 <= self.min_p <= 1.0, "between 0 and 1"),
            ("repetition_penalty", 0.01 <= self.repetition_penalty <= 100.0, "between 0.01 and 100"),
            ("presence_penalty", -2.0 <= self.presence_penalty <= 2.0, "between -2 and 2"),
            ("frequency_penalty", -2.0 <= self.frequency_penalty <= 2.0, "between -2 and 2"),
            ("logit_bias", _are_finite(self.logit_bias), "finite numbers of at most 1e9 in size"),
            ("n", 1 <= self.n <= 128, "between 1 and 128"),
            ("best_of", self.n <= self.drawn <= 128, f"at least n ({self.n}) and at most 128"),
            ("min_tokens", self.min_tokens >= 0, "at least 0"),
            ("prompt_logprobs_start", self.prompt_logprobs_start >= 0, "at least 0"),
            ("stop", all(self.stop), "made of non-empty strings"),
        )
        for name, valid, expected in checks:
            if not valid:
                raise RequestError(f"{name!r} is {getattr(self, name)!r}; it must be {expected}", param=name)

    @property
    def drawn(self) -> int:
        """Samples to draw."""
        return self.n if self.best_of is None else self.best_of

    @property
    def ranked(self) -> bool:
        """Whether more samples are drawn than given, so that their logprobs decide."""
        return self.drawn > self.n


_WHOLE = ("top_k", "n", "min_tokens", "prompt_logprobs_start")
_WHOLE_OR_NONE = ("max_tokens", "seed", "best_of", "logprobs", "prompt_logprobs")


def _require_whole(params: SamplingParams, names: tuple[str, ...], *, or_none: bool) -> None:
    """A float would be compared as a number and fail only where it counts tokens, in the middle of a step."""
    for name in names:
        value = getattr(params, name)
        if (or_none and value is None) or type(value) is int:
            continue
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise RequestError(f"{name!r} is {value!r}; it must be a whole number", param=name)


def _are_finite(biases: Mapping[int, float]) -> bool:
    return all(math.isfinite(bias) and abs(bias) <= 1e9 for bias in biases.values())


@dataclass(frozen=True, slots=True)
class SamplingDefaults:
    """What a model's makers recommend where a client says nothing (its generation_config.json)."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0


LONGEST_SECONDS = 1e9
"""Some thirty years: longer spans are mistakes."""


MOST_WISHES = 16
"""Of one request, for what to retain."""


def _is_span(seconds: object) -> bool:
    return isinstance(seconds, int | float) and type(seconds) is not bool and 0 < seconds <= LONGEST_SECONDS


@dataclass(frozen=True, slots=True)
class Retain:
    """A wish that the pages of a token range be evicted after others. Not a promise: only a pin keeps them.

    Attributes:
        priority: 1 .. 99; the highest stays longest.
        seconds: how long, from the end of the request on; None for good.
        start, end: the range; no end means the end of the prompt. Only whole pages within it count.
    """

    priority: int
    seconds: float | None = None
    start: int = 0
    end: int | None = None

    def __post_init__(self) -> None:
        whole = type(self.start) is int and self.start >= 0
        checks = (
            (
                "priority",
                type(self.priority) is int and 1 <= self.priority <= 99,
                "a whole number from 1 to 99",
            ),
            ("seconds", self.seconds is None or _is_span(self.seconds), "a number above 0, or None"),
            ("start", whole, "a token index, 0 or more"),
            (
                "end",
                self.end is None or (type(self.end) is int and whole and self.end > self.start),
                "a token index after start, or None",
            ),
        )
        for name, valid, expected in checks:
            if not valid:
                raise RequestError(f"{name!r} is {getattr(self, name)!r}; it must be {expected}", param=name)


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt to be answered `params.n` times."""

    id: str
    prompt: tuple[int, ...]
    params: SamplingParams
    scope: Scope = Scope()
    priority: int = 0
    """Lower is sooner. Anything but 0 needs the `priority` order."""
    reuse: bool = True
    """False reads nothing from the cache (its pages are still committed)."""
    retain: tuple[Retain, ...] = ()
    """What to keep longer than others once the request has ended."""


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token's natural-log probability under the raw (unpenalised, temperature 1) distribution.

    `top` lists (token, logprob) from likeliest down; an entry for the token itself has the very same float.
    """

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Usage:
    """What one request cost. `reused + sum(missed.values()) == prompt_tokens`, always."""

    prompt_tokens: int
    reused: int
    missed: Mapping[str, int]
    completion_tokens: int = 0
    """Over all samples drawn, given or not."""
    diverged_at: int | None = None
    """Index of the first prompt token that differs from what is known to follow, if any has diverged; with pages of
    several tokens, of the first in its page."""
    evicted_seconds_ago: float | None = None
    """How long ago the first of the evicted tokens was evicted, if there are any."""
    waited_for_leader_seconds: float = 0.0
    """From the first time that it was left out for a leader until it was admitted; what it then waited for pages,
    budget or a seat is part of it."""
    guessed: int = 0
    """Tokens of the answer that were guessed and checked, over all samples."""
    guessed_right: int = 0
    """Of these, those that became part of the answer: each of them saved a step."""
    saved_seconds: float | None = None
    """What computing the reused tokens would have cost, at the pace of late; None before that is known."""


@dataclass(frozen=True, slots=True)
class Started:
    """A request's prompt is being read for the first time; its reuse is now known."""

    request_id: str
    usage: Usage


@dataclass(frozen=True, slots=True)
class PromptScored:
    """The prompt's own logprobs, an entry per token: None for the first, which nothing comes before, and before
    `prompt_logprobs_start`."""

    request_id: str
    logprobs: tuple[TokenLogprob | None, ...]


@dataclass(frozen=True, slots=True)
class Delta:
    """What a step added to one sample: text may lag behind token_ids (half a character, a possible stop string)."""

    request_id: str
    sample: int
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...] = ()
    finish: FinishReason | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """All samples are done; the last event of a request. `error` is set when it failed."""

    request_id: str
    usage: Usage
    error: str | None = None
    refused: bool = False
    """With `error`: there was no room for it; another time there may be."""
    dead_end: bool = False
    """With `error`: its own constraint lets the answer go no further."""


Event = Started | PromptScored | Delta | Finished
