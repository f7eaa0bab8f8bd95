"""The shadow against its slow twin, against the real cache, and against what makes routers' tables rot."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from routing.helpers import NS, OTHER, blocks
from routing.twin import Prefix, SlowShadow
from sapwood.cache import PrefixCache
from sapwood.config import CacheConfig, IndexName
from sapwood.errors import UsageError
from sapwood.routing import BLOCK_TOKENS, BlockKey, Shadow, block_keys
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
        self.now = 0.0

    @rule(replica=replicas, path=names)
    def place(self, replica: int, path: Prefix) -> None:
        self.now += 1.0
        self.shadow.place(replica, keys_of(path), self.now)
        self.twin.place(replica, path)

    @rule(replica=replicas, path=names)
    def store(self, replica: int, path: Prefix) -> None:
        self.shadow.store(replica, keys_of(path), self.now)
        self.twin.store(replica, path)

    @rule(replica=replicas, path=names)
    def withdraw(self, replica: int, path: Prefix) -> None:
        self.shadow.withdraw(replica, keys_of(path))
        self.twin.withdraw(replica, path)

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

    @rule(replica=replicas, path=names)
    def looked_up(self, replica: int, path: Prefix) -> None:
        sighting = self.shadow.look(keys_of(path))
        count = self.twin.matched(replica, path)
        assert self.shadow.matched(sighting, replica) == count
        sure = sum(path[:end] in self.twin.sure.get(replica, set()) for end in range(1, count + 1))
        assert self.shadow.sure(sighting, replica) == sure
        assert self.shadow.lost(replica, 3, sighting, self.now) >= 0.0

    @invariant()
    def books_are_right(self) -> None:
        self.shadow.check()
        for replica in range(3):
            assert self.shadow.held(replica) == len(self.twin.held.get(replica, []))
        assert len(self.shadow) == len({each for held in self.twin.held.values() for each in held})


TestTwin = TwinMachine.TestCase
TestTwin.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


@pytest.mark.parametrize("index", ["radix", "blocks"])
@given(stream=st.lists(st.tuples(names, names), max_size=30))
@settings(deadline=None)
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
        shadow.place(0, keys_of(prompt[:CAPACITY]), float(now))
        shadow.store(0, keys_of(whole), float(now))
        assert shadow.held(0) == cache.books().tree


def test_another_tenant_s_prefix_is_no_match() -> None:
    shadow = Shadow(1000)
    shadow.store(0, block_keys(OTHER, blocks(1, 2)), 0.0)
    assert matched(shadow, 0, (1, 2)) == 0


def test_what_is_asked_for_often_and_lately_is_dear_to_lose() -> None:
    shadow = Shadow(4 * BLOCK_TOKENS)
    nothing = shadow.look([])
    shadow.store(0, keys_of((1, 2)), 0.0)
    assert shadow.lost(0, 2, nothing, 0.0) == 0.0  # there is room
    shadow.store(0, keys_of((3, 4)), 0.0)
    once = shadow.lost(0, 2, nothing, 0.0)
    for _ in range(5):
        shadow.place(0, keys_of((1, 2)), 0.0)
        shadow.place(0, keys_of((3, 4)), 0.0)
    assert once == pytest.approx(2 * 1 / 2)
    assert shadow.lost(0, 2, nothing, 0.0) == pytest.approx(2 * 6 / 7)
    assert shadow.lost(0, 2, nothing, 180.0) == pytest.approx(2 * 3 / 4)
    assert shadow.lost(0, 2, nothing, 1e9) == pytest.approx(0.0)
    own = shadow.look(keys_of((1, 2)))
    assert shadow.lost(0, 99, own, 0.0) == pytest.approx(4 * 6 / 7)
    assert shadow.lost(0, 99, shadow.look(keys_of((5,))), 0.0) == pytest.approx(4 * 6 / 7)


def test_memory_is_bounded_by_the_replicas_capacities_and_as_stated() -> None:
    """RO-05: a router's table grew until it was killed."""
    shadow = Shadow(500 * BLOCK_TOKENS)
    rng = np.random.default_rng(0)

    def serve(count: int) -> None:
        for now in range(count):
            keys = [rng.bytes(16) for _ in range(20)]
            shadow.place(now % 2, keys, float(now))
            shadow.store(now % 2, keys, float(now))

    tracemalloc.start()
    serve(200)
    peak = tracemalloc.get_traced_memory()[0]
    serve(400)
    later = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(shadow) == 1000
    assert later < 1.1 * peak
    assert later / len(shadow) < BYTES_PER_BLOCK


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
