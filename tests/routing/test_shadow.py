"""The shadow against its slow twin, against the real cache, and against what makes routers' tables rot."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from routing.helpers import NS, OTHER, blocks
from routing.twin import Placed, Prefix, SlowShadow
from sapwood.cache import PrefixCache
from sapwood.config import CacheConfig, IndexName
from sapwood.errors import UsageError
from sapwood.routing import BLOCK_TOKENS, BlockKey, Shadow, block_keys
from sapwood.routing.coming import Coming
from sapwood.routing.shadow import BYTES_PER_BLOCK

CAPACITY = 6
replicas = st.integers(0, 2)
names = st.lists(st.integers(0, 2), max_size=8).map(tuple)


def keys_of(path: Prefix) -> list[BlockKey]:
    return block_keys(NS, blocks(*path))


def matched(shadow: Shadow, replica: int, path: Prefix) -> int:
    return shadow.matched(shadow.look(keys_of(path)), replica)


class TwinMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.shadow = Shadow(CAPACITY * BLOCK_TOKENS)
        self.twin = SlowShadow(CAPACITY)
        self.flying: list[tuple[Coming, Placed]] = []
        self.now = 0.0

    @rule(replica=replicas, path=names)
    def place(self, replica: int, path: Prefix) -> None:
        self.now += 1.0
        self.flying.append((self.shadow.place(replica, keys_of(path)), self.twin.place(replica, path)))

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), cut=st.integers(0, 8), reply=names)
    def settle(self, data: st.DataObject, cut: int, reply: Prefix) -> None:
        coming, placed = self._ended(data)
        stored = placed.names[:cut] + reply
        self.shadow.settle(coming, keys_of(stored), self.now)
        self.twin.settle(placed, stored)

    @precondition(lambda self: self.flying)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        coming, placed = self._ended(data)
        self.shadow.withdraw(coming)
        self.twin.withdraw(placed)

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), first=st.integers(0, 8), last=st.integers(0, 8))
    def missed(self, data: st.DataObject, first: int, last: int) -> None:
        coming, placed = data.draw(st.sampled_from(self.flying))
        self.shadow.missed(coming, first, last)
        self.twin.missed(placed, first, last)

    @rule(replica=replicas, path=names, cut=st.integers(0, 8))
    def store(self, replica: int, path: Prefix, cut: int) -> None:
        """All of it, or from where the replica is known to hold what comes before."""
        cut = min(cut, len(path), self.twin.sure(replica, path))
        keys = keys_of(path)
        self.shadow.store(replica, keys[cut:], self.now, after=keys[cut - 1] if cut else None)
        self.twin.store(replica, path)

    @rule(replica=replicas, path=names.filter(bool))
    def drop(self, replica: int, path: Prefix) -> None:
        self.shadow.drop(replica, [b"never heard of", keys_of(path)[-1]])
        self.twin.drop(replica, path)

    @rule(replica=replicas)
    def forget(self, replica: int) -> None:
        self.shadow.forget(replica)
        self.twin.forget(replica)

    @rule(replica=replicas, size=st.integers(0, 8))
    def resize(self, replica: int, size: int) -> None:
        self.shadow.resize(replica, size * BLOCK_TOKENS)
        self.twin.resize(replica, size)

    @rule(replica=replicas, path=names, size=st.integers(0, 8))
    def looked_up(self, replica: int, path: Prefix, size: int) -> None:
        sighting = self.shadow.look(keys_of(path))
        assert self.shadow.matched(sighting, replica) == self.twin.matched(replica, path)
        assert self.shadow.sure(sighting, replica) == self.twin.sure(replica, path)
        assert self.shadow.lost(replica, 3, sighting, self.now) >= 0.0
        smaller = self.twin.cut(replica, min(size, self.twin.sizes.get(replica, CAPACITY)))
        assert self.shadow.matched(sighting, replica, size * BLOCK_TOKENS) == smaller.matched(replica, path)

    @invariant()
    def books_are_right(self) -> None:
        self.shadow.check()
        known: set[Prefix] = set()
        for replica in range(3):
            assert self.shadow.held(replica) == len(self.twin.held.get(replica, []))
            known.update(self.twin.held.get(replica, []), self.twin.coming(replica))
        assert len(self.shadow) == len(known)

    def _ended(self, data: st.DataObject) -> tuple[Coming, Placed]:
        return self.flying.pop(data.draw(st.integers(0, len(self.flying) - 1)))


TestTwin = TwinMachine.TestCase
TestTwin.settings = settings(max_examples=60, stateful_step_count=30)


@pytest.mark.parametrize("index", ["radix", "blocks"])
@given(stream=st.lists(st.tuples(names, names), max_size=30))
def test_it_is_the_real_cache_to_the_block_under_lru(
    index: IndexName, stream: list[tuple[Prefix, Prefix]]
) -> None:
    """Pages of one block, one request after another: the model and the thing agree exactly."""
    cache = PrefixCache(CAPACITY, CacheConfig(BLOCK_TOKENS, index, "lru"))
    shadow = Shadow(CAPACITY * BLOCK_TOKENS)
    for now, (prompt, reply) in enumerate(stream):
        assert matched(shadow, 0, prompt) * BLOCK_TOKENS == cache.match(NS, blocks(*prompt)).tokens
        whole = (prompt + reply)[:CAPACITY]
        lease = cache.lease(NS, blocks(*whole))
        cache.grow(lease, len(whole) * BLOCK_TOKENS)
        cache.commit(lease, blocks(*whole))
        cache.release(lease)
        shadow.settle(shadow.place(0, keys_of(prompt[:CAPACITY])), keys_of(whole), float(now))
        assert shadow.held(0) == cache.books().tree


def test_another_tenant_s_prefix_is_no_match() -> None:
    shadow = Shadow(1000)
    shadow.store(0, block_keys(OTHER, blocks(1, 2)), 0.0)
    assert matched(shadow, 0, (1, 2)) == 0


def test_a_prompt_longer_than_the_cache_evicts_nothing_before_it_has_run() -> None:
    """It may be refused, or fail: whatever happens to it, what was there is there, as likely to go as before."""
    shadow = Shadow(4 * BLOCK_TOKENS)
    for path in ((1, 2), (3, 4)):
        shadow.store(0, keys_of(path), 0.0)
    before = shadow.lost(0, 2, shadow.look([]), 9.0)
    giant, hot = shadow.place(0, keys_of(tuple(range(10, 60)))), shadow.place(0, keys_of((1, 2)))
    assert [matched(shadow, 0, path) for path in ((1, 2), (3, 4), (10, 11))] == [2, 2, 2]
    assert shadow.held(0) == 4
    shadow.withdraw(giant)
    shadow.withdraw(hot)
    assert shadow.lost(0, 2, shadow.look([]), 9.0) == before
    shadow.store(0, keys_of((5,)), 0.0)  # (1, 2) was asked for last, but that failed: it goes first
    assert [matched(shadow, 0, path) for path in ((1, 2), (3, 4))] == [1, 2]
    shadow.check()


def test_one_of_several_requests_for_a_new_document_fails_and_the_others_still_bring_it() -> None:
    shadow, document = Shadow(1000 * BLOCK_TOKENS), (1, 2, 3)
    flying = [shadow.place(0, keys_of((*document, 10 + n))) for n in range(8)]
    shadow.withdraw(flying.pop(3))
    assert matched(shadow, 0, document) == 3
    assert [matched(shadow, 0, (*document, 10 + n)) for n in range(8)] == [4, 4, 4, 3, 4, 4, 4, 4]
    shadow.settle(flying[0], keys_of(document[:1]), 0.0)  # this one was cut short
    assert matched(shadow, 0, document) == 3
    for coming in flying[1:]:
        shadow.withdraw(coming)
    assert (matched(shadow, 0, document), len(shadow)) == (1, 1)
    shadow.check()


def test_a_stale_report_drops_nothing_that_was_stored_after_it_began() -> None:
    shadow = Shadow(1000 * BLOCK_TOKENS)
    shadow.store(0, keys_of((1, 2, 3, 4)), 0.0)
    stale = shadow.place(0, keys_of((1, 2, 3, 4)))
    shadow.store(0, keys_of((1, 2)), 1.0)
    shadow.missed(stale, 0, 4)
    assert matched(shadow, 0, (1, 2, 3, 4)) == 4  # on its way
    shadow.withdraw(stale)
    assert matched(shadow, 0, (1, 2, 3, 4)) == 2


def test_what_was_on_its_way_to_a_replica_that_was_forgotten_changes_nothing_there_later() -> None:
    shadow = Shadow(1000 * BLOCK_TOKENS)
    old = shadow.place(0, keys_of((1, 2)))
    shadow.forget(0)
    new = shadow.place(0, keys_of((1, 2)))
    shadow.missed(old, 0, 2)
    shadow.withdraw(old)
    assert matched(shadow, 0, (1, 2)) == 2
    shadow.withdraw(new)
    assert len(shadow) == 0


def test_blocks_that_begin_mid_way_are_stored_after_what_they_follow() -> None:
    """As vLLM's events of stored blocks have it: the hash of the parent, and those of what is new."""
    shadow, keys = Shadow(1000 * BLOCK_TOKENS), keys_of((1, 2, 3, 4))
    shadow.store(0, keys[2:], 0.0, after=keys[1])
    assert len(shadow) == 0  # nobody knows what comes before it
    shadow.store(1, keys[:2], 0.0)
    shadow.store(0, keys[2:], 0.0, after=keys[1])
    assert matched(shadow, 0, (1, 2, 3, 4)) == 0  # another replica holds that
    shadow.store(1, keys[2:], 0.0, after=keys[1])
    assert matched(shadow, 1, (1, 2, 3, 4)) == 4
    shadow.check()


@pytest.mark.parametrize("start", [1, 2])
def test_blocks_that_are_known_to_follow_others_are_refused_as_a_beginning(start: int) -> None:
    shadow, keys = Shadow(1000 * BLOCK_TOKENS), keys_of((1, 2, 3, 4))
    shadow.store(0, keys, 0.0)
    for torn in (keys[start:], [keys[0], *keys[start + 1 :]], [*keys_of((7,)), *keys[start:]]):
        with pytest.raises(UsageError, match="hint: tell of blocks from the first"):
            shadow.store(1, torn, 0.0)
    shadow.check()
    assert shadow.held(1) == 0


def test_what_is_asked_for_often_and_lately_is_dear_to_lose() -> None:
    shadow = Shadow(4 * BLOCK_TOKENS)
    nothing = shadow.look([])
    shadow.store(0, keys_of((1, 2)), 0.0)
    assert shadow.lost(0, 2, nothing, 0.0) == 0.0  # there is room
    shadow.store(0, keys_of((3, 4)), 0.0)
    once = shadow.lost(0, 2, nothing, 0.0)
    for _ in range(5):
        for path in ((1, 2), (3, 4)):
            shadow.settle(shadow.place(0, keys_of(path)), keys_of(path), 0.0)
    assert once == pytest.approx(2 * 1 / 2)
    assert shadow.lost(0, 2, nothing, 0.0) == pytest.approx(2 * 6 / 7)
    assert shadow.lost(0, 2, nothing, 180.0) == pytest.approx(2 * 3 / 4)
    assert shadow.lost(0, 2, nothing, 1e9) == pytest.approx(0.0)
    own = shadow.look(keys_of((1, 2)))
    assert shadow.lost(0, 99, own, 0.0) == pytest.approx(4 * 6 / 7)
    assert shadow.lost(0, 99, shadow.look(keys_of((5,))), 0.0) == pytest.approx(4 * 6 / 7)


def test_what_goes_for_others_that_are_on_their_way_is_not_lost_once_more() -> None:
    shadow = Shadow(4 * BLOCK_TOKENS)
    nothing = shadow.look([])
    shadow.store(0, keys_of((1, 2)), 0.0)
    assert shadow.lost(0, 2, nothing, 0.0) == 0.0
    coming = shadow.place(0, keys_of((5, 6, 7)))
    assert shadow.lost(0, 2, nothing, 0.0) == pytest.approx(1 / 2)  # of two blocks one goes in any case
    shadow.withdraw(coming)
    assert shadow.lost(0, 2, nothing, 0.0) == 0.0


def test_how_things_are_in_a_smaller_cache_is_told_as_if_it_were_so() -> None:
    shadow, after = Shadow(6 * BLOCK_TOKENS), Shadow(6 * BLOCK_TOKENS)
    for each in (shadow, after):
        for path in ((1, 2, 3), (4, 5)):
            each.settle(each.place(0, keys_of(path)), keys_of(path), 0.0)
    after.resize(0, 3 * BLOCK_TOKENS)
    paths: list[Prefix] = [(1, 2, 3), (4, 5), (6,)]
    for asked in paths:
        sighting, then = shadow.look(keys_of(asked)), after.look(keys_of(asked))
        assert shadow.matched(sighting, 0, 3 * BLOCK_TOKENS) == after.matched(then, 0)
        assert shadow.lost(0, 2, sighting, 0.0, 3 * BLOCK_TOKENS) == after.lost(0, 2, then, 0.0) > 0.0
    for each in (shadow, after):
        each.place(0, keys_of((1, 2)))
    assert after.matched(after.look(keys_of((1, 2, 3))), 0) == 2  # on its way, whatever the capacity
    assert shadow.matched(shadow.look(keys_of((1, 2, 3))), 0, 3 * BLOCK_TOKENS) == 2
    assert shadow.held(0) == 5


def serve(shadow: Shadow, replicas: list[int], count: int) -> None:
    rng = np.random.default_rng(count)
    for now in range(count):
        keys = [rng.bytes(16) for _ in range(20)]
        shadow.settle(shadow.place(replicas[now % len(replicas)], keys), keys, float(now))


@pytest.mark.parametrize("used", [[0, 1], [98, 99]])
def test_memory_is_bounded_by_the_replicas_capacities_and_as_stated(used: list[int]) -> None:
    """RO-05: a router's table grew until it was killed. The hundredth replica's bit is a longer number."""
    shadow = Shadow(500 * BLOCK_TOKENS)
    for replica in range(100):
        shadow.resize(replica, 500 * BLOCK_TOKENS)
    tracemalloc.start()
    serve(shadow, used, 1400)  # until what is given up is forgotten as well
    peak = tracemalloc.get_traced_memory()[0]
    serve(shadow, used, 700)
    later = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(shadow) == 1000
    assert later < 1.1 * peak
    assert later / len(shadow) < BYTES_PER_BLOCK


@pytest.mark.parametrize("used", [[0, 1], [98, 99]])
def test_what_is_in_flight_costs_as_much_and_nothing_once_it_has_ended(used: list[int]) -> None:
    shadow, rng = Shadow(500 * BLOCK_TOKENS), np.random.default_rng(0)
    for replica in range(100):
        shadow.resize(replica, 500 * BLOCK_TOKENS)
    tracemalloc.start()
    flying = [shadow.place(used[n % 2], [rng.bytes(16) for _ in range(20)]) for n in range(200)]
    assert len(shadow) == 4000
    assert tracemalloc.get_traced_memory()[0] / len(shadow) < BYTES_PER_BLOCK
    for coming in flying:
        shadow.withdraw(coming)
    tracemalloc.stop()
    assert len(shadow) == 0
    shadow.check()


def test_branches_that_are_gone_leave_nothing_behind() -> None:
    """RO-06: split nodes were never merged or freed."""
    shadow = Shadow(10**9)
    live = [(0, n) for n in range(20)]
    for path in live:
        shadow.store(0, keys_of(path), 0.0)
    for n in range(500):
        keys = keys_of((0, n % 20, 50 + n))
        shadow.store(0, keys, 0.0)
        shadow.drop(0, keys[-1:])
    shadow.check()
    assert len(shadow) == 1 + len(live)


def test_of_a_batch_of_removals_the_unknown_one_is_passed_over() -> None:
    """RO-09: it stopped the rest."""
    shadow = Shadow(1000)
    for path in ((1,), (2,)):
        shadow.store(0, keys_of(path), 0.0)
    shadow.drop(0, [*keys_of((1,)), *keys_of((3,)), *keys_of((2,))])
    assert shadow.held(0) == len(shadow) == 0


def test_the_bit_of_a_replica_that_left_is_given_to_another() -> None:
    shadow = Shadow(1000)
    for replica in range(100):
        shadow.store(replica, keys_of((1,)), 0.0)
        shadow.store(replica + 1000, keys_of((1, 2)), 0.0)
        shadow.forget(replica)
    shadow.check()
    assert len(shadow) == 2
    assert shadow.look(keys_of((1,))).path[0].holders < 2**101


@pytest.mark.parametrize(("capacity", "block"), [(0, 64), (64, 0)])
def test_a_cache_of_nothing_is_refused(capacity: int, block: int) -> None:
    with pytest.raises(UsageError, match="at least 1"):
        Shadow(capacity, block)
