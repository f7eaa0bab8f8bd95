"""The slow twin of the draws: plain numpy, bit for bit what the native kernels give. It sorts whole vocabularies.

Everything is made of additions and multiplications in an order that is fixed, so the token that a number gives is the
same on every machine. A token weighs exp((logit - the largest) / temperature), in float64.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np

from sapwood.model.ln2 import LN2_HIGH, LN2_LOW, PER_LN2
from sapwood.model.ops import Picked, Ranked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from sapwood.types import SamplingParams

    Logits = NDArray[np.float32]
    Weights = NDArray[np.float64]

BLOCK = 64
"""Tokens whose weights are summed together; the sums of blocks are then one chain."""

_LANES = 8
_EVEN = (1 / 479001600, 1 / 3628800, 1 / 40320, 1 / 720, 1 / 24, 1 / 2, 1.0)
_ODD = (1 / 39916800, 1 / 362880, 1 / 5040, 1 / 120, 1 / 6, 1.0)
"""1 / k!, the highest k first."""

_LOWEST = -708.0


def uniform(seed: int, sample: int, position: int) -> float:
    key, counter = np.array([seed, sample], np.uint64), np.array([0, 0, 0, position], np.uint64)
    raw = np.random.Philox(key=key, counter=counter).random_raw(1)
    return float(int(raw[0]) >> 11) * 2.0**-53


def pick(rows: Sequence[Logits], params: Sequence[SamplingParams], numbers: Sequence[float]) -> Picked:
    tokens = [_picked(row, how, number) for row, how, number in zip(rows, params, numbers, strict=True)]
    return Picked(np.array(tokens, np.int32), _finite(rows))


def rank(rows: Sequence[Logits], top: int) -> Ranked:
    usable = [_is_usable(row) for row in rows]
    order = [_descending(row)[:top] if ok else np.zeros(top) for row, ok in zip(rows, usable, strict=True)]
    return Ranked(
        np.array(order, np.int32).reshape(len(rows), top),
        np.array([float(row.max()) + 0.0 if ok else 0.0 for row, ok in zip(rows, usable, strict=True)]),
        np.array(
            [_running(weights(row, 1))[-1] if ok else 0.0 for row, ok in zip(rows, usable, strict=True)]
        ),
        _finite(rows),
    )


def exp(x: Weights) -> Weights:
    """exp of x ≤ 0: Cody-Waite reduction (ln 2 in fdlibm's two parts), then Taylor's polynomial of degree 12, its even
    and its odd powers each by Horner.

    exp(0) is exactly 1; below -708, where results would be subnormal, it is exactly 0.
    """
    dead = x < _LOWEST
    x = np.where(dead, _LOWEST, x)
    n = np.rint(x * PER_LN2)
    r = (x - n * LN2_HIGH) - n * LN2_LOW
    y = _horner(_EVEN, r * r) + _horner(_ODD, r * r) * r
    return np.where(dead, 0.0, np.ldexp(y, n.astype(np.int32)))


def _horner(coefficients: tuple[float, ...], x: Weights) -> Weights:
    total = np.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        total = total * x + c
    return total


def weights(row: Logits, temperature: float) -> Weights:
    values = row.astype(np.float64)
    rate = min(1 / temperature, sys.float_info.max)
    with np.errstate(over="ignore"):
        return exp((values - values.max()) * rate)


def _picked(row: Logits, params: SamplingParams, number: float) -> int:
    if not _is_usable(row):
        return 0
    if params.temperature == 0:
        return int(row.argmax())
    each = weights(row, params.temperature)
    if params.top_k == 0 and params.top_p == 1 and params.min_p == 0:
        return _pick_from_all(each, number)
    tokens = _descending(row)
    running = _running_of_kept(each, each[tokens], params)
    return int(tokens[_pass(running, number)])


def _pick_from_all(each: Weights, number: float) -> int:
    """By token id: the block that the number falls into, then the token in it."""
    running = _running(each)
    block = _pass(running, number)
    first = block * BLOCK
    inside = each[first : first + BLOCK]
    sums = np.add.accumulate(np.append(running[block - 1] if block else 0.0, inside))[1:]
    passed = np.flatnonzero(sums > number * running[-1])
    return first + int(passed[0] if len(passed) else np.flatnonzero(inside)[-1])


def _running(each: Weights) -> Weights:
    """Sums of weights up to the end of each block. In a block 8 lanes sum, then one tree."""
    padded = np.zeros(-(-len(each) // BLOCK) * BLOCK)
    padded[: len(each)] = each
    groups = padded.reshape(-1, BLOCK // _LANES, _LANES)
    lanes = np.zeros((len(groups), _LANES))
    for i in range(groups.shape[1]):
        lanes = lanes + groups[:, i]
    quads = lanes[:, :4] + lanes[:, 4:]
    pairs = quads[:, :2] + quads[:, 2:]
    return np.add.accumulate(pairs[:, 0] + pairs[:, 1])


def _running_of_kept(each: Weights, ranked: Weights, params: SamplingParams) -> Weights:
    """Sums of the weights, from the likeliest down, of those that survive top-k, then top-p, then min-p."""
    top_k = params.top_k if params.top_k < len(ranked) else 0
    running = np.add.accumulate(ranked[:top_k] if top_k else ranked)
    whole = running[-1] if top_k else _running(each)[-1]
    before = np.append(0.0, running[:-1])
    enough = params.top_p * whole if params.top_p < 1 else np.inf
    cut = (before >= enough) | (ranked[: len(running)] < params.min_p)
    cut[0] = False
    return running[: int(cut.argmax())] if cut.any() else running


def _pass(running: Weights, number: float) -> int:
    """The first place whose running weight passes that part of the whole, or else the last that adds any."""
    at = int(np.searchsorted(running, number * running[-1], side="right"))
    return at if at < len(running) else int(np.searchsorted(running, running[-1], side="left"))


def _descending(row: Logits) -> NDArray[np.int64]:
    """From the largest down; among equals the lower token id."""
    return np.argsort(-row, kind="stable")


def _is_usable(row: Logits) -> bool:
    return not (np.isnan(row) | np.isposinf(row)).any()


def _finite(rows: Sequence[Logits]) -> NDArray[np.bool_]:
    return np.array([np.isfinite(row).all() for row in rows], bool)
