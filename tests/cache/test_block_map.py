"""Blocks by hash: one or many under a hash, each found by its tokens and the block before alone. Behaviours 76, 77."""

from __future__ import annotations

import itertools

import pytest

from cache.helpers import NS, OTHER
from sapwood.cache.block import Block
from sapwood.cache.block_map import BlockMap
from sapwood.errors import BooksError


def colliding() -> tuple[BlockMap, list[Block]]:
    """Same hash, and as much else the same as may be."""
    first = Block(0, b"h", NS, b"aaaa")
    blocks = [
        first,
        Block(1, b"h", NS, b"bbbb"),
        Block(2, b"h", OTHER, b"aaaa"),
        Block(3, b"h", first, b"aaaa"),
    ]
    held = BlockMap()
    for block in blocks:
        held.add(block)
    return held, blocks


def test_blocks_of_one_hash_are_told_apart_by_tokens_and_parent() -> None:
    held, blocks = colliding()
    for block in blocks:
        assert held.find(b"h", block.parent, block.content) is block
    assert held.find(b"h", blocks[1], b"aaaa") is None
    assert held.find(b"h", NS, b"cccc") is None
    assert held.find(b"g", NS, b"aaaa") is None


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_each_can_be_taken_out_and_leaves_the_rest(order: tuple[int, ...]) -> None:
    held, blocks = colliding()
    left = set(blocks)
    for which in order:
        held.remove(blocks[which])
        left.remove(blocks[which])
        assert set(held) == left
        assert (b"h" in held) == bool(left)
    assert list(held.filed()) == []


def test_an_unknown_block_is_refused_and_the_rest_stay() -> None:
    held, blocks = colliding()
    for stranger in (Block(1, b"h", NS, b"bbbb"), Block(9, b"g", NS, b"aaaa")):
        with pytest.raises(BooksError, match="cannot be found"):
            held.remove(stranger)
    assert set(held) == set(blocks)
