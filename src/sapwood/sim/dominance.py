"""Sums over all earlier entries with a larger key: the offline counting that stack distances come down to."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def sums_of_larger_before(keys: NDArray[np.int64], weights: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each i the sum of weights[j] over j < i with keys[j] > keys[i]. Keys are not negative.

    Weighted inversions, by a radix partition from the highest bit down: where two keys part, the one with the bit
    counts for all without it that come later in the same node. O(n · bits), all of it in whole-array operations.
    """
    count = len(keys)
    order, key, weight = np.arange(count), keys, weights
    sums = np.zeros(count, np.int64)
    for bit in reversed(range(int(keys.max(initial=0)).bit_length())):
        upper = key >> bit
        is_one = (upper & 1).astype(np.bool_)
        node = _Nodes(upper >> 1)
        ones = np.cumsum(np.where(is_one, weight, 0))
        sums += np.where(is_one, 0, ones - node.spread(ones))
        moved = _partition(is_one, node)
        order, key, weight, sums = (_placed(column, moved) for column in (order, key, weight, sums))
    return _placed(sums, order)


class _Nodes:
    """Entries that agree in all higher bits stand together."""

    def __init__(self, node: NDArray[np.int64]) -> None:
        count = len(node)
        self.firsts = np.flatnonzero(
            np.concatenate((np.ones(min(count, 1), np.bool_), node[1:] != node[:-1]))
        )
        self.sizes = np.diff(self.firsts, append=count)

    def spread(self, running: NDArray[np.int64]) -> NDArray[np.int64]:
        """Of a running sum what it was before each entry's node."""
        before = np.where(self.firsts > 0, running[self.firsts - 1], 0)
        return np.repeat(before, self.sizes)


def _partition(is_one: NDArray[np.bool_], node: _Nodes) -> NDArray[np.int64]:
    """New places: in each node those without the bit first, else in the order they were."""
    zeros = np.cumsum(~is_one, dtype=np.int64)
    before = node.spread(zeros)
    at_end = zeros[node.firsts + node.sizes - 1] if len(zeros) else zeros
    firsts = np.repeat(node.firsts, node.sizes)
    zero_place = firsts + zeros - before - 1
    one_place = np.arange(len(is_one)) + np.repeat(at_end, node.sizes) - zeros
    return np.where(is_one, one_place, zero_place)


def _placed(column: NDArray[np.int64], places: NDArray[np.int64]) -> NDArray[np.int64]:
    out = np.empty_like(column)
    out[places] = column
    return out
