"""Ghosts: what is left of evicted stretches. Enough to say "you had it 40 s ago" and to learn from it; no KV."""

from __future__ import annotations

from sapwood.cache.evict import Lru
from sapwood.cache.node import Node
from sapwood.cache.sorted_leaves import SortedLeaves
from sapwood.errors import BooksError

GHOST_POOLS = 4
"""Ghosts remember so many times the tokens that the pool holds, at 4 bytes each, and are no more than its pages."""


class Ghosts:
    """The nodes of the tree that hold no pages, those without children in the order in which they are forgotten.

    A ghost is forgotten as a whole, the least recently used first, and never before those below it. The ghost
    at the end of a node that still has pages is not counted: it becomes a node when its turn has come.
    """

    def __init__(self, capacity: int, page_size: int) -> None:
        self._most_nodes = capacity
        self._most_tokens = GHOST_POOLS * capacity * page_size
        self._nodes = 0
        self._tokens = 0
        self._leaves: SortedLeaves[Node] = SortedLeaves(Lru().key)

    @property
    def over(self) -> bool:
        return self._tokens > self._most_tokens or self._nodes > self._most_nodes

    def first(self) -> Node:
        """Who is forgotten next; it stays."""
        return self._leaves.first()

    def add(self, node: Node) -> None:
        """A node has become a ghost."""
        self._nodes += 1
        self._tokens += node.tokens.size

    def added_by_split(self) -> None:
        """A ghost was cut in two."""
        self._nodes += 1

    def remove(self, node: Node) -> None:
        """A ghost was forgotten, or has its pages back."""
        self._nodes -= 1
        self._tokens -= node.tokens.size
        self.keep(node)

    def offer(self, node: Node) -> None:
        """Nothing hangs on this ghost any more."""
        if node.filed_in is None:
            self._leaves.add(node)

    def keep(self, node: Node) -> None:
        """Something hangs on it again, or it is used now and has to be offered anew."""
        if node.filed_in is not None:
            node.filed_in.remove(node)

    def check(self, ghosts: list[Node]) -> None:
        """Raises BooksError unless exactly these nodes are ghosts, and those without children are filed."""
        self._leaves.check()
        tokens = sum(node.tokens.size for node in ghosts)
        if (len(ghosts), tokens) != (self._nodes, self._tokens):
            raise BooksError(
                f"{self._nodes} ghosts of {self._tokens} tokens are counted; a recount gives {len(ghosts)} of {tokens}"
            )
        for node in ghosts:
            if (node.filed_in is self._leaves) == bool(node.children):
                raise BooksError(f"ghost {node} is filed wrongly")
        if len(self._leaves) > len(ghosts):
            raise BooksError(f"{len(self._leaves)} ghosts are filed; there are {len(ghosts)}")
