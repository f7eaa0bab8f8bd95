from __future__ import annotations

from cache.helpers import NS, begin, span, store, toks
from sapwood.cache import PrefixCache
from sapwood.config import CacheConfig


def test_an_empty_lease_covers_nothing() -> None:
    lease = PrefixCache(4).lease(NS, toks(1, 2))
    assert lease.live
    assert (lease.matched, lease.committed, lease.covered) == (0, 0, 0)
    assert lease.table.tolist() == []


def test_the_four_lengths_of_a_lease_at_work() -> None:
    cache = PrefixCache(20, CacheConfig(page_size=4))
    store(cache, span(0, 9))
    lease = cache.lease(NS, span(0, 20))
    assert (lease.matched, lease.committed, lease.covered) == (8, 8, 8)
    cache.grow(lease, 17)
    assert (lease.matched, lease.committed, lease.covered) == (8, 8, 20)
    cache.commit(lease, span(0, 15))
    assert (lease.matched, lease.committed, lease.covered) == (8, 12, 20)
    assert lease.private.tolist() == lease.table[3:].tolist()


def test_a_released_lease_reads_nothing_any_more() -> None:
    cache = PrefixCache(8)
    lease = begin(cache, span(0, 4))
    cache.grow(lease, 6)
    cache.release(lease)
    assert not lease.live
    assert (lease.covered, lease.committed) == (0, 0)
    assert lease.table.tolist() == lease.private.tolist() == []


def test_the_printed_form_says_how_far_it_is() -> None:
    cache = PrefixCache(8)
    lease = begin(cache, span(0, 4))
    cache.grow(lease, 6)
    assert repr(lease) == "lease of 6 tokens, 4 committed"
    cache.release(lease)
    assert repr(lease) == "released lease of 0 tokens, 0 committed"
