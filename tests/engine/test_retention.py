"""Soft retention: a request asks that its prompt stay longer than others'. A wish with an end, not a promise."""

from __future__ import annotations

import numpy as np
import pytest

from engine.rig import Log, Rig, greedy, prompt_of
from sapwood.cache import Namespace
from sapwood.errors import RequestError
from sapwood.types import Request, Retain

READ = greedy(0)
KEPT, PLAIN = prompt_of(100, salt=1), prompt_of(100, salt=2)


def ask(rig: Rig, prompt: tuple[int, ...], *retain: Retain) -> None:
    request = Request(f"r{len(rig.logs)}", prompt, READ, retain=retain)
    rig.engine.add(request, rig.now)
    rig.logs[request.id] = Log(request)
    rig.run()


def flood(rig: Rig) -> None:
    """Three times the pool, one after the other."""
    for i in range(12):
        ask(rig, prompt_of(75, salt=100 + len(rig.logs) + i))


def cached(rig: Rig, prompt: tuple[int, ...]) -> int:
    return rig.cache.match(Namespace("fake", "", "", ""), np.array(prompt, np.int32)).tokens


@pytest.mark.parametrize("page_size", [1, 4])
def test_a_retained_prompt_survives_a_flood_that_evicts_another_and_goes_after_its_time(
    page_size: int,
) -> None:
    rig = Rig(pool=300, page_size=page_size)
    ask(rig, KEPT, Retain(80, seconds=1000))
    ask(rig, PLAIN)
    flood(rig)
    assert cached(rig, KEPT) == 100
    assert cached(rig, PLAIN) < 100
    rig.now += 1000
    flood(rig)
    assert cached(rig, KEPT) < 100
    rig.expect_no_leaks()


def test_without_an_end_it_stays_for_good_and_a_range_keeps_that_alone() -> None:
    rig = Rig(pool=300)
    ask(rig, KEPT, Retain(1, start=0, end=40))
    rig.now += 1e9
    flood(rig)
    assert 40 <= cached(rig, KEPT) < 100


def test_it_is_no_pin_when_nothing_else_is_left_it_goes() -> None:
    rig = Rig(pool=300)
    ask(rig, KEPT, Retain(99))
    ask(rig, prompt_of(290, salt=3))
    assert cached(rig, KEPT) <= 10
    rig.expect_no_leaks()


def test_the_lower_priority_goes_first() -> None:
    rig = Rig(pool=300)
    ask(rig, KEPT, Retain(20))
    ask(rig, PLAIN, Retain(10))
    ask(rig, prompt_of(180, salt=3))
    assert cached(rig, KEPT) == 100
    assert cached(rig, PLAIN) == 20


def test_a_range_behind_the_prompt_asks_for_nothing() -> None:
    rig = Rig(pool=300)
    ask(rig, KEPT, Retain(99, start=500), Retain(99, start=100, end=101))
    flood(rig)
    assert cached(rig, KEPT) < 100


def test_the_blocks_index_refuses_it_by_name() -> None:
    rig = Rig(pool=320, page_size=16, index="blocks")
    with pytest.raises(RequestError) as caught:
        rig.engine.add(Request("a", KEPT, READ, retain=(Retain(5),)), 0.0)
    assert caught.value.param == "cache_retention"
