"""The cache that ours is compared with does what a radix cache does."""

from __future__ import annotations

import numpy as np
import pytest
from bench.cache.classic import ClassicNode, ClassicTree
from bench.cache.contenders import Classic, Contender
from bench.cache.operations import CLASSIC, contenders
from numpy.typing import NDArray


def stored(tree: ClassicTree, tokens: list[int]) -> ClassicNode:
    found, _ = tree.match(tokens)
    slots = np.concatenate([found, tree.alloc(len(tokens) - len(found))])
    assert tree.insert(tokens, slots) == len(found)
    return tree.match(tokens)[1]


def slots_held(tree: ClassicTree) -> list[int]:
    held, waiting = tree.free.tolist(), [tree.root]
    while waiting:
        node = waiting.pop()
        held += node.slots.tolist()
        assert len(node.key) == len(node.slots)
        assert all(first == child.key[0] and child.parent is node for first, child in node.children.items())
        waiting += node.children.values()
    return sorted(held)


def test_a_prefix_is_found_where_prompts_part() -> None:
    tree = ClassicTree(20)
    stored(tree, [1, 2, 3, 4])
    stored(tree, [1, 2, 7])
    assert [len(tree.match(tokens)[0]) for tokens in ([1, 2, 3, 4, 5], [1, 2, 7], [1, 2, 9], [9], [])] == [
        4, 3, 2, 0, 0
    ]  # fmt: skip
    assert tree.match([1, 2, 7])[0].tolist() == [0, 1, 4]
    assert slots_held(tree) == list(range(20))


def test_the_oldest_unlocked_leaf_goes_whole() -> None:
    tree = ClassicTree(12)
    end = stored(tree, [1, 2, 3])
    stored(tree, [4, 5, 6])
    stored(tree, [7, 8, 9])
    tree.lock(end)
    assert tree.evict(1) == 3
    assert [len(tree.match([first])[0]) for first in (1, 4, 7)] == [1, 0, 1]
    assert tree.evict(100) == 3
    tree.unlock(tree.match([1, 2, 3])[1])
    assert tree.evict(100) == 3
    assert slots_held(tree) == list(range(12))


def test_each_eviction_looks_at_every_node() -> None:
    tree = ClassicTree(100)
    for leaf in range(10):
        stored(tree, [leaf, leaf, leaf])
    tree.evict(1)
    assert tree.touched == 11
    tree.evict(1)
    assert tree.touched == 11 + 10


@pytest.mark.parametrize("name", list(contenders(64)))
def test_all_contenders_find_what_was_stored_and_make_room_when_full(name: str) -> None:
    contender: Contender = contenders(96)[name]
    tokens: NDArray[np.int32] = np.arange(64, dtype=np.int32)
    contender.store(contender.prompt(tokens[:32]))
    contender.begin(contender.prompt(tokens[:48]), len(tokens))
    for end in range(49, 65):
        contender.decoded(contender.prompt(tokens[:end]))
    assert contender.match(contender.prompt(tokens)) == 64
    contender.store(contender.prompt(-1 - tokens[:16]))
    contender.use_up()
    contender.take_page()
    assert contender.match(contender.prompt(tokens)) == 64
    assert contender.match(contender.prompt(-1 - tokens[:16])) < 16


def test_a_request_that_runs_in_the_classic_cache_holds_its_slots_once() -> None:
    classic = contenders(20)[CLASSIC]
    assert isinstance(classic, Classic)
    classic.begin([1, 2, 3], 5)
    classic.decoded([1, 2, 3, 4])
    classic.decoded([1, 2, 3, 4, 5])
    classic.store([1, 2, 3, 9])
    assert slots_held(classic.tree) == list(range(20))
    assert len(classic.tree.free) == 14
