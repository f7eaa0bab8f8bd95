"""Our caches and the classic one behind the same few operations, so that both are asked for the same."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sapwood.cache import Lease, Namespace, PrefixCache
from sapwood.cache.radix import RadixIndex
from sapwood.config import CacheConfig

from .classic import ClassicNode, ClassicTree, Slots

_SPACE = Namespace("bench")
Tokens = NDArray[np.int32]

Prompt: TypeAlias = Any
"""A prompt as the one contender takes it that made it: an array or a list. Making it is not part of what is timed."""


class Contender(Protocol):
    page_size: int

    def prompt(self, tokens: Tokens) -> Prompt: ...

    def match(self, prompt: Prompt) -> int:
        """Tokens found."""
        ...

    def store(self, prompt: Prompt) -> None:
        """A whole request: look up, take pages for the rest, commit, let go."""
        ...

    def begin(self, prompt: Prompt, most: int) -> None:
        """Start a request whose prompt is computed and committed; it runs from now on, to `most` tokens.

        What can be taken for all of them at once is taken now, so that `decoded` is the commit alone.
        """
        ...

    def decoded(self, prompt: Prompt) -> None:
        """The request that runs has one token more, and others may share it now."""
        ...

    def use_up(self) -> None:
        """Take all free pages."""
        ...

    def take_page(self) -> None:
        """Take one page more, for which room must be made."""
        ...

    def touched(self) -> int:
        """Nodes that evictions have looked at; 0 where there are no nodes."""
        ...


class Ours:
    def __init__(self, capacity: int, config: CacheConfig) -> None:
        """`capacity` is in tokens."""
        self.page_size = config.page_size
        self.cache = PrefixCache(capacity // config.page_size, config)
        self._running: Lease | None = None
        self._taker = self.cache.lease(_SPACE, np.empty(0, np.int32))
        self._taken = 0

    def prompt(self, tokens: Tokens) -> Tokens:
        return tokens

    def match(self, prompt: Tokens) -> int:
        return self.cache.match(_SPACE, prompt).tokens

    def store(self, prompt: Tokens) -> None:
        self.cache.release(self._compute(prompt))

    def begin(self, prompt: Tokens, most: int) -> None:
        self._running = self._compute(prompt)
        self.cache.grow(self._running, most)

    def decoded(self, prompt: Tokens) -> None:
        assert self._running is not None
        self.cache.commit(self._running, prompt)

    def use_up(self) -> None:
        self._take(self.cache.books().free)

    def take_page(self) -> None:
        self._take(1)

    def touched(self) -> int:
        index = self.cache._index
        return index.touched if isinstance(index, RadixIndex) else 0

    def _compute(self, prompt: Tokens) -> Lease:
        lease = self.cache.lease(_SPACE, prompt)
        self.cache.grow(lease, len(prompt))
        self.cache.commit(lease, prompt)
        return lease

    def _take(self, pages: int) -> None:
        self._taken += pages
        self.cache.grow(self._taker, self._taken * self.page_size)


class Classic:
    """What runs is filed anew after each token, as that engine does between the chunks of a prompt."""

    page_size = 1

    def __init__(self, capacity: int) -> None:
        self.tree = ClassicTree(capacity)
        self._slots: Slots = np.empty(0, np.int32)
        self._end: ClassicNode = self.tree.root

    def prompt(self, tokens: Tokens) -> list[int]:
        return list(map(int, tokens))

    def match(self, prompt: list[int]) -> int:
        return len(self.tree.match(prompt)[0])

    def store(self, prompt: list[int]) -> None:
        self.begin(prompt, len(prompt))
        self.tree.unlock(self._end)

    def begin(self, prompt: list[int], most: int) -> None:  # noqa: ARG002 (it takes slots one by one)
        self._slots, self._end = self.tree.match(prompt)
        self.tree.lock(self._end)
        self.decoded(prompt)

    def decoded(self, prompt: list[int]) -> None:
        cached = len(self._slots)
        slots = np.concatenate([self._slots, self.tree.alloc(len(prompt) - cached)])
        known = self.tree.insert(prompt, slots)
        self.tree.give_back(slots[cached:known])
        self._slots, end = self.tree.match(prompt)
        self.tree.lock(end)
        self.tree.unlock(self._end)
        self._end = end

    def use_up(self) -> None:
        self.tree.alloc(len(self.tree.free))

    def take_page(self) -> None:
        # It frees a whole leaf; the rest is taken too, so that the next page needs an eviction again.
        self.tree.evict(1)
        self.use_up()

    def touched(self) -> int:
        return self.tree.touched
