from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import get_args

import numpy as np
import pytest
from bench.traces import BUNDLED, load_trace
from numpy.typing import NDArray

from cache.helpers import NS, OTHER, joined, span
from sapwood.cache import PrefixCache
from sapwood.cache.curve import STRETCH_TOKENS, TIMES, HitRateCurve
from sapwood.cache.sample import StretchSampler
from sapwood.config import CacheConfig, EvictionName

CONFIGS = [
    *(CacheConfig(eviction_policy=name) for name in get_args(EvictionName)),
    CacheConfig(prefix_index="blocks"),
]


@dataclass(frozen=True, slots=True)
class Visit:
    """One request of a replay: `asked` of its `tokens` are looked up, `reusable` of them at most are found."""

    tokens: NDArray[np.int32]
    asked: int
    at: float = 0.0

    @property
    def reusable(self) -> int:
        return self.asked - 1


class Replay:
    """The hit rate of the real cache, older requests counting less just as in the curve."""

    def __init__(self, capacity: int, config: CacheConfig, half_life: float) -> None:
        self.cache = PrefixCache(capacity, config)
        self._half_life = half_life
        self._hits = self._asked = 0.0

    def observe(self, visit: Visit) -> None:
        self.cache.advance(visit.at)
        lease = self.cache.lease(NS, visit.tokens, visit.reusable)
        decay = 0.5 ** (visit.reusable / self._half_life)
        self._hits = self._hits * decay + lease.matched
        self._asked = self._asked * decay + visit.reusable
        if len(visit.tokens) <= self.cache.capacity_pages:
            self.cache.grow(lease, len(visit.tokens))
            self.cache.commit(lease, visit.tokens)
        self.cache.release(lease)

    @property
    def hit_rate(self) -> float:
        return self._hits / self._asked


def hit_rates(curve: HitRateCurve) -> list[float]:
    rates = [point.hit_rate for point in curve.points() if point.hit_rate is not None]
    assert len(rates) == len(TIMES)
    return rates


def watch(curve: HitRateCurve, *visits: Visit) -> None:
    for visit in visits:
        curve.observe(NS, visit.tokens, visit.asked, visit.at)
        curve.check()


def prompt(tokens: NDArray[np.int32]) -> Visit:
    """A prompt of which no token but the last is computed in any case."""
    return Visit(tokens, len(tokens))


def fresh(number: int, length: int) -> NDArray[np.int32]:
    """Tokens that no other number begins with."""
    return span(number * length, (number + 1) * length)


def random_visits(count: int) -> list[Visit]:
    """Prompts that share prefixes of all lengths, some with an answer behind."""
    random = np.random.default_rng(11)
    stems = [random.integers(0, 50, 60, dtype=np.int32) for _ in range(8)]
    visits = []
    for at in range(count):
        stem = stems[random.integers(len(stems))][: random.integers(1, 60)]
        tokens = joined(stem, random.integers(0, 50, random.integers(1, 9), dtype=np.int32))
        visits.append(Visit(tokens, len(tokens) - int(random.integers(len(tokens))), float(at)))
    return visits


def test_nothing_is_said_before_anything_was_asked() -> None:
    curve = HitRateCurve(10_000)
    assert [point.capacity_tokens for point in curve.points()] == [
        2_500,
        5_000,
        10_000,
        20_000,
        40_000,
        80_000,
    ]
    assert [point.times for point in curve.points()] == [0.25, 0.5, 1, 2, 4, 8]
    watch(curve, prompt(span(0, STRETCH_TOKENS)))  # its only stretch holds the last token
    assert {point.hit_rate for point in curve.points()} == {None}


def test_without_an_index_there_is_no_curve() -> None:
    curve = HitRateCurve(10_000, CacheConfig(prefix_index="none"))
    watch(curve, prompt(span(0, 1_000)))
    assert curve.points() == ()


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_when_all_is_watched_the_curve_is_that_of_the_real_cache(config: CacheConfig) -> None:
    curve = HitRateCurve(256, config, stretch_tokens=1)
    assert curve.rate == 1
    replays = [Replay(round(256 * times), config, 256 * max(TIMES)) for times in TIMES]
    for visit in random_visits(200):
        watch(curve, visit)
        for replay in replays:
            replay.observe(visit)
    assert hit_rates(curve) == pytest.approx([replay.hit_rate for replay in replays])
    assert hit_rates(curve)[0] < hit_rates(curve)[3]


def test_a_loop_over_more_than_the_memory_holds_is_hit_only_where_it_fits() -> None:
    curve = HitRateCurve(1_000 * STRETCH_TOKENS, CacheConfig(eviction_policy="lru"), smallest=64)
    assert curve.rate == pytest.approx(64 / 250)
    for _ in range(4):
        for number in range(75):
            curve.observe(NS, fresh(number, 20 * STRETCH_TOKENS), 20 * STRETCH_TOKENS, 0.0)
    curve.check()
    rates = hit_rates(curve)
    assert rates[:3] == pytest.approx([0, 0, 0], abs=0.04)  # 1,500 stretches in 1,000, least recently used
    assert rates[3:] == pytest.approx(
        [0.75] * 3, abs=0.08
    )  # all rounds but the first, which counts a little less


@pytest.mark.parametrize(("start", "watched"), [(1_000_001, 0), (1_000_004, 1), (1_000_000, 2)])
def test_a_prefix_that_all_share_is_no_matter_of_luck(start: int, watched: int) -> None:
    """Of its eight stretches none, one or two are among those watched, one in eight of all."""
    shared = span(start, start + 8 * STRETCH_TOKENS)
    curve = HitRateCurve(4_096 * STRETCH_TOKENS, smallest=128)
    assert curve.rate == pytest.approx(1 / 8)
    assert len(StretchSampler(STRETCH_TOKENS, 1 / 8).sample(NS, shared).names) == watched
    for number in range(1_000):
        tokens = joined(shared, fresh(number, 8 * STRETCH_TOKENS), span(0, 1))
        curve.observe(NS, tokens, len(tokens), 0.0)
    assert hit_rates(curve) == pytest.approx([0.5] * 6, abs=0.04)


def test_answers_are_stored_and_not_asked_for() -> None:
    curve = HitRateCurve(10_000)
    asked, answer = span(0, 2 * STRETCH_TOKENS + 1), span(5_000, 5_000 + 2 * STRETCH_TOKENS)
    watch(curve, Visit(joined(asked, answer), len(asked)))
    assert hit_rates(curve) == [0] * 6
    watch(curve, prompt(joined(asked, answer, span(0, STRETCH_TOKENS))))
    # Two stretches, then four found of five, less what the half-life of 1,250 takes off the first two.
    assert hit_rates(curve) == pytest.approx([4 / 7] * 6, abs=0.01)
    before = hit_rates(curve)
    watch(curve, Visit(span(9_000, 9_900), 0))
    assert hit_rates(curve) == before


def test_a_prompt_longer_than_a_small_memory_leaves_its_content_alone() -> None:
    curve = HitRateCurve(64 * STRETCH_TOKENS)
    short, long = span(0, 8 * STRETCH_TOKENS + 1), span(50_000, 50_000 + 40 * STRETCH_TOKENS)
    watch(curve, prompt(short), prompt(long), prompt(short))
    # 8, 39 and 8 stretches; where the long one does not fit (16 and 32), nor where it does, is the short one gone.
    assert hit_rates(curve) == pytest.approx([8 / 55] * 6, abs=0.01)
    watch(curve, prompt(long))
    assert hit_rates(curve) == pytest.approx([8 / 94] * 2 + [47 / 94] * 4, abs=0.02)


def test_tenants_do_not_meet() -> None:
    curve = HitRateCurve(10_000)
    tokens = span(0, 10 * STRETCH_TOKENS)
    for namespace in (NS, OTHER):
        curve.observe(namespace, tokens, len(tokens), 0.0)
    assert hit_rates(curve) == [0] * 6


def test_the_estimate_follows_the_traffic() -> None:
    curve = HitRateCurve(64 * STRETCH_TOKENS)
    for number in range(100):
        watch(curve, prompt(fresh(number, 8 * STRETCH_TOKENS + 1)))
    assert hit_rates(curve) == [0] * 6
    again = prompt(span(0, 8 * STRETCH_TOKENS + 1))
    for _ in range(64):  # 512 stretches, one half-life
        watch(curve, again)
    before = curve.points()
    # 100 rounds before and 64 after, decayed: the latter weigh (1 - 1/2) against (1/2 - 1/2 ** (164/64)).
    weight = 0.5 / (1 - 0.5 ** (164 / 64))
    assert hit_rates(curve) == pytest.approx([weight] * 6, abs=0.02)
    for _ in range(6 * 64):
        watch(curve, again)
    assert min(hit_rates(curve)) > 0.98
    assert before != curve.points()
    assert before[0].hit_rate == pytest.approx(weight, abs=0.02)


def test_after_a_flush_nothing_is_found() -> None:
    curve = HitRateCurve(10_000)
    tokens = prompt(span(0, 10 * STRETCH_TOKENS + 1))
    watch(curve, tokens)
    curve.flush()
    curve.check()
    watch(curve, tokens)
    assert hit_rates(curve) == [0] * 6
    watch(curve, tokens)
    assert hit_rates(curve) == pytest.approx([1 / 3] * 6, abs=0.02)


_MEMORY = 2_000_000
_BLOCK_TOKENS = 512
_PARTS = _BLOCK_TOKENS // STRETCH_TOKENS


@pytest.mark.parametrize("policy", sorted({"lru", "default"} & set(get_args(EvictionName))))
def test_on_real_traffic_a_sixteenth_of_it_tells_within_3_points(policy: EvictionName) -> None:
    """Against the real cache that sees all, at each size, whenever one looks after the first 1,000 requests."""
    config = CacheConfig(eviction_policy=policy)
    # A trace has names for blocks of 512 tokens; here a token stands for a stretch, and a block has 8 of them.
    curve = HitRateCurve(_MEMORY // STRETCH_TOKENS, config, stretch_tokens=1)
    assert curve.rate < 1 / 15
    blocks = _MEMORY / _BLOCK_TOKENS
    replays = [Replay(round(blocks * times), config, blocks * max(TIMES)) for times in TIMES]
    worst = 0.0
    for number, (whole, parts) in enumerate(trace_visits(4_000), 1):
        curve.observe(NS, parts.tokens, parts.asked, parts.at)
        for replay in replays:
            replay.observe(whole)
        if number >= 1_000 and number % 250 == 0:
            curve.check()
            worst = max(worst, *differences(curve, replays))
    assert worst < 0.03
    assert replays[-1].hit_rate - replays[0].hit_rate > 0.2  # there is a curve to be drawn


def differences(curve: HitRateCurve, replays: Sequence[Replay]) -> list[float]:
    return [abs(rate - replay.hit_rate) for rate, replay in zip(hit_rates(curve), replays, strict=True)]


def trace_visits(count: int) -> list[tuple[Visit, Visit]]:
    """Each request of the conversation trace in blocks, and in stretches."""
    visits = []
    for request in islice(load_trace(BUNDLED[0]), count):
        blocks, at = request.names, request.arrival
        parts = (blocks[:, None] * _PARTS + np.arange(_PARTS)).astype(np.int32).ravel()
        # The last block is a partial one, so nobody can reuse it, and none of its stretches.
        asked = (len(blocks) - 1) * _PARTS + 1
        visits.append((Visit(blocks, len(blocks), at), Visit(parts, asked, at)))
    return visits
