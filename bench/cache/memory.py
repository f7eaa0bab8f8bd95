"""What a cached token costs in memory beside its KV: the tree, its page ids and the pool's own tables."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator

import numpy as np

from ..document import tell
from ..rows import Goal, Measure, Row
from ..sizes import Size, sized
from ..stats import Pair
from .contenders import Classic, Contender, Ours, Tokens
from .operations import CLASSIC, our_configs

_GOAL = Goal("ours", "at most", 64.0)
_SEED = 1


def rows(size: Size) -> Iterator[Row]:
    leaves = sized(size, quick=20, normal=10_000)
    length = 100
    tokens = leaves * length
    tell("cache: memory, classic")
    classic = bytes_per_token(lambda: Classic(tokens), leaves, length)
    for name, config in our_configs().items():
        tell(f"cache: memory, {name}")
        padded = -(-length // config.page_size) * config.page_size  # only whole pages are cached
        ours = bytes_per_token(lambda: Ours(leaves * padded, config), leaves, padded)  # noqa: B023
        yield Row(
            f"{tokens:,} tokens in {leaves:,} leaves, {name}",
            Measure("memory", "bytes/token", "lower", _GOAL, counted=True),
            [Pair(ours, classic)],
            CLASSIC,
        )


def bytes_per_token(make: Callable[[], Contender], leaves: int, length: int) -> float:
    """Bytes that are still allocated once the cache is full, all its tables included, over its tokens."""
    _leaf(np.random.default_rng(_SEED), 0, length)  # what numpy loads for it is no part of the cache
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        contender = make()
        _fill(contender, leaves, length)
        gc.collect()
        after = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    return (after - before) / (leaves * length)


def _fill(contender: Contender, leaves: int, length: int) -> None:
    rng = np.random.default_rng(_SEED)
    for leaf in range(leaves):
        contender.store(contender.prompt(_leaf(rng, leaf, length)))


def _leaf(rng: np.random.Generator, leaf: int, length: int) -> Tokens:
    """Ids as of a large vocabulary; the first token is the leaf's own."""
    tokens = rng.integers(1_000, 150_000, length, dtype=np.int32)
    tokens[0] = 1_000_000 + leaf
    return tokens
