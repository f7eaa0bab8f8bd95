"""The default policy: on its own, and in a cache."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cache.helpers import NS, begin, joined, matched, radix_of, span, store, toks
from cache.test_cost import count_calls
from cache.test_evict import Leaf
from sapwood.cache import PrefixCache
from sapwood.cache.density_order import _MOST_MOVES, DensityOrder
from sapwood.config import CacheConfig
from sapwood.errors import BooksError


def emptied(order: DensityOrder[Leaf]) -> list[int]:
    gone = []
    while order:
        order.check()
        gone.append(order.first().used)
        order.remove(order.first())
    return gone


@given(
    st.lists(
        st.tuples(st.integers(1, 12), st.sampled_from((0.0, 0.1, 0.6, 3.0, 500.0)), st.booleans()),
        max_size=40,
    )
)
def test_before_anything_is_learned_it_is_lru_over_all_classes_and_ages(
    steps: list[tuple[int, float, bool]],
) -> None:
    order: DensityOrder[Leaf] = DensityOrder(1000)
    left: list[Leaf] = []
    for used, (hits, seconds, takes_one) in enumerate(steps):
        left.append(Leaf(used, hits=hits, idle_since=order.now))
        order.add(left[-1])
        order.check()
        order.now += seconds
        if takes_one:
            assert order.first() is left.pop(0)
            order.remove(order.first())
            order.check()
    assert emptied(order) == [leaf.used for leaf in left]


def test_leaves_move_on_as_they_grow_older_and_a_stopped_clock_moves_none() -> None:
    order: DensityOrder[Leaf] = DensityOrder(1000)
    leaves = [Leaf(used, hits=1 + used % 3, idle_since=used * 0.01) for used in range(100)]
    for leaf in leaves:
        order.add(leaf)
    for now in (1.0, 1.0, 1.1, 5.0, 5.0, 1e3, 1e6):
        order.now = now
        for _ in range(1 + 100 // _MOST_MOVES):  # So many are moved at a time.
            order.first()
            order.check()
        assert order.first() is leaves[0]
        assert len(order) == 100
    assert len({id(leaf.filed_in) for leaf in leaves}) == 3


def test_empty_shelves_do_not_pile_up() -> None:
    order: DensityOrder[Leaf] = DensityOrder(1000, attention_pages=4.0)
    for used in range(2000):
        order.now = 0.3 * used
        leaf = Leaf(used, hits=1 + used % 9, idle_since=order.now, depth=used % 500)
        order.add(leaf)
        assert order.first() is leaf
        order.remove(leaf)
    order.now += 1.0
    order.add(Leaf(1))
    order.first()
    assert len(order._shelves) == 1
    order.check()


def test_an_empty_order_has_no_first_and_says_so() -> None:
    order: DensityOrder[Leaf] = DensityOrder(10)
    assert not order
    with pytest.raises(BooksError, match="none is evictable"):
        order.first()


def test_what_is_learned_takes_effect_on_leaves_that_lie_there_already() -> None:
    order: DensityOrder[Leaf] = DensityOrder(100)
    once, twice = Leaf(2, hits=1), Leaf(1, hits=2)
    order.add(once)
    order.add(twice)
    assert order.first() is twice
    for _ in range(30):
        order.density.began_idle(1, 50)
        order.density.began_idle(2, 50)
        order.density.reused(2, 5, 50)
    assert order.first() is once
    order.check()


def test_of_two_leaves_alike_the_deeper_stays_where_attention_is_dear() -> None:
    for attention, first in ((None, 0), (100.0, 1)):
        order: DensityOrder[Leaf] = DensityOrder(100, attention)
        deep, flat = Leaf(0, depth=1000), Leaf(1, depth=10)
        order.add(deep)
        order.add(flat)
        assert order.first() is (deep, flat)[first]


def test_check_finds_a_leaf_on_the_wrong_shelf() -> None:
    order: DensityOrder[Leaf] = DensityOrder(100)
    leaf = Leaf(1)
    order.add(leaf)
    leaf.hits = 3
    with pytest.raises(BooksError, match="wrong shelf"):
        order.check()


# ── in a cache ───────────────────────────────────────────────────────────────────────────────────────────────────


class Traffic:
    """One request after the other through a cache of 200 pages; hits are counted."""

    def __init__(self, policy_seed: int = 0, capacity: int = 200) -> None:
        self.cache = PrefixCache(capacity)
        self.now = 0.0
        self.fresh = 1_000_000
        self.rng = random.Random(policy_seed)

    def request(self, number: int, tokens: int = 20) -> bool:
        """Whether the whole of a prompt was found."""
        self.now += 1.0
        self.cache.advance(self.now)
        prompt = span(1000 * number, 1000 * number + tokens)
        found = matched(self.cache, prompt)
        store(self.cache, prompt)
        self.cache.check()
        return found == tokens

    def one_shot(self) -> None:
        self.fresh += 1000
        self.request(self.fresh // 1000 + 10_000)


def rounds_with_one_shots(traffic: Traffic, rounds: int, working_set: int, one_shots: int) -> list[int]:
    """Hits on the working set in each round, over prompts that are never seen again."""
    hits = []
    for _ in range(rounds):
        hits.append(sum(traffic.request(number) for number in range(working_set)))
        for _ in range(one_shots):
            traffic.one_shot()
    return hits


def test_a_working_set_that_returns_is_kept_over_newer_prompts_that_never_do() -> None:
    """6 prompts of the 10 that fit come back every 30 s, with 24 others in between: LRU would keep none."""
    hits = rounds_with_one_shots(Traffic(), rounds=20, working_set=6, one_shots=24)
    assert hits[0] == 0
    assert min(hits[-8:]) >= 5


def test_one_long_scan_does_not_displace_a_working_set_that_returns() -> None:
    """A pool of ten prompts; six that come back now and then, mixed with one-shots, then thirty one-shots in a row."""
    traffic = Traffic(policy_seed=3)
    for _ in range(800):
        if traffic.rng.random() < 0.4:
            traffic.request(traffic.rng.randrange(6))
        else:
            traffic.one_shot()
    for _ in range(30):
        traffic.one_shot()
    assert (
        sum(matched(traffic.cache, span(1000 * number, 1000 * number + 20)) == 20 for number in range(6)) >= 5
    )


def test_another_working_set_takes_over_when_the_first_no_longer_returns() -> None:
    traffic = Traffic()
    rounds_with_one_shots(traffic, rounds=15, working_set=6, one_shots=14)
    hits = 0
    for round_ in range(40):
        found = sum(traffic.request(500 + number) for number in range(6))
        hits += found if round_ >= 30 else 0
        for _ in range(14):
            traffic.one_shot()
    assert hits >= 50


def test_the_same_traffic_gives_the_same_evictions() -> None:
    def replay() -> list[object]:
        traffic, told = Traffic(7), list[object]()
        for _ in range(300):
            told.append(traffic.request(traffic.rng.randrange(25), traffic.rng.randrange(1, 40)))
        return [*told, traffic.cache.books(), radix_of(traffic.cache).order.first().tokens.view.tolist()]

    assert replay() == replay()


def test_in_a_cache_the_deeper_of_two_leaves_stays_where_attention_is_dear() -> None:
    left = []
    for attention in (None, 20):
        cache = PrefixCache(100, CacheConfig(attention_tokens=attention))
        store(cache, span(0, 60))
        store(cache, joined(span(0, 50), span(500, 510)))
        store(cache, span(900, 910))
        begin(cache, span(700, 725))
        cache.check()
        left.append((matched(cache, span(0, 60)), matched(cache, span(900, 910))))
    assert left == [(55, 10), (60, 5)]


def test_a_policy_that_learns_still_gives_exactly_what_is_missing() -> None:
    cache = PrefixCache(100)
    for start in range(0, 100, 10):
        cache.advance(start * 3.0)
        store(cache, span(start, start + 10))
    lease = cache.lease(NS, toks(-1))
    for length in (1, 4, 17, 18, 60):
        cache.grow(lease, length)
        cache.check()
        assert cache.books().evicted_tokens == length


def test_catching_up_files_again_only_the_shelves_that_it_touches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether there are few shelves or many."""
    filed = []
    for depths in (1, 200):
        order: DensityOrder[Leaf] = DensityOrder(1000, attention_pages=1.0)
        for used in range(2000):
            order.add(Leaf(used, depth=used % depths))
        order.first()
        order.now = 100.0
        order.first()
        worth = count_calls(monkeypatch, order, "_worth")
        order._by_worth._key = order._worth
        for _ in range(20):
            order.first()
        filed.append(worth())
        monkeypatch.undo()
        order._by_worth._key = order._worth
        order.check()
    assert max(filed) <= 20 * (2 * _MOST_MOVES + 2)
