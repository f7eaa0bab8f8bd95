"""Draws tokens from logits. A draw is a function of one row of logits and its SampleOrder, of nothing else.

The random number of a draw is counter-based (Philox, Salmon et al. 2011), keyed by (seed, sample, position): it does
not depend on the batch, on what was drawn before, or on how often a sequence was preempted. Which token it gives is
found by a fixed sequence of operations (`Ops.pick`), so that does not depend on the machine either.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from sapwood.model.ln2 import LN2_HIGH, LN2_LOW
from sapwood.types import TokenLogprob

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from sapwood.model.ops import Ops
    from sapwood.plan import SampleOrder
    from sapwood.types import SamplingParams

    Logits = NDArray[np.float32]
Drawn = TokenLogprob | Exception
"""A token, or why there is none."""

_MOST = np.finfo(np.float32).max
_Item = TypeVar("_Item")
_Made = TypeVar("_Made")


@dataclass(frozen=True, slots=True, eq=False)
class _Row:
    """Logits to be drawn from, and how; once shaped they were finite before."""

    logits: Logits
    params: SamplingParams
    number: float
    shaped: bool


class Sampler:
    """Draws for the rows of a step together."""

    def __init__(self, ops: Ops) -> None:
        self._ops = ops

    def draw(self, rows: Sequence[Logits], orders: Sequence[SampleOrder]) -> list[Drawn]:
        """One token from each row of logits [vocab_size], or a row's own failure: ValueError for logits that are not
        finite, whatever its guide raises (DeadEndError where it allows no token) or the ops raise for it alone.

        `logprob` is filled (from the raw logits) only when params.logprobs is not None, else 0.
        """
        attempts = [self._attempt(row, order) for row, order in zip(rows, orders, strict=True)]
        picked = iter(_together(self._pick, [each for each in attempts if isinstance(each, _Row)]))
        drawn: list[Drawn] = [next(picked) if isinstance(each, _Row) else each for each in attempts]
        self._add_logprobs(drawn, rows, orders)
        return drawn

    def score(self, rows: Sequence[Logits], tokens: Sequence[int], top: int) -> list[TokenLogprob]:
        """Natural-log probabilities under the raw distribution: of each row's token, and of its `top` likeliest.

        Raises ValueError for logits that are not finite.
        """
        if not rows:
            return []
        ranked = self._ops.rank(rows, min(top, len(rows[0])))
        if not ranked.finite.all():
            raise _not_finite()
        norms = [p + _log(w) for p, w in zip(ranked.peaks.tolist(), ranked.weights.tolist(), strict=True)]
        return [
            TokenLogprob(token, float(row[token]) - norm, tuple((t, float(row[t]) - norm) for t in best))
            for row, token, norm, best in zip(rows, tokens, norms, ranked.tokens.tolist(), strict=True)
        ]

    def _attempt(self, logits: Logits, order: SampleOrder) -> _Row | Exception:
        try:
            plain = is_plain(order)
            return _Row(
                logits if plain else _shaped(logits, order), order.params, self._number(order), not plain
            )
        except Exception as error:  # Whatever it is, it is about this row: the others get their tokens.
            return error

    def _number(self, order: SampleOrder) -> float:
        """In [0, 1); a greedy draw needs none."""
        if order.params.temperature == 0:
            return 0.0
        return self._ops.uniform(order.seed & 0xFFFFFFFFFFFFFFFF, order.sample, len(order.history))

    def _pick(self, rows: list[_Row]) -> list[Drawn]:
        picked = self._ops.pick(
            [row.logits for row in rows], [row.params for row in rows], [row.number for row in rows]
        )
        return [
            TokenLogprob(token, 0.0) if finite or row.shaped else _not_finite()
            for row, token, finite in zip(rows, picked.tokens.tolist(), picked.finite.tolist(), strict=True)
        ]

    def _add_logprobs(
        self, drawn: list[Drawn], rows: Sequence[Logits], orders: Sequence[SampleOrder]
    ) -> None:
        """Ranks rows with those that ask for as many: none goes deeper than its own order says."""
        tokens: dict[int, dict[int, int]] = {}
        for i, (each, order) in enumerate(zip(drawn, orders, strict=True)):
            if order.params.logprobs is not None and isinstance(each, TokenLogprob):
                tokens.setdefault(order.params.logprobs, {})[i] = each.token
        for top, group in tokens.items():
            scored = _together(partial(self._scored, rows, group, top), list(group))
            for i, entry in zip(group, scored, strict=True):
                drawn[i] = entry

    def _scored(
        self, rows: Sequence[Logits], tokens: Mapping[int, int], top: int, which: list[int]
    ) -> list[TokenLogprob]:
        return self.score([rows[i] for i in which], [tokens[i] for i in which], top)


def _together(make: Callable[[list[_Item]], list[_Made]], items: list[_Item]) -> list[_Made | Exception]:
    """What `make` makes of all items at once or, where one of them makes it fail, of each alone."""
    try:
        return [*make(items)]
    except Exception as error:
        if len(items) == 1:
            return [error]
    return [made for item in items for made in _together(make, [item])]


def is_plain(order: SampleOrder) -> bool:
    """Whether it draws from the logits as they are."""
    params = order.params
    return (
        params.repetition_penalty == 1
        and params.presence_penalty == 0
        and params.frequency_penalty == 0
        and not params.logit_bias
        and not order.banned
        and order.guide is None
    )


def _not_finite() -> ValueError:
    return ValueError("the model gave a logit that is not finite")


def _shaped(logits: Logits, order: SampleOrder) -> Logits:
    """Penalties, bias and bans, in the order the OpenAI and Hugging Face definitions give them.

    What the guide forbids is gone before anything is chosen from.
    """
    if not np.isfinite(logits).all():
        raise _not_finite()
    shaped = logits.copy()
    with np.errstate(over="ignore"):
        _penalise(shaped, order)
        np.clip(shaped, -_MOST, _MOST, out=shaped)
    forbidden = np.zeros(len(shaped), bool)
    if order.guide is not None:
        forbidden = ~order.guide.mask(order.history[order.prompt_len :])
    shaped[forbidden] = -np.inf
    if order.banned:
        forbidden[list(order.banned)] = True
    if not forbidden.all():
        shaped[forbidden] = -np.inf
    return shaped


def _penalise(shaped: Logits, order: SampleOrder) -> None:
    params = order.params
    if params.repetition_penalty != 1:
        seen = np.unique(order.history)
        values = shaped[seen]
        rate = np.float32(params.repetition_penalty)
        shaped[seen] = np.where(values > 0, values / rate, values * rate)
    if params.presence_penalty or params.frequency_penalty:
        tokens, counts = np.unique(order.history[order.prompt_len :], return_counts=True)
        shaped[tokens] -= (params.presence_penalty + params.frequency_penalty * counts).astype(np.float32)
    for token, bias in params.logit_bias.items():
        shaped[token] += np.float32(bias)


def _log(x: float) -> float:
    """ln of 1 ≤ x < 2⁵³, as 2 artanh((m - 1) / (m + 1)) of x's mantissa m, to within 1e-15 of its size."""
    mantissa, exponent = math.frexp(x)
    if mantissa < 0.7071067811865476:
        mantissa, exponent = 2 * mantissa, exponent - 1
    s = (mantissa - 1) / (mantissa + 1)
    series = 0.0
    for k in range(21, 0, -2):
        series = series * (s * s) + 1 / k
    return exponent * LN2_HIGH + (2 * s * series + exponent * LN2_LOW)
