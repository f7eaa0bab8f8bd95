"""One edge of the radix tree together with the node it leads to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sapwood.cache.accounts import Account
from sapwood.cache.keys import Namespace, PageIds, PageKey, Tokens, page_key
from sapwood.cache.retention import Retention
from sapwood.cache.runs import IntRun
from sapwood.cache.sorted_leaves import SortedLeaves, SortKey

_SHOWN_TOKENS = 6


class Node:
    """A run of tokens, the pages that hold their KV, and what comes after.

        parent ──[ tokens: 5 5 7 8 | 1 2 … ┆ 3 9 … ]──▶ children, each filed under the first page of its own run
                 [ pages:  31      | 8   … ┆ ghost ]    (page_size 4 in this picture)

    Eviction takes pages off the end and leaves the tokens: a tail without pages is a ghost, and so is all
    that hangs below it. A node that a lease goes through has all its pages.

    `pins` counts the leases whose path goes through this node to its end; no lease ever ends inside a run. So
    a node has at least as many pins as its children together, and below an unpinned node nothing is pinned.

    Attributes:
        start: pages from the root to the beginning of this run.
        living: children that have pages.
        created, used: when the lease that committed its pages began, when a lease last began or ended here;
            on the index's own counter.
        hits: leases that have read or filled it, from the first one on; evictions in between change nothing.
        idle_since, evicted_at: when the last lease ended, when its last page was taken, in seconds of the
            caller's clock.
        retention: how much longer than others it is to be kept, if someone asked for that.
        filed_in, rank: where it is filed for eviction, or for being forgotten.
        account: of its tenant, if that has a quota.
    """

    __slots__ = (
        "account",
        "children",
        "created",
        "evicted_at",
        "filed_in",
        "hits",
        "idle_since",
        "key",
        "living",
        "page_size",
        "pages",
        "parent",
        "pins",
        "rank",
        "retention",
        "start",
        "tokens",
        "used",
    )

    def __init__(
        self, parent: Node | None, key: PageKey, tokens: IntRun, pages: IntRun, page_size: int
    ) -> None:
        self.parent = parent
        self.key = key
        self.tokens = tokens
        self.pages = pages
        self.page_size = page_size
        self.account: Account | None = None if parent is None else parent.account
        self.start: int = 0 if parent is None else parent.start + parent.length
        self.children: dict[PageKey, Node] = {}
        self.living = 0
        self.pins = 0
        self.created = 0
        self.used = 0
        self.hits = 1
        self.idle_since = 0.0
        self.evicted_at = 0.0
        self.retention: Retention | None = None
        self.rank: SortKey = ()
        self.filed_in: SortedLeaves[Any] | None = None

    def __repr__(self) -> str:
        shown = " ".join(str(token) for token in self.tokens.view[:_SHOWN_TOKENS])
        more = " …" if self.tokens.size > _SHOWN_TOKENS else ""
        return f"node [{shown}{more}] of {self.pages.size} pages, {self.pins} pins"

    @property
    def length(self) -> int:
        """Pages of the whole run, the ghost's included."""
        return self.tokens.size // self.page_size

    @property
    def depth(self) -> int:
        """Pages from the root to the last one that is still here."""
        return self.start + self.pages.size

    @property
    def is_ghost(self) -> bool:
        return self.pages.size == 0

    def append(self, tokens: Tokens, pages: PageIds) -> None:
        self.tokens.append(tokens)
        self.pages.append(pages)

    def trim(self, count: int) -> PageIds:
        """Take up to `count` pages off the tail and return them; their tokens stay as a ghost."""
        return self.pages.cut(min(count, self.pages.size))

    def split(self, count: int) -> Node:
        """Cut this run in two: a new node, returned, takes the first `count` pages and becomes the parent.

        This node stays the lower half, so whatever ended at its end still does. Every lease that goes through
        one half goes through the other, so both have the same pins; they have the same past too.
        """
        tokens = self.tokens.cut_head(count * self.page_size)
        pages = self.pages.cut_head(min(count, self.pages.size))
        upper = Node(self.parent, self.key, tokens, pages, self.page_size)
        upper.pins, upper.created, upper.used, upper.hits = self.pins, self.created, self.used, self.hits
        upper.idle_since, upper.evicted_at, upper.retention = (
            self.idle_since,
            self.evicted_at,
            self.retention,
        )
        upper.living = 0 if self.is_ghost else 1
        if self.parent is not None:
            self.parent.children[upper.key] = upper
        self.start += count
        self.key = page_key(self.tokens.view, 0, self.page_size)
        self.parent = upper
        upper.children[self.key] = self
        return upper

    def absorb(self, above: Sequence[Node]) -> None:
        """Undo splits: take over the runs of the nodes directly above, given from the nearest upwards."""
        chain = [*reversed(above), self]
        self.tokens = IntRun.joined([node.tokens for node in chain])
        self.pages = IntRun.joined([node.pages for node in chain])
        self.key, self.parent, self.start = chain[0].key, chain[0].parent, chain[0].start
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

    def __init__(
        self, namespace: Namespace, empty: Tokens, page_size: int, account: Account | None = None
    ) -> None:
        super().__init__(None, 0, IntRun(empty), IntRun(empty), page_size)
        self.account = account
        self.namespace = namespace
        self.flushed = False

    def __repr__(self) -> str:
        return f"root of {self.namespace}, {self.pins} pins"
