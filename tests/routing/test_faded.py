"""What was given up is known for a while, by every eighth block."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from routing.helpers import NS, blocks
from sapwood.routing import BlockKey, block_keys
from sapwood.routing.block_tree import BlockTree
from sapwood.routing.faded import Faded


def keys_of(name: int, count: int) -> list[BlockKey]:
    return block_keys(NS, blocks(name, *range(100, 99 + count)))


def give_up(faded: Faded, keys: list[BlockKey], capacity: int = 100) -> None:
    """Tails first, as a replica does."""
    for block in reversed(BlockTree().grown(keys)):
        faded.add(block, capacity)


def test_of_a_prefix_that_was_held_once_every_eighth_block_is_known() -> None:
    faded = Faded()
    give_up(faded, keys_of(0, 21))
    assert [faded.blocks(keys_of(0, count), 0) for count in (7, 8, 15, 16, 21, 40)] == [0, 8, 8, 16, 16, 16]
    assert faded.blocks(keys_of(1, 21), 0) == 0
    assert [faded.blocks(keys_of(0, 21), held) for held in (8, 12, 15, 16, 20)] == [16, 16, 16, 0, 0]
    assert len(faded) == 2


def test_one_key_is_kept_for_each_block_that_the_replica_holds() -> None:
    faded = Faded()
    for name in range(9):
        give_up(faded, keys_of(name, 16), capacity=8)
    assert len(faded) == 8
    assert [faded.blocks(keys_of(name, 16), 0) for name in range(9)] == [0] * 5 + [16] * 4


def test_what_follows_a_block_that_is_surely_gone_is_gone_too() -> None:
    faded, keys = Faded(), keys_of(0, 24)
    give_up(faded, keys)
    faded.discard(keys[15])
    assert [faded.blocks(keys, held) for held in (0, 8, 16)] == [8, 0, 24]
    assert faded.blocks(keys, 0, {keys[15]}) == 24


@given(
    gone=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30)), max_size=12),
    asked=st.tuples(st.integers(0, 3), st.integers(0, 40)),
    capacity=st.integers(0, 6),
    held=st.integers(0, 40),
)
def test_it_is_what_a_list_of_all_that_was_given_up_says(
    gone: list[tuple[int, int]], asked: tuple[int, int], capacity: int, held: int
) -> None:
    faded, known = Faded(), list[BlockKey]()
    for name, count in gone:
        keys = keys_of(name, count + 1)
        give_up(faded, keys, capacity)
        for end in range(len(keys) // 8 * 8, 0, -8):
            known = [key for key in known if key != keys[end - 1]] + [keys[end - 1]]
            known = known[max(0, len(known) - capacity) :]
    keys = keys_of(asked[0], asked[1] + 1)
    ends = range(held // 8 * 8 + 8, len(keys) + 1, 8)
    most = max((n for n in ends if all(keys[m - 1] in known for m in ends if m <= n)), default=0)
    assert faded.blocks(keys, held) == most
