"""The proof of the hash index must fail when its books are wrong, and name what is wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cache.helpers import NS, OTHER, begin, blocks_of, store, toks
from sapwood.cache import PrefixCache
from sapwood.cache.block import Block
from sapwood.cache.blocks import BlockCursor
from sapwood.config import CacheConfig
from sapwood.errors import BooksError


def damaged(damage: Callable[[PrefixCache], object]) -> PrefixCache:
    """Two branches behind one block, the second leased; one ghost; one lease from before a flush."""
    cache = PrefixCache(20, CacheConfig(prefix_index="blocks"))
    begin(cache, toks(9))
    cache.flush()
    store(cache, toks(1, 2, 3, 4))
    blocks_of(cache).advance(5.0)
    cache._pool.free(blocks_of(cache).evict(1))
    begin(cache, toks(1, 8, 7))
    cache.check()
    damage(cache)
    return cache


def block(cache: PrefixCache, token: int) -> Block:
    return next(block for block in blocks_of(cache).map if block.content == toks(token).tobytes())


def cursor_of(cache: PrefixCache, pages: int) -> BlockCursor:
    cursor = next(lease.cursor for lease in cache._leases if lease.cursor.pages == pages)
    assert isinstance(cursor, BlockCursor)
    return cursor


def two_blocks_own_a_page(cache: PrefixCache) -> None:
    block(cache, 2).page = block(cache, 3).page


def a_pin_is_lost(cache: PrefixCache) -> None:
    block(cache, 7).pins -= 1


def a_pin_is_too_many(cache: PrefixCache) -> None:
    block(cache, 2).pins += 1


def the_tokens_changed(cache: PrefixCache) -> None:
    block(cache, 2).content = toks(6).tobytes()


def one_that_is_held_says_it_is_not(cache: PrefixCache) -> None:
    block(cache, 1).filed = False


def the_parent_changed(cache: PrefixCache) -> None:
    block(cache, 3).parent = block(cache, 1)


def a_block_is_filed_under_another_hash(cache: PrefixCache) -> None:
    block(cache, 2).hash = block(cache, 3).hash


def a_prefix_is_held_twice(cache: PrefixCache) -> None:
    first = block(cache, 3)
    blocks_of(cache).map.add(Block(19, first.hash, first.parent, first.content))


def a_chain_of_alikes_runs_in_a_circle(cache: PrefixCache) -> None:
    block(cache, 3).alike = block(cache, 3)


def a_parent_was_forgotten(cache: PrefixCache) -> None:
    blocks_of(cache).map.remove(block(cache, 2))


def a_pinned_block_was_forgotten(cache: PrefixCache) -> None:
    blocks_of(cache).map.remove(block(cache, 7))


def a_flushed_block_came_back(cache: PrefixCache) -> None:
    flushed = cursor_of(cache, 1).end
    assert isinstance(flushed, Block)
    blocks_of(cache).map.add(flushed)


def a_block_left_the_queue(cache: PrefixCache) -> None:
    blocks_of(cache).queue.pop()


def a_pinned_block_is_queued(cache: PrefixCache) -> None:
    blocks_of(cache).queue.append(block(cache, 7))


def the_queue_turned_round(cache: PrefixCache) -> None:
    queue = blocks_of(cache).queue
    queue.append(queue.pop())


def a_link_is_wrong(cache: PrefixCache) -> None:
    block(cache, 3).before = block(cache, 1)


def the_queue_forgot_its_end(cache: PrefixCache) -> None:
    blocks_of(cache).queue._tail = None


def the_queue_miscounts(cache: PrefixCache) -> None:
    blocks_of(cache).queue._size += 1


def a_cursor_is_elsewhere(cache: PrefixCache) -> None:
    cursor_of(cache, 3).namespace = OTHER


def a_held_block_has_a_ghost(cache: PrefixCache) -> None:
    blocks_of(cache).ghosts.evicted(block(cache, 3), 5.0, keep=True)


def there_are_too_many_ghosts(cache: PrefixCache) -> None:
    blocks_of(cache).ghosts._bound = 0


def a_ghost_is_from_the_future(cache: PrefixCache) -> None:
    blocks_of(cache).advance(4.0)


def followers_are_miscounted(cache: PrefixCache) -> None:
    blocks_of(cache).ghosts.held(Block(0, b"x", block(cache, 1), b""))


def the_sum_drifted(cache: PrefixCache) -> None:
    blocks_of(cache).pages += 1


def the_leased_sum_drifted(cache: PrefixCache) -> None:
    blocks_of(cache).leased -= 1


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (two_blocks_own_a_page, r"page \d+ belongs to block \[.\] on page \d+.* and to block \[.\]"),
        (a_pin_is_lost, r"block \[7\] .*, 0 pins is in the paths of 1 cursors"),
        (a_pin_is_too_many, r"block \[2\] .*, 1 pins is in the paths of 0 cursors"),
        (the_tokens_changed, r"block \[6\] .* has the hash of other tokens"),
        (one_that_is_held_says_it_is_not, r"block \[1\] .* can be found and says that it cannot"),
        (the_parent_changed, r"block \[3\] .* has the hash of other tokens or another parent"),
        (a_block_is_filed_under_another_hash, r"block \[2\] .* is filed under the hash of another"),
        (a_prefix_is_held_twice, r"block \[3\] .* is held twice"),
        (a_chain_of_alikes_runs_in_a_circle, r"block \[3\] .* is filed twice"),
        (a_parent_was_forgotten, r"block \[3\] .* follows one that cannot be found"),
        (a_pinned_block_was_forgotten, r"block \[7\] .* is pinned and cannot be found"),
        (a_flushed_block_came_back, r"block \[9\] .* was flushed and can be found"),
        (a_block_left_the_queue, r"block \[3\] .* is missing from the free queue"),
        (a_pinned_block_is_queued, r"block \[7\] .* is in the free queue and must not be"),
        (the_queue_turned_round, r"block \[3\] .* is to be evicted after its parent"),
        (a_link_is_wrong, r"block \[3\] .* has another block before it"),
        (the_queue_forgot_its_end, r"the free queue ends with block \[2\] .*, its books with None"),
        (the_queue_miscounts, "the free queue counts 3 blocks; a recount gives 2"),
        (a_cursor_is_elsewhere, r"a cursor of .*other.* stands in .*model"),
        (a_held_block_has_a_ghost, r"block \[3\] .* is held and has a ghost"),
        (there_are_too_many_ghosts, "1 ghosts are kept, at most 0 may be"),
        (a_ghost_is_from_the_future, "not in the order in which they were evicted"),
        (followers_are_miscounted, "not as many as a recount gives"),
        (the_sum_drifted, "pages = 7; a recount gives 6"),
        (the_leased_sum_drifted, "leased = 3; a recount gives 4"),
    ],
)
def test_check_finds_the_damage_and_names_it(damage: Callable[[PrefixCache], None], says: str) -> None:
    with pytest.raises(BooksError, match=says):
        damaged(damage).check()


def test_a_cursor_that_miscounts_its_path_is_found() -> None:
    cache = damaged(blocks_of)
    cursor = blocks_of(cache).pin(NS, toks(1, 8))
    assert isinstance(cursor, BlockCursor)
    cursor.pages = 1
    with pytest.raises(BooksError, match="a cursor counts 1 pages of another path"):
        blocks_of(cache).check([cursor], claims=None)  # type: ignore[arg-type]
