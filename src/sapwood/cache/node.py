"""One edge of the radix tree together with the node it leads to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sapwood.cache.evict import SortKey
from sapwood.cache.keys import Namespace, PageIds, PageKey, Tokens, page_key
from sapwood.cache.runs import IntRun

_SHOWN_TOKENS = 6


class Node:
    """A run of tokens, the pages that hold their KV, and what comes after.

        parent ──[ tokens: 5 5 7 8 | 1 2 … ]──▶ children, each filed under the first page of its own run
                 [ pages:  31      | 8   … ]    (page_size 4 in this picture)

    `pins` counts the leases whose path goes through this node to its end; no lease ever ends inside a run. So
    a node has at least as many pins as its children together, and below an unpinned node nothing is pinned.
    """

    __slots__ = ("children", "key", "pages", "parent", "pins", "place", "rank", "tokens", "used")

    def __init__(self, parent: Node | None, key: PageKey, tokens: IntRun, pages: IntRun) -> None:
        self.parent = parent
        self.key = key
        self.tokens = tokens
        self.pages = pages
        self.children: dict[PageKey, Node] = {}
        self.pins = 0
        self.used = 0
        self.rank: SortKey = ()
        self.place: int | None = None

    def __repr__(self) -> str:
        shown = " ".join(str(token) for token in self.tokens.view[:_SHOWN_TOKENS])
        more = " …" if self.tokens.size > _SHOWN_TOKENS else ""
        return f"node [{shown}{more}] of {self.pages.size} pages, {self.pins} pins"

    def append(self, tokens: Tokens, pages: PageIds) -> None:
        self.tokens.append(tokens)
        self.pages.append(pages)

    def trim(self, count: int) -> PageIds:
        """Take up to `count` pages off the tail and return them."""
        count = min(count, self.pages.size)
        self.tokens.cut(count * (self.tokens.size // self.pages.size))
        return self.pages.cut(count)

    def split(self, count: int) -> Node:
        """Cut this run in two: a new node, returned, takes the first `count` pages and becomes the parent.

        This node stays the lower half, so whatever ended at its end still does. Every lease that goes through
        one half goes through the other, so both have the same pins.
        """
        page_size = self.tokens.size // self.pages.size
        tokens, pages = self.tokens.cut_head(count * page_size), self.pages.cut_head(count)
        upper = Node(self.parent, self.key, tokens, pages)
        upper.pins, upper.used = self.pins, self.used
        if self.parent is not None:
            self.parent.children[upper.key] = upper
        self.key = page_key(self.tokens.view, 0, page_size)
        self.parent = upper
        upper.children[self.key] = self
        return upper

    def absorb(self, above: Sequence[Node]) -> None:
        """Undo splits: take over the runs of the nodes directly above, given from the nearest upwards."""
        chain = [*reversed(above), self]
        self.tokens = IntRun.joined([node.tokens for node in chain])
        self.pages = IntRun.joined([node.pages for node in chain])
        self.key, self.parent = chain[0].key, chain[0].parent
        if self.parent is not None:
            self.parent.children[self.key] = self

    def subtree(self) -> Iterator[Node]:
        """This node and all below, parents first."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            waiting.extend(node.children.values())
            yield node


class Root(Node):
    """The empty run under which a namespace's tokens start."""

    __slots__ = ("flushed", "namespace")

    def __init__(self, namespace: Namespace, empty: Tokens) -> None:
        super().__init__(None, 0, IntRun(empty), IntRun(empty))
        self.namespace = namespace
        self.flushed = False

    def __repr__(self) -> str:
        return f"root of {self.namespace}, {self.pins} pins"
