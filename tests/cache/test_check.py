"""The proof must fail when the books are wrong, and name who is wrong."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cache.helpers import begin, nodes_of, radix_of, span, store, toks
from sapwood.cache import PrefixCache
from sapwood.cache.check import FEW, Claims
from sapwood.cache.node import Node
from sapwood.errors import BooksError


def test_a_page_has_one_owner() -> None:
    claims = Claims(3)
    claims.claim(toks(0, 2), "node a")
    with pytest.raises(BooksError, match="page 2 belongs to node a and to node b"):
        claims.claim(toks(1, 2), "node b")


def test_a_page_without_owner_is_named() -> None:
    claims = Claims(3)
    claims.claim(toks(0), "node a")
    with pytest.raises(BooksError, match="page 1 belongs to nobody, and 1 more do"):
        claims.settle()


def test_an_unknown_page_is_named() -> None:
    with pytest.raises(BooksError, match="page 3 of node a is not one of 3"):
        Claims(3).claim(toks(3), "node a")


@pytest.mark.parametrize("count", [FEW, FEW + 1, 4 * FEW])
@pytest.mark.parametrize(
    ("at", "page", "told"),
    [
        (20, 999, "page 999 of node b is not one of 500"),
        (20, -1, "page -1 of node b is not one of 500"),
        (20, 103, "page 103 belongs to node b and to node b"),
        (20, 0, "page 0 belongs to node a and to node b"),
    ],
)
def test_many_pages_are_claimed_as_few_are(count: int, at: int, page: int, told: str) -> None:
    claims = Claims(500)
    claims.claim(toks(0), "node a")
    pages = np.arange(100, 100 + count, dtype=np.int32)
    pages[at] = page
    with pytest.raises(BooksError, match=told):
        claims.claim(pages, "node b")


def test_of_many_pages_each_is_claimed() -> None:
    claims = Claims(4 * FEW)
    claims.claim(np.arange(1, 4 * FEW, dtype=np.int32)[::-1], "node a")
    with pytest.raises(BooksError, match="page 0 belongs to nobody, and 0 more do"):
        claims.settle()
    with pytest.raises(BooksError, match=f"page {4 * FEW - 1} belongs to node a and to node b"):
        claims.claim(toks(4 * FEW - 1), "node b")


def damaged(damage: Callable[[PrefixCache], None]) -> PrefixCache:
    """Two leaves below one shared node, the second leaf leased; then something is wrong."""
    cache = PrefixCache(20)
    store(cache, toks(1, 1, 2, 2))
    begin(cache, toks(1, 1, 3, 3))
    cache.check()
    damage(cache)
    return cache


def leaf(cache: PrefixCache, key: int) -> Node:
    return next(node for node in nodes_of(cache) if node.key == key)


def two_nodes_own_a_page(cache: PrefixCache) -> None:
    leaf(cache, 2).pages.view[0] = leaf(cache, 3).pages.view[1]


def a_pin_is_lost(cache: PrefixCache) -> None:
    leaf(cache, 3).pins -= 1


def a_pin_is_too_many(cache: PrefixCache) -> None:
    leaf(cache, 2).pins += 1


def a_node_is_filed_under_another_key(cache: PrefixCache) -> None:
    leaf(cache, 2).key = 9


def tokens_changed(cache: PrefixCache) -> None:
    leaf(cache, 2).tokens.view[0] = 9


def a_leaf_left_the_order(cache: PrefixCache) -> None:
    radix_of(cache).order.remove(leaf(cache, 2))


def a_leaf_is_filed_behind_the_books(cache: PrefixCache) -> None:
    radix_of(cache).order.add(leaf(cache, 3))


def a_living_child_is_not_counted(cache: PrefixCache) -> None:
    leaf(cache, 1).living -= 1


def a_leased_node_lacks_a_page(cache: PrefixCache) -> None:
    cache._pool.free(leaf(cache, 3).trim(1))


def a_start_drifted(cache: PrefixCache) -> None:
    leaf(cache, 2).start += 1


def a_ghost_is_not_counted(cache: PrefixCache) -> None:
    cache._pool.free(radix_of(cache).evict(2))
    radix_of(cache).ghosts._nodes -= 1


def a_ghost_cannot_be_forgotten(cache: PrefixCache) -> None:
    cache._pool.free(radix_of(cache).evict(2))
    radix_of(cache).ghosts.keep(radix_of(cache).ghosts.first())


def a_page_got_lost(cache: PrefixCache) -> None:
    cache._pool.alloc(1)


def a_page_is_free_and_in_the_tree(cache: PrefixCache) -> None:
    cache._pool.free(leaf(cache, 2).pages.view[:1])


def the_sum_drifted(cache: PrefixCache) -> None:
    radix_of(cache).pages += 1


def the_leased_sum_drifted(cache: PrefixCache) -> None:
    radix_of(cache).leased -= 1


def the_private_sum_drifted(cache: PrefixCache) -> None:
    cache._private += 1


def a_table_went_astray(cache: PrefixCache) -> None:
    (lease,) = cache._leases
    lease.table[0] = 19


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (
            two_nodes_own_a_page,
            r"page \d+ belongs to node \[. .\] of 2 pages.* and to node \[. .\] of 2 pages",
        ),
        (a_pin_is_lost, r"node \[3 3\] .* has not as many pins"),
        (a_pin_is_too_many, r"node \[2 2\] .* has not as many pins"),
        (a_node_is_filed_under_another_key, r"node \[2 2\] .* has the key of other tokens"),
        (tokens_changed, r"node \[9 2\] .* has the key of other tokens"),
        (a_leaf_left_the_order, r"node \[2 2\] .* is missing from the eviction order"),
        (a_leaf_is_filed_behind_the_books, "2 leaves are in the eviction order, 1 are evictable"),
        (a_living_child_is_not_counted, r"node \[1 1\] .* counts 1 living children; a recount gives 2"),
        (a_leased_node_lacks_a_page, "a lease counts 4 pages of a path of 3|differs from its path"),
        (a_start_drifted, r"node \[2 2\] .* says it starts at page 3"),
        (a_ghost_is_not_counted, "0 ghosts of 2 tokens are counted; a recount gives 1 of 2"),
        (a_ghost_cannot_be_forgotten, r"ghost node \[2 2\] .* is filed wrongly"),
        (a_page_got_lost, r"page \d+ belongs to nobody"),
        (a_page_is_free_and_in_the_tree, r"page \d+ belongs to the free pages and to node \[2 2\]"),
        (the_sum_drifted, "pages = 7; a recount gives 6"),
        (the_leased_sum_drifted, "leased = 3; a recount gives 4"),
        (the_private_sum_drifted, "1 pages are said to be private; a recount gives 0"),
        (a_table_went_astray, "the table of a lease of 4 tokens, 4 committed differs"),
    ],
)
def test_check_finds_the_damage_and_names_it(damage: Callable[[PrefixCache], None], says: str) -> None:
    with pytest.raises(BooksError, match=says):
        damaged(damage).check()


def test_check_finds_memory_that_a_short_run_keeps_alive() -> None:
    cache = PrefixCache(200)
    store(cache, span(0, 150))
    (node,) = nodes_of(cache)
    node.pages._buffer = node.pages._buffer.repeat(3)[:450]
    node.pages._buffer[:150] = span(0, 150)
    with pytest.raises(BooksError, match="keeps 450 elements for 150"):
        cache.check()
