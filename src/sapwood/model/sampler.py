"""Draws tokens from logits. A draw is a function of one row of logits and its SampleOrder, of nothing else.

The random number of a draw is counter-based (Philox, Salmon et al. 2011), keyed by (seed, sample, position): it does
not depend on the batch, on what was drawn before, or on how often a sequence was preempted.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from sapwood.types import TokenLogprob

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sapwood.plan import SampleOrder
    from sapwood.types import SamplingParams


def draw(logits: NDArray[np.float32], order: SampleOrder) -> TokenLogprob:
    """One token from logits [vocab_size]. Raises ValueError if they are not finite.

    `logprob` is filled (from the raw logits) only when params.logprobs is not None, else 0.
    """
    _require_finite(logits)
    params = order.params
    shaped = _shaped(logits, order)
    if params.temperature == 0:
        token = int(shaped.argmax())
    else:
        token = _pick(shaped.astype(np.float64), params, uniform(order))
    if params.logprobs is None:
        return TokenLogprob(token, 0.0)
    return score(logits, token, params.logprobs)


def uniform(order: SampleOrder) -> float:
    """The draw's number in [0, 1), 53 bits."""
    key = np.array([order.seed & 0xFFFFFFFFFFFFFFFF, order.sample], np.uint64)
    raw = np.random.Philox(key=key, counter=[0, 0, 0, len(order.history)]).random_raw(1)
    return float(int(raw[0]) >> 11) * 2.0**-53


def score(logits: NDArray[np.float32], token: int, top: int) -> TokenLogprob:
    """Natural-log probabilities under the raw distribution: the token's own and the `top` likeliest.

    Raises ValueError for logits that are not finite.
    """
    _require_finite(logits)
    row = logits.astype(np.float64)
    peak = row.max()
    norm = peak + np.log(np.exp(row - peak).sum())
    best = _likeliest(row, top)
    entries = tuple((int(t), float(row[t] - norm)) for t in best)
    return TokenLogprob(token, float(row[token] - norm), entries)


def _require_finite(logits: NDArray[np.float32]) -> None:
    # A sum is finite only if all its terms are, and is had in one pass; where it overflows each one is looked at.
    with np.errstate(over="ignore", invalid="ignore"):
        total = np.add.reduce(logits)
    if not math.isfinite(total) and not np.isfinite(logits).all():
        raise ValueError("the model gave a logit that is not finite")


def _likeliest(row: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """The `count` largest, largest first; among equals the lower token id."""
    count = min(count, len(row))
    if count == 0:
        return np.empty(0, np.int64)
    edge = np.partition(row, -count)[-count]
    candidates = np.flatnonzero(row >= edge)
    return candidates[np.argsort(-row[candidates], kind="stable")][:count]


def _shaped(logits: NDArray[np.float32], order: SampleOrder) -> NDArray[np.float32]:
    """Penalties, bias and bans, in the order the OpenAI and Hugging Face definitions give them.

    What the guide forbids is gone before anything is chosen from.
    """
    params = order.params
    penalised = (
        params.repetition_penalty != 1 or params.presence_penalty != 0 or params.frequency_penalty != 0
    )
    if not penalised and not params.logit_bias and not order.banned and order.guide is None:
        return logits
    shaped = logits.copy()
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
    forbidden = np.zeros(len(shaped), bool)
    if order.guide is not None:
        forbidden = ~order.guide.mask(order.history[order.prompt_len :])
    shaped[forbidden] = -np.inf
    if order.banned:
        forbidden[list(order.banned)] = True
    if not forbidden.all():
        shaped[forbidden] = -np.inf
    return shaped


def _pick(row: NDArray[np.float64], params: SamplingParams, number: float) -> int:
    """The token where the cumulative probability passes `number`: by token id, or from likeliest down if cut."""
    with np.errstate(over="ignore"):  # a tiny temperature sends all but the likeliest to -inf
        weights = np.exp((row - row.max()) / params.temperature)
    if params.top_k == 0 and params.top_p == 1 and params.min_p == 0:
        return _pass(weights, number)
    tokens = _kept(weights, params)
    return int(tokens[_pass(weights[tokens], number)])


def _kept(weights: NDArray[np.float64], params: SamplingParams) -> NDArray[np.int64]:
    """Tokens that survive top-k, then top-p, then min-p; likeliest first, the first always."""
    count = params.top_k or len(weights)
    tokens = _likeliest(weights, count) if count < len(weights) else np.argsort(-weights, kind="stable")
    kept = weights[tokens]
    if params.top_p < 1:
        before = np.concatenate(([0.0], np.cumsum(kept)[:-1]))
        kept = kept[before < params.top_p * kept.sum()]
    if params.min_p > 0:
        kept = kept[kept >= params.min_p * kept[0]]
    return tokens[: max(1, len(kept))]


def _pass(weights: NDArray[np.float64], number: float) -> int:
    cumulative = np.cumsum(weights)
    at = int(np.searchsorted(cumulative, number * cumulative[-1], side="right"))
    return min(at, int(np.flatnonzero(weights)[-1]))
