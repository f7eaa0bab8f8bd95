"""What the hash index remembers of a prompt, counted in hashes and finds; never wrong, whatever is remembered."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cache.helpers import NS, OTHER, begin, joined, span, store
from cache.test_cost import count_calls
from sapwood.cache import PrefixCache
from sapwood.cache.block_map import BlockMap
from sapwood.cache.blocks import BlockIndex
from sapwood.cache.chain import blake2b_128
from sapwood.cache.lookups import Lookups
from sapwood.config import CacheConfig


class Hashing:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self, data: bytes) -> bytes:
        self.count += 1
        return blake2b_128(data)


def cache_with(hashing: Hashing, page_size: int = 4) -> PrefixCache:
    cache = PrefixCache(1000, CacheConfig(page_size=page_size, prefix_index="blocks"))
    cache._index = BlockIndex(page_size, hashing)
    return cache


def test_a_prompt_is_hashed_once_however_often_it_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    hashing = Hashing()
    cache = cache_with(hashing)
    store(cache, span(0, 400))
    prompt = joined(span(0, 400), span(5000, 5400))
    cache.match(NS, prompt[:-1])
    before, finds = hashing.count, count_calls(monkeypatch, BlockMap, "find")
    for _ in range(50):
        assert cache.match(NS, prompt[:-1]).tokens == 400
        cache.room_beside(NS, prompt, len(prompt) - 1)
    assert hashing.count == before
    assert finds() == 100, "each looks for the one page that comes next"
    cache.check()


def test_an_explained_miss_hashes_what_is_missing_once() -> None:
    hashing = Hashing()
    cache = cache_with(hashing)
    prompt = span(0, 400)
    store(cache, prompt)
    cache._pool.free(cache._index.evict(50))
    cache.history(NS, prompt)
    before = hashing.count
    assert cache.history(NS, prompt).known == 400
    assert hashing.count <= before + 1


@given(
    st.lists(
        st.tuples(st.sampled_from(["store", "match", "evict", "flush", "rewrite"]), st.integers(0, 30)),
        max_size=40,
    )
)
def test_what_is_remembered_never_changes_an_answer(steps: list[tuple[str, int]]) -> None:
    """One buffer that is written to under the index's feet; a second index that remembers nothing agrees."""
    cache, forgetful = cache_with(Hashing(), 2), cache_with(Hashing(), 2)
    buffer = np.arange(40, dtype=np.int32)
    for verb, number in steps:
        if verb == "store":
            for each in (cache, forgetful):
                store(each, buffer[: number + 2])
        elif verb == "evict":
            for each in (cache, forgetful):
                count = min(number, each.books().evictable)
                each._pool.free(each._index.evict(count))
        elif verb == "flush":
            cache.flush()
            forgetful.flush()
        elif verb == "rewrite":
            buffer[number] += 1
        forgetful._index._lookups = Lookups(2, blake2b_128)  # type: ignore[attr-defined]
        for namespace in (NS, OTHER):
            asked = buffer[: number + 2]
            assert cache.match(namespace, asked) == forgetful.match(namespace, asked.copy())
            assert cache.history(namespace, asked) == forgetful.history(namespace, asked.copy())
            assert cache.room_beside(namespace, asked) == forgetful.room_beside(namespace, asked.copy())
        cache.check()


def test_what_a_lease_pins_of_a_prompt_is_no_room() -> None:
    cache = cache_with(Hashing())
    store(cache, span(0, 400))
    begin(cache, span(0, 200))
    assert cache.room() - cache.room_beside(NS, span(0, 400)) == 200


def test_so_many_pages_are_remembered_and_no_more_the_last_looked_up_last() -> None:
    lookups = Lookups(4, blake2b_128, most_pages=100)
    prompts = [span(1000 * number, 1000 * number + 160) for number in range(4)]  # 40 pages each.
    first, second = lookups.of(NS, prompts[0]), lookups.of(NS, prompts[1])
    assert lookups.of(NS, prompts[0]) is first
    lookups.of(NS, prompts[2])
    assert len(lookups._known) == 2
    assert lookups.of(NS, prompts[0]) is first
    assert lookups.of(NS, prompts[1]) is not second
    long = lookups.of(NS, span(0, 4000))
    assert list(lookups._known.values()) == [long]
    assert lookups._pages == 1000


def test_a_prompt_that_grows_or_is_asked_for_in_part_is_the_same_prompt() -> None:
    lookups, buffer = Lookups(4, blake2b_128), span(0, 100)
    lookup = lookups.of(NS, buffer[:40])
    assert lookups.of(NS, buffer[:39]) is lookup
    assert lookups.of(NS, buffer) is lookup
    assert (lookup.pages, lookups._pages) == (25, 25)
    assert lookups.of(OTHER, buffer) is not lookup
