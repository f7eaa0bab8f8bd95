"""Small verbs that the cache tests share."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from sapwood.cache import Lease, Namespace, PrefixCache
from sapwood.cache.block import Block
from sapwood.cache.blocks import BlockIndex
from sapwood.cache.node import Node
from sapwood.cache.radix import RadixIndex

NewCache = Callable[..., PrefixCache]
"""What the fixture `new_cache` gives: a cache by capacity in pages and page size."""

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


def blocks_of(cache: PrefixCache) -> BlockIndex:
    index = cache._index
    assert isinstance(index, BlockIndex)
    return index


def nodes_of(cache: PrefixCache) -> list[Node]:
    """All nodes that can be found, roots and ghosts left out."""
    trees = (root.subtree() for root in radix_of(cache).roots.values())
    return [node for tree in trees for node in tree if node.parent is not None and node.pages.size]


def prefixes_of(cache: PrefixCache) -> Iterator[tuple[Namespace, tuple[int, ...]]]:
    """Every cached prefix, one per page, read from the index itself."""
    if isinstance(cache._index, BlockIndex):
        return (_prefix_of(block) for block in cache._index.map)
    return _tree_prefixes(cache)


def _tree_prefixes(cache: PrefixCache) -> Iterator[tuple[Namespace, tuple[int, ...]]]:
    for namespace, root in radix_of(cache).roots.items():
        waiting: list[tuple[Node, tuple[int, ...]]] = [(root, ())]
        while waiting:
            node, before = waiting.pop()
            tokens = before + tuple(node.tokens.view.tolist())
            for page in range(node.pages.size):
                yield namespace, tokens[: len(before) + (page + 1) * cache.page_size]
            waiting.extend((child, tokens) for child in node.children.values())


def _prefix_of(block: Block) -> tuple[Namespace, tuple[int, ...]]:
    contents, above = [block.content], block.parent
    while isinstance(above, Block):
        contents.append(above.content)
        above = above.parent
    return above, tuple(np.frombuffer(b"".join(reversed(contents)), dtype=np.int32).tolist())
