"""The cache to compare with: a radix tree whose evictions collect all leaves into a heap, at each call.

Written anew after the behaviour of SGLang's RadixAttention as of 2024 (Zheng et al., NeurIPS 2024, section 3):
keys are lists of integers that are compared in a loop, children are filed under the first token, whole leaves
are freed in the order of their last access, looking up splits edges and marks access, and a request that runs
locks its path up to the root. One page holds one token.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Slots = NDArray[np.int32]
_NO_SLOTS: Slots = np.empty(0, np.int32)


@dataclass(slots=True, eq=False)
class ClassicNode:
    parent: ClassicNode | None
    key: list[int]
    slots: Slots
    children: dict[int, ClassicNode] = field(default_factory=dict)
    locks: int = 0
    used: int = 0

    def __lt__(self, other: ClassicNode) -> bool:
        return self.used < other.used


class ClassicTree:
    """`touched` counts the nodes that evictions looked at."""

    def __init__(self, capacity: int) -> None:
        self.free: Slots = np.arange(capacity, dtype=np.int32)
        self.root = ClassicNode(None, [], _NO_SLOTS, locks=1)
        self.touched = 0
        self._now = 0

    def match(self, tokens: list[int]) -> tuple[Slots, ClassicNode]:
        """The slots of the longest cached prefix, and the node where it ends."""
        node, at, found = self.root, 0, [_NO_SLOTS]
        self._now += 1
        while at < len(tokens) and (child := node.children.get(tokens[at])) is not None:
            child.used = self._now
            shared = _common(child.key, tokens[at:])
            if shared < len(child.key):
                child = _split(child, shared)
            found.append(child.slots)
            node, at = child, at + shared
        return np.concatenate(found), node

    def insert(self, tokens: list[int], slots: Slots) -> int:
        """File what is new of a sequence; returns the length that was there."""
        found, node = self.match(tokens)
        known = len(found)
        if known < len(tokens):
            child = ClassicNode(node, tokens[known:], slots[known:].copy(), used=self._now)
            node.children[tokens[known]] = child
        return known

    def lock(self, node: ClassicNode) -> None:
        self._add_locks(node, 1)

    def unlock(self, node: ClassicNode) -> None:
        self._add_locks(node, -1)

    def alloc(self, count: int) -> Slots:
        if len(self.free) < count:
            self.evict(count - len(self.free))
        taken, self.free = self.free[:count], self.free[count:]
        return taken

    def give_back(self, slots: Slots) -> None:
        self.free = np.concatenate([self.free, slots])

    def evict(self, count: int) -> int:
        """Free at least `count` slots if that many are unlocked; returns how many were freed."""
        leaves = self._leaves()
        heapq.heapify(leaves)
        freed = 0
        while freed < count and leaves:
            leaf = heapq.heappop(leaves)
            if leaf.locks or leaf.parent is None:
                continue
            self.give_back(leaf.slots)
            freed += len(leaf.slots)
            del leaf.parent.children[leaf.key[0]]
            if not leaf.parent.children:
                heapq.heappush(leaves, leaf.parent)
        return freed

    def _leaves(self) -> list[ClassicNode]:
        leaves, waiting = [], [self.root]
        while waiting:
            node = waiting.pop()
            self.touched += 1
            if node.children:
                waiting.extend(node.children.values())
            else:
                leaves.append(node)
        return leaves

    def _add_locks(self, node: ClassicNode, count: int) -> None:
        above: ClassicNode | None = node
        while above is not None and above.parent is not None:
            above.locks += count
            above = above.parent


def _common(key: Sequence[int], tokens: Sequence[int]) -> int:
    same = 0
    for left, right in zip(key, tokens, strict=False):
        if left != right:
            break
        same += 1
    return same


def _split(node: ClassicNode, at: int) -> ClassicNode:
    """Cut an edge; returns the new upper half."""
    upper = ClassicNode(node.parent, node.key[:at], node.slots[:at], locks=node.locks, used=node.used)
    assert node.parent is not None
    node.parent.children[node.key[0]] = upper
    node.key, node.slots, node.parent = node.key[at:], node.slots[at:], upper
    upper.children[node.key[0]] = node
    return upper
