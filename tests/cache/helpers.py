"""Small verbs that the cache tests share."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from sapwood.cache import Lease, Namespace, PrefixCache
from sapwood.cache.node import Node
from sapwood.cache.radix import RadixIndex

NS = Namespace("model")
OTHER = Namespace("model", tenant="other")


def toks(*tokens: int) -> NDArray[np.int32]:
    return np.array(tokens, dtype=np.int32)


def span(start: int, stop: int) -> NDArray[np.int32]:
    """Tokens start .. stop-1."""
    return np.arange(start, stop, dtype=np.int32)


def joined(*parts: NDArray[np.int32]) -> NDArray[np.int32]:
    return np.concatenate(parts)


def begin(cache: PrefixCache, tokens: NDArray[np.int32], namespace: Namespace = NS) -> Lease:
    """Lease, cover and commit a whole sequence; the lease stays live."""
    lease = cache.lease(namespace, tokens)
    cache.grow(lease, len(tokens))
    cache.commit(lease, tokens)
    return lease


def store(cache: PrefixCache, tokens: NDArray[np.int32], namespace: Namespace = NS) -> None:
    cache.release(begin(cache, tokens, namespace))


def matched(cache: PrefixCache, tokens: NDArray[np.int32], namespace: Namespace = NS) -> int:
    return cache.match(namespace, tokens).tokens


def pages_of(cache: PrefixCache, tokens: NDArray[np.int32], namespace: Namespace = NS) -> list[int]:
    """The pages that a lease on `tokens` would read."""
    lease = cache.lease(namespace, tokens)
    pages: list[int] = lease.table.tolist()
    cache.release(lease)
    return pages


def radix_of(cache: PrefixCache) -> RadixIndex:
    index = cache._index
    assert isinstance(index, RadixIndex)
    return index


def nodes_of(cache: PrefixCache) -> list[Node]:
    """All nodes that can be found, roots left out."""
    trees = (root.subtree() for root in radix_of(cache).roots.values())
    return [node for tree in trees for node in tree if node.parent is not None]


def prefixes_of(cache: PrefixCache) -> Iterator[tuple[Namespace, tuple[int, ...]]]:
    """Every cached prefix, one per page, read from the tree itself."""
    for namespace, root in radix_of(cache).roots.items():
        waiting: list[tuple[Node, tuple[int, ...]]] = [(root, ())]
        while waiting:
            node, before = waiting.pop()
            tokens = before + tuple(node.tokens.view.tolist())
            for end in range(len(before), len(tokens), cache.page_size):
                yield namespace, tokens[: end + cache.page_size]
            waiting.extend((child, tokens) for child in node.children.values())
