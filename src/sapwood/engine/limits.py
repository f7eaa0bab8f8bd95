"""What the engine can serve, and the checks at the door: a request that passes will fit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sapwood.errors import RequestError
from sapwood.plan import GuideMaker
from sapwood.sched import Bounds
from sapwood.types import MOST_WISHES, Request

_MOST_PRIORITY = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What the engine must know of a model."""

    fingerprint: str
    """Names weights, dtypes, rope and KV type; part of every cache namespace."""
    context: int
    """Longest sequence in tokens that the model was made for."""
    vocab_size: int
    eos: tuple[int, ...] = ()
    """Tokens with which the model ends its answer."""


@dataclass(frozen=True, slots=True, eq=False)
class Admission:
    """A request that was checked, with what the check found out."""

    request: Request
    prompt: NDArray[np.int32]
    """Its tokens, as all its samples read them; read-only."""
    max_len: int
    """Most tokens, prompt and answer, that a sample may reach."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on one sequence, in tokens. Immutable, so any thread may check against it."""

    context: int
    pool: int
    vocab_size: int
    priorities: bool = False
    """Whether the order of the waiting requests reads `priority`."""
    retains: bool = True
    """Whether the cache can keep something longer than the rest."""
    guides: GuideMaker | None = None
    """What keeps answers within grammars, if anything can."""

    def check(self, request: Request) -> None:
        """All of `admit` that does not look at each prompt token, so it costs the same for any length."""
        self._check_params(request)
        self._check_constraint(request)
        self._max_len(request)

    def admit(self, request: Request) -> Admission:
        """Check a request in full; once is enough, a request does not change.

        Raises ContextLengthError when it is too long for the model or the pool, else RequestError.
        """
        self._check_params(request)
        self._check_constraint(request)
        max_len = self._max_len(request)
        return Admission(request, self._tokens(request), max_len)

    def _tokens(self, request: Request) -> NDArray[np.int32]:
        try:
            ids = np.fromiter(request.prompt, np.int64, len(request.prompt))
            valid = ids.min() >= 0 and ids.max() < self.vocab_size
        except OverflowError:
            valid = False
        if not valid:
            outside = _first_outside(request.prompt, self.vocab_size)
            raise RequestError(
                f"the prompt holds token id {outside}; ids must be between 0 and {self.vocab_size - 1}",
                param="prompt",
            )
        prompt = ids.astype(np.int32)
        prompt.flags.writeable = False
        return prompt

    def _check_params(self, request: Request) -> None:
        if not request.prompt:
            raise RequestError("the prompt is empty; it must hold at least one token", param="prompt")
        if request.priority and not self.priorities:
            raise RequestError(
                f"'priority' is {request.priority}; the order in use does not read it, so it must be 0",
                param="priority",
                hint="start the server with --schedule-policy priority",
            )
        if not -_MOST_PRIORITY <= request.priority <= _MOST_PRIORITY:
            raise RequestError(
                f"'priority' is {request.priority}; it must be between {-_MOST_PRIORITY} and {_MOST_PRIORITY}",
                param="priority",
            )
        if len(request.retain) > MOST_WISHES:
            raise RequestError(
                f"'cache_retention' holds {len(request.retain)} wishes; at most {MOST_WISHES} are taken",
                param="cache_retention",
            )
        if request.retain and not self.retains:
            raise RequestError(
                "'cache_retention' is given; the blocks index evicts in one order alone",
                param="cache_retention",
                hint="start the server with --prefix-index radix",
            )
        params = request.params
        for name, ids in (("stop_token_ids", params.stop_token_ids), ("logit_bias", params.logit_bias)):
            outside = _first_outside(ids, self.vocab_size)
            if outside is not None:
                raise RequestError(
                    f"{name!r} holds token id {outside}; ids must be between 0 and {self.vocab_size - 1}",
                    param=name,
                )
        for name, count in (("logprobs", params.logprobs), ("prompt_logprobs", params.prompt_logprobs)):
            if count is not None and not 0 <= count <= self.vocab_size:
                raise RequestError(
                    f"{name!r} is {count}; it must be between 0 and {self.vocab_size}", param=name
                )
        if params.prompt_logprobs_start > len(request.prompt):
            raise RequestError(
                f"'prompt_logprobs_start' is {params.prompt_logprobs_start}; the prompt has {len(request.prompt)}"
                " tokens",
                param="prompt_logprobs_start",
            )
        if params.max_tokens is not None and params.min_tokens > params.max_tokens:
            raise RequestError(
                f"'min_tokens' is {params.min_tokens}; it must be at most max_tokens ({params.max_tokens})",
                param="min_tokens",
            )

    def _check_constraint(self, request: Request) -> None:
        constraint = request.params.constraint
        if constraint is None:
            return
        if self.guides is None:
            raise RequestError(
                f"{constraint.param!r} is given; nothing here keeps answers within a grammar",
                param=constraint.param,
            )
        self.guides.check(constraint)

    def _max_len(self, request: Request) -> int:
        return Bounds(self.context, self.pool).max_len(len(request.prompt), request.params.max_tokens)


def _first_outside(ids: Iterable[int], vocab_size: int) -> int | None:
    return next((int(id) for id in ids if not 0 <= id < vocab_size), None)
