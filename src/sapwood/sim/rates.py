"""What a hit rate is. Rates of the same run differ by several points with the definition, so each is told with its own.

They differ in what is weighed (tokens, blocks, requests), in whether the unfinished last block of a prompt counts, in
whether replies are cached, and in whether the last token of a prompt, which an engine computes in any case, may be
a hit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sapwood.sim.segments import Segments
from sapwood.sim.trace import Trace

Weighting = Literal["token", "block", "request"]
Counts: TypeAlias = NDArray[np.int64]

_ALL: Mapping[str, str] = MappingProxyType(
    {
        "token": "reused tokens / all prompt tokens",
        "block": "reused blocks / all blocks of prompts, unfinished ones too",
        "request": "mean over requests of each one's reused tokens / all its prompt tokens",
    }
)
_WHOLE: Mapping[str, str] = MappingProxyType(
    {
        "token": "reused tokens / prompt tokens in whole blocks",
        "block": "reused blocks / whole blocks of prompts",
        "request": "mean over requests of each one's reused tokens / its prompt tokens in whole blocks",
    }
)
_UNASKED = (
    "unfinished last blocks, nearly always misses, are not asked for either, which makes it higher as a rule"
)


@dataclass(frozen=True, slots=True)
class Definition:
    """One way to count.

    Attributes:
        tail: whether what a prompt has beyond its last whole block counts, as reused and as prompt.
        replies: whether replies are cached, as far as a trace names them, or prompts alone.
        last: whether the last token of a prompt may be reused; an engine computes it in any case.
    """

    weighting: Weighting = "token"
    tail: bool = True
    replies: bool = True
    last: bool = False

    @property
    def name(self) -> str:
        """Short, for a column of a table: `token`, `block, whole blocks, prompts only`."""
        parts: list[str] = [self.weighting]
        parts += [] if self.tail else ["whole blocks"]
        parts += [] if self.replies else ["prompts only"]
        parts += ["last token too"] if self.last else []
        return ", ".join(parts)

    @property
    def text(self) -> str:
        """One line, to print beside the number."""
        weighed = _ALL[self.weighting] if self.tail else f"{_WHOLE[self.weighting]} ({_UNASKED})"
        replies = "replies are cached" if self.replies else "replies are not cached"
        last = "may be reused" if self.last else "is always computed"
        return f"{weighed}; {replies}; a prompt's last token {last}"

    def reused_tokens(self, trace: Trace, found: Counts) -> Counts:
        """int64 [n], of each prompt. `found` int64 [n]: of each request the leading names that were there as it came.

        Names beyond the prompt's are not counted. Where the replay stored replies or did not, this must say so.
        """
        unit = trace.unit_tokens
        limit: Counts = np.minimum(_limit(self, trace), trace.known_tokens)
        if self.tail:
            return np.minimum(_found(trace, found) * unit, limit)
        return np.minimum(_found(trace, found), limit // unit) * unit

    def prompt_tokens(self, trace: Trace) -> Counts:
        """int64 [n], of each prompt those of which some may count as reused."""
        unit = trace.unit_tokens
        return trace.prompt_tokens if self.tail else trace.prompt_tokens // unit * unit


TOKEN = Definition()
"""What is meant where nothing else is said: what an engine with pages of one token reports."""

DEFINITIONS: tuple[Definition, ...] = tuple(
    Definition(weighting, tail, replies, last)
    for last in (False, True)
    for replies in (True, False)
    for tail in (True, False)
    for weighting in ("token", "block", "request")
)
"""All of them, the usual ones first."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A hit rate and what it is. `hit` and `of` are tokens, blocks, or the sum of requests' rates and their number."""

    definition: Definition
    hit: float
    of: float

    @property
    def value(self) -> float:
        """0 to 1; 0 where nothing was asked for."""
        return self.hit / self.of if self.of else 0.0


def rate(definition: Definition, trace: Trace, found: Counts) -> Rate:
    """Of a replay. `found` as in `Definition.reused_tokens`."""
    if definition.weighting == "block":
        return Rate(
            definition,
            float(_hit_blocks(definition, trace, found).sum()),
            float(_of_blocks(definition, trace).sum()),
        )
    hits, of = definition.reused_tokens(trace, found), definition.prompt_tokens(trace)
    if definition.weighting == "token":
        return Rate(definition, float(hits.sum()), float(of.sum()))
    asked = of > 0
    return Rate(definition, float((hits[asked] / of[asked]).sum()), float(asked.sum()))


def unbounded_rates(trace: Trace, definitions: Sequence[Definition] = DEFINITIONS) -> tuple[Rate, ...]:
    """Of a memory that never forgets, in the order given."""
    asked = {definition.replies for definition in definitions}
    found = {replies: found_unbounded(trace, replies=replies) for replies in asked}
    return tuple(rate(definition, trace, found[definition.replies]) for definition in definitions)


def prompt_names(trace: Trace) -> Counts:
    """int64 [n]: how many of a request's names are of its prompt alone.

    A block that its reply goes on in is not: a name for it stands for tokens that nobody has asked for yet.
    """
    unit = trace.unit_tokens
    whole = trace.prompt_tokens // unit
    ends = trace.known_tokens == trace.prompt_tokens
    return np.where(ends, -(-trace.prompt_tokens // unit), whole)


def found_unbounded(trace: Trace, *, replies: bool = True) -> Counts:
    """int64 [n]: leading names of each prompt that an earlier request of its scope had, in its prompt or its reply."""
    asked = prompt_names(trace)
    if not replies:
        trace = trace.named(np.minimum(np.diff(trace.offsets), asked))
    segments = Segments.of(trace)
    had = np.bincount(segments.request, segments.length, len(trace)).astype(np.int64)
    return np.minimum(had, asked)


def _limit(definition: Definition, trace: Trace) -> Counts:
    """Of each prompt the tokens that may be reused."""
    return trace.prompt_tokens if definition.last else trace.prompt_tokens - 1


def _found(trace: Trace, found: Counts) -> Counts:
    return np.minimum(found, prompt_names(trace))


def _hit_blocks(definition: Definition, trace: Trace, found: Counts) -> Counts:
    """A block is a hit if all its tokens are."""
    unit, limit = trace.unit_tokens, _limit(definition, trace)
    known = trace.known_tokens
    whole = definition.tail and definition.last
    most = np.where(whole & (known >= limit), -(-limit // unit), np.minimum(limit, known) // unit)
    return np.minimum(_found(trace, found), most)


def _of_blocks(definition: Definition, trace: Trace) -> Counts:
    unit = trace.unit_tokens
    return -(-trace.prompt_tokens // unit) if definition.tail else trace.prompt_tokens // unit
