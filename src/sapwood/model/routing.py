"""Which experts a token runs through, and with what weights, from arithmetic that gives the same bits everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sapwood.model.ln2 import LN2_HIGH, LN2_LOW, PER_LN2

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sapwood.model.spec import Experts

_TAYLOR_TERMS = 13


@dataclass(frozen=True, slots=True)
class Routing:
    """For each row its experts, best first, and their weights: int64 and float32 [rows, used]."""

    experts: NDArray[np.int64]
    weights: NDArray[np.float32]


def route(scores: NDArray[np.float32], experts: Experts) -> Routing:
    """The experts of the highest `scores` [rows, experts]; of equal scores the one with the lower number.

    Weights are those of the softmax over all experts, or over the chosen ones where they are normalised
    (Shazeer et al. 2017; Jiang et al., Mixtral of Experts, 2024), in float64 and rounded once. Each row is a
    function of its own scores.
    """
    chosen = np.argsort(-scores, axis=-1, kind="stable")[:, : experts.used]
    best = np.take_along_axis(scores, chosen, axis=-1)
    shares = _exp(best.astype(np.float64) - best[:, :1])
    summed = shares if experts.normalised else _exp(scores.astype(np.float64) - best[:, :1])
    total = np.cumsum(summed, axis=-1)[:, -1:]
    return Routing(chosen, (shares / total).astype(np.float32))


def _exp(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """exp of numbers not above 0, within a unit or two of the last place: a library's may differ by CPU."""
    x = np.maximum(x, -700.0)
    halvings = np.rint(x * PER_LN2)
    rest = (x - halvings * LN2_HIGH) - halvings * LN2_LOW
    total = np.ones_like(rest)
    for n in range(_TAYLOR_TERMS, 0, -1):
        total = 1.0 + rest * total / n
    return np.ldexp(total, halvings.astype(np.int64))
