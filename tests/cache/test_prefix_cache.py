"""The façade: leases, growth, commits, eviction order, flush, and that failing calls change nothing."""

from __future__ import annotations

import numpy as np
import pytest

from cache.helpers import (
    NS,
    OTHER,
    NewCache,
    begin,
    joined,
    matched,
    pages_of,
    prefixes_of,
    span,
    store,
    toks,
)
from sapwood.cache import Books, Flushed, Match, PrefixCache
from sapwood.errors import BooksError, OutOfPagesError, UsageError

# ── match and lease ──────────────────────────────────────────────────────────────────────────────────────────────


def test_an_empty_cache_matches_nothing_and_has_all_its_room(new_cache: NewCache) -> None:
    cache = new_cache(10, 4)
    assert cache.match(NS, span(0, 9)) == Match(NS, 0)
    assert (cache.page_size, cache.capacity_pages, cache.room()) == (4, 10, 40)
    assert cache.books() == Books(10, 0, 0, 0, 10, 0, 0)
    cache.check()


@pytest.mark.parametrize(
    ("page_size", "limit", "expected"),
    [(1, None, 10), (1, 9, 9), (1, 0, 0), (4, None, 8), (4, 7, 4), (4, 3, 0), (4, 8, 8), (16, None, 0)],
)
def test_a_lease_takes_at_most_its_limit_in_whole_pages(
    new_cache: NewCache, page_size: int, limit: int | None, expected: int
) -> None:
    cache = new_cache(20, page_size)
    store(cache, span(0, 10))
    lease = cache.lease(NS, span(0, 10), limit)
    assert lease.matched == lease.covered == lease.committed == expected
    cache.check()


def test_an_exact_repeat_with_its_last_token_held_back_shares_all_but_one_page(new_cache: NewCache) -> None:
    cache = new_cache(20)
    store(cache, span(0, 10))
    before = pages_of(cache, span(0, 10))
    repeat = cache.lease(NS, span(0, 10), limit=9)
    assert repeat.table.tolist() == before[:9]
    cache.grow(repeat, 10)
    cache.commit(repeat, span(0, 10))
    assert repeat.table.tolist() == before
    assert cache.books().tree == 10
    cache.check()


def test_a_second_request_hits_while_the_first_still_runs(new_cache: NewCache) -> None:
    cache = new_cache(11, 16)
    first = begin(cache, span(0, 55))
    assert (len(first.table), first.committed) == (4, 48)
    second = cache.lease(NS, joined(span(0, 48), span(500, 505)))
    cache.grow(second, 53)
    assert second.table[:3].tolist() == first.table[:3].tolist()
    assert second.table[3] != first.table[3]
    assert cache.books() == Books(6, 3, 3, 2, 11, 0, 48)
    cache.check()


def test_leasing_moves_pages_from_evictable_to_leased_and_back(new_cache: NewCache) -> None:
    cache = new_cache(10)
    store(cache, toks(1, 2, 3))
    assert (cache.books().leased, cache.books().evictable, cache.room()) == (0, 3, 10)
    leases = [cache.lease(NS, toks(1, 2, 3)) for _ in range(2)]
    assert (cache.books().leased, cache.books().evictable, cache.room()) == (3, 0, 7)
    cache.release(leases[0])
    assert cache.books().leased == 3
    cache.release(leases[1])
    assert (cache.books().leased, cache.books().evictable, cache.room()) == (0, 3, 10)


def test_tokens_of_another_type_are_refused_instead_of_missed(new_cache: NewCache) -> None:
    cache = new_cache(4, 2)
    wide = np.arange(4)
    lease = cache.lease(NS, toks())
    cache.grow(lease, 4)
    with pytest.raises(BooksError, match="tokens are int64; they must be int32"):
        cache.match(NS, wide)  # type: ignore[arg-type]
    with pytest.raises(BooksError, match="int32"):
        cache.lease(NS, wide)  # type: ignore[arg-type]
    with pytest.raises(BooksError, match="int32"):
        cache.commit(lease, wide)  # type: ignore[arg-type]
    cache.check()


# ── grow ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_growing_covers_the_length_in_whole_pages_and_only_once(new_cache: NewCache) -> None:
    cache = new_cache(10, 4)
    lease = cache.lease(NS, toks())
    for length, pages in ((1, 1), (4, 1), (5, 2), (3, 2), (0, 2)):
        cache.grow(lease, length)
        assert (len(lease.table), lease.covered) == (pages, 4 * pages)
    assert len(set(lease.table.tolist())) == 2


def test_growing_beyond_the_room_changes_nothing(new_cache: NewCache) -> None:
    cache = new_cache(10)
    reader = begin(cache, span(0, 4))
    store(cache, span(50, 53))
    lease = cache.lease(NS, toks(9))
    cache.grow(lease, 1)
    before, table = cache.books(), lease.table.tolist()
    with pytest.raises(
        OutOfPagesError, match="6 pages are needed; of 10, 2 are free and 3 can be evicted"
    ) as caught:
        cache.grow(lease, 7)
    assert caught.value.hint is not None
    assert (cache.books(), lease.table.tolist()) == (before, table)
    assert matched(cache, span(50, 53)) == 3
    cache.check()
    cache.grow(lease, 6)
    assert cache.books().free == 0
    assert matched(cache, span(0, 4)) == reader.covered


def test_the_whole_pool_can_be_had_by_one_lease(new_cache: NewCache) -> None:
    cache = new_cache(6, 4)
    for start in (0, 100, 200):
        store(cache, span(start, start + 8))
    lease = cache.lease(OTHER, toks())
    cache.grow(lease, 24)
    assert sorted(lease.table.tolist()) == list(range(6))
    assert cache.room() == 0
    cache.check()


# ── commit ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_only_full_pages_are_committed(new_cache: NewCache) -> None:
    cache = new_cache(10, 4)
    lease = cache.lease(NS, span(0, 11))
    cache.grow(lease, 11)
    for length, committed in ((3, 0), (4, 4), (7, 4), (11, 8), (5, 8)):
        cache.commit(lease, span(0, length))
        assert lease.committed == matched(cache, span(0, 11)) == committed
        cache.check()
    cache.release(lease)
    assert cache.books() == Books(8, 2, 0, 0, 10, 0, 8)


def test_nothing_can_be_found_before_it_is_committed(new_cache: NewCache) -> None:
    cache = new_cache(10)
    lease = cache.lease(NS, span(0, 5))
    cache.grow(lease, 5)
    assert matched(cache, span(0, 5)) == 0
    cache.commit(lease, span(0, 2))
    assert matched(cache, span(0, 5)) == 2


def test_a_duplicate_moves_the_table_to_the_copy_that_stays(new_cache: NewCache) -> None:
    cache = new_cache(20, 2)
    first = cache.lease(NS, span(0, 8))
    second = cache.lease(NS, span(0, 8))
    for lease in (first, second):
        cache.grow(lease, 8)
    cache.commit(first, span(0, 8))
    own = second.table.tolist()
    cache.commit(second, joined(span(0, 4), span(70, 74)))
    assert second.table.tolist() == first.table.tolist()[:2] + own[2:]
    assert set(own[:2]) <= set(cache._pool.free_pages.tolist())
    assert cache.books() == Books(14, 6, 6, 0, 20, 0, 12)
    cache.check()


def test_one_that_read_nothing_still_shares_what_it_computed(new_cache: NewCache) -> None:
    """Reuse off for one request: its lease begins empty, its commits find the pages that are there."""
    cache = new_cache(20)
    store(cache, span(0, 6))
    lease = cache.lease(NS, span(0, 6), limit=0)
    cache.grow(lease, 6)
    own = lease.table.tolist()
    cache.commit(lease, span(0, 6))
    assert lease.matched == 0
    assert lease.table.tolist() == pages_of(cache, span(0, 6)) != own
    assert cache.books().tree == 6
    cache.check()


def test_committing_more_than_is_covered_is_a_bug_and_says_so(new_cache: NewCache) -> None:
    cache = new_cache(10)
    lease = begin(cache, span(0, 3))
    with pytest.raises(BooksError, match="4 tokens are committed to a lease of 3 tokens, 3 committed"):
        cache.commit(lease, span(0, 4))


# ── release ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("page_size", [1, 4])
def test_release_frees_what_was_not_committed_and_keeps_the_rest(new_cache: NewCache, page_size: int) -> None:
    cache = new_cache(20, page_size)
    store(cache, span(0, 4))
    lease = cache.lease(NS, span(0, 9))
    cache.grow(lease, 9)
    private = lease.private.tolist()
    cache.release(lease)
    assert set(private) <= set(cache._pool.free_pages.tolist())
    assert matched(cache, span(0, 9)) == 4
    assert cache.books().private == cache.books().leased == 0
    cache.check()


def test_a_second_release_does_nothing(new_cache: NewCache) -> None:
    cache = new_cache(10)
    first, second = begin(cache, span(0, 4)), begin(cache, span(0, 4))
    cache.release(first)
    books = cache.books()
    cache.release(first)
    assert cache.books() == books
    assert books.leased == 4
    cache.release(second)
    assert cache.books().leased == 0
    cache.check()


def test_a_lease_cannot_be_used_after_its_release_or_with_another_cache(new_cache: NewCache) -> None:
    cache, other = new_cache(10), new_cache(10)
    lease = begin(cache, span(0, 4))
    with pytest.raises(BooksError, match="does not hold"):
        other.release(lease)
    cache.release(lease)
    with pytest.raises(BooksError, match="does not hold"):
        cache.grow(lease, 5)
    with pytest.raises(BooksError, match="does not hold"):
        cache.commit(lease, span(0, 1))


# ── eviction ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_least_recently_used_leaf_goes_first_from_its_tail(new_cache: NewCache) -> None:
    cache = new_cache(9)
    for start in (0, 10, 20):
        store(cache, span(start, start + 3))
    cache.release(cache.lease(NS, span(0, 3)))
    greedy = cache.lease(OTHER, toks())
    lengths = []
    for pages in range(1, 10):
        cache.grow(greedy, pages)
        lengths.append(tuple(matched(cache, span(start, start + 3)) for start in (0, 10, 20)))
        cache.check()
    assert lengths[:4] == [(3, 2, 3), (3, 1, 3), (3, 0, 3), (3, 0, 2)]
    assert lengths[5:] == [(3, 0, 0), (2, 0, 0), (1, 0, 0), (0, 0, 0)]
    assert cache.books().evicted_tokens == 9


def test_a_lease_counts_as_used_until_it_ends(new_cache: NewCache) -> None:
    cache = new_cache(4)
    long, short = begin(cache, toks(1, 1)), begin(cache, toks(2, 2))
    cache.release(short)
    cache.release(long)
    cache.grow(cache.lease(OTHER, toks()), 2)
    assert (matched(cache, toks(1, 1)), matched(cache, toks(2, 2))) == (2, 0)


def test_a_parent_whose_last_child_left_becomes_a_leaf_with_its_own_age(new_cache: NewCache) -> None:
    cache = new_cache(7)
    store(cache, toks(1, 1, 5))
    store(cache, toks(1, 1, 6))
    store(cache, toks(9, 9))
    cache.release(cache.lease(NS, toks(1, 1)))
    greedy = cache.lease(OTHER, toks())
    cache.grow(greedy, 5)
    assert (matched(cache, toks(1, 1)), matched(cache, toks(9, 9))) == (2, 0)
    cache.check()
    cache.grow(greedy, 6)
    assert matched(cache, toks(1, 1)) == 1
    cache.check()


def test_pinned_pages_and_all_before_them_stay_whatever_is_asked(new_cache: NewCache) -> None:
    cache = new_cache(12)
    store(cache, toks(1, 2, 3, 4))
    store(cache, toks(1, 2, 7, 8))
    store(cache, toks(1, 2, 3, 4, 5, 6))
    pinned = cache.lease(NS, toks(1, 2, 3, 4))
    cache.grow(cache.lease(OTHER, toks()), cache.room())
    assert matched(cache, toks(1, 2, 3, 4, 5, 6)) == 4
    assert matched(cache, toks(1, 2, 7, 8)) == 2
    assert pinned.table.tolist() == pages_of(cache, toks(1, 2, 3, 4))
    cache.check()


def test_pinning_twice_takes_releasing_twice(new_cache: NewCache) -> None:
    cache = new_cache(4)
    first, second = begin(cache, span(0, 4)), cache.lease(NS, span(0, 4))
    cache.release(first)
    assert cache.room() == 0
    cache.release(second)
    assert cache.room() == 4


def test_a_leased_hit_is_not_the_victim_of_its_own_growth(new_cache: NewCache) -> None:
    cache = new_cache(2, 4)
    store(cache, span(0, 4))
    store(cache, span(50, 54))
    lease = cache.lease(NS, span(0, 8))
    kept = lease.table.tolist()
    cache.grow(lease, 8)
    assert lease.table.tolist()[:1] == kept
    assert matched(cache, span(50, 54)) == 0
    cache.check()


# ── flush ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_flushing_an_idle_cache_frees_everything(new_cache: NewCache) -> None:
    cache = new_cache(20, 2)
    store(cache, span(0, 10))
    store(cache, span(0, 6), OTHER)
    assert cache.flush() == Flushed(flushed_tokens=16, kept_tokens=0)
    assert cache.books() == Books(20, 0, 0, 0, 20, 0, 0)
    assert matched(cache, span(0, 10)) == 0
    assert cache.flush() == Flushed(0, 0)
    cache.check()


def test_running_leases_survive_a_flush_but_nothing_old_matches(new_cache: NewCache) -> None:
    cache = new_cache(30)
    store(cache, span(50, 55))
    running = begin(cache, span(0, 6))
    reader = cache.lease(NS, span(0, 4))
    cache.grow(running, 8)
    table = running.table.tolist()
    assert cache.flush() == Flushed(flushed_tokens=5, kept_tokens=6)
    cache.check()
    assert running.table.tolist() == table
    assert matched(cache, span(0, 6)) == matched(cache, span(50, 55)) == 0
    cache.commit(running, span(0, 8))
    assert (running.committed, matched(cache, span(0, 8))) == (6, 0)
    cache.release(running)
    cache.check()
    assert cache.books() == Books(26, 4, 4, 0, 30, 0, 4)
    assert sorted(reader.table.tolist()) == sorted(table[:4])
    cache.release(reader)
    assert cache.books().free == 30
    cache.check()


def test_a_lease_from_before_a_flush_commits_nothing_even_if_it_had_committed_nothing(
    new_cache: NewCache,
) -> None:
    cache = new_cache(10)
    early = cache.lease(NS, span(0, 4))
    cache.grow(early, 4)
    cache.flush()
    cache.commit(early, span(0, 4))
    assert (early.committed, matched(cache, span(0, 4))) == (0, 0)
    cache.grow(early, 5)
    late = begin(cache, span(0, 4))
    assert matched(cache, span(0, 4)) == 4
    cache.release(early)
    cache.check()
    cache.release(late)
    assert matched(cache, span(0, 4)) == 4
    assert cache.books() == Books(6, 4, 0, 0, 10, 0, 4)


def test_what_was_flushed_and_is_still_read_is_no_room(new_cache: NewCache) -> None:
    cache = new_cache(10)
    old = begin(cache, span(0, 6))
    cache.flush()
    store(cache, span(0, 4))
    assert cache.room() == 4
    assert len({*old.table.tolist(), *pages_of(cache, span(0, 4))}) == 10
    with pytest.raises(OutOfPagesError):
        cache.grow(cache.lease(NS, toks(9)), 5)
    cache.release(old)
    assert cache.room() == 10
    cache.check()


def test_flushes_pile_up_and_are_all_let_go(new_cache: NewCache) -> None:
    cache = new_cache(20)
    leases = []
    for _ in range(4):
        leases.append(begin(cache, span(0, 5)))
        cache.flush()
        cache.check()
    assert cache.books().leased == 20
    for lease in leases:
        cache.release(lease)
        cache.check()
    assert cache.books().free == 20
    assert list(prefixes_of(cache)) == []


def test_a_cache_without_pages_is_refused() -> None:
    with pytest.raises(UsageError, match="at least 1"):
        PrefixCache(0)


def test_what_a_lease_would_pin_is_no_room_beside_it(new_cache: NewCache) -> None:
    cache = new_cache(50)
    store(cache, span(0, 30))
    assert cache.room() == 50
    assert cache.room_beside(NS, span(0, 30)) == 20
    assert cache.room_beside(NS, span(0, 30), 12) == 38
    assert cache.room_beside(NS, joined(span(0, 10), span(500, 510))) == 40
    assert cache.room_beside(NS, span(500, 510)) == cache.room_beside(OTHER, span(0, 30)) == 50
    begin(cache, span(0, 10))
    # Ten are pinned already: they are no room to anyone, and are not taken off twice.
    assert cache.room() == 40
    assert cache.room_beside(NS, span(0, 30)) == 20
    cache.check()


def test_asking_for_room_does_not_delay_an_eviction(new_cache: NewCache) -> None:
    cache = new_cache(20)
    store(cache, span(0, 10))
    store(cache, span(100, 110))
    cache.room_beside(NS, span(0, 10))
    begin(cache, span(200, 205))
    assert (matched(cache, span(0, 10)), matched(cache, span(100, 110))) == (5, 10)
