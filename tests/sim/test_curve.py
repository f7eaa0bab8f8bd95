from __future__ import annotations

import numpy as np
import pytest

from sapwood.config import CacheConfig
from sapwood.errors import UsageError
from sapwood.sim.curve import POLICIES, CurvePoint, curves, policy_config
from sapwood.sim.rates import TOKEN, Definition
from sapwood.sim.replay import replay
from sim.small import UNIT, trace_of

RNG = np.random.default_rng(11)
TRACE = trace_of(*(RNG.integers(0, 2, RNG.integers(1, 7)).tolist() for _ in range(60)))
CAPACITIES = [3 * UNIT, 8 * UNIT, 20 * UNIT]


class Flat:
    """A second for each token that is not cached."""

    name = "flat"

    def step_seconds(self, shape: object) -> float:
        raise NotImplementedError

    def prefill_seconds(self, tokens: int, cached: int) -> float:
        return float(tokens - cached)


def test_every_policy_at_every_capacity_is_what_a_replay_finds() -> None:
    points = curves(TRACE, CAPACITIES, workers=1, cost=Flat())
    assert [(p.policy, p.capacity_tokens) for p in points] == [(p, c) for p in POLICIES for c in CAPACITIES]
    for point in points:
        assert point.prompt_tokens == TRACE.prompt_tokens.sum()
        assert point.hit_rate == point.reused_tokens / point.prompt_tokens
        assert point.prefill_seconds == point.prompt_tokens - point.reused_tokens
        if point.policy == "optimum":
            assert point.refused == 0
            continue
        real = replay(TRACE, point.capacity_tokens, policy_config(point.policy, CacheConfig()))
        assert point.reused_tokens == TOKEN.reused_tokens(TRACE, real.matched).sum()
        assert point.refused == real.refused.sum()


def test_none_is_above_the_optimum_and_the_blocks_index_is_lru() -> None:
    by_policy: dict[str, list[CurvePoint]] = {}
    for point in curves(TRACE, CAPACITIES, workers=1):
        by_policy.setdefault(point.policy, []).append(point)
    for column in zip(*by_policy.values(), strict=True):
        assert max(point.reused_tokens for point in column) == column[-1].reused_tokens
    rates = [[point.hit_rate for point in by_policy[name]] for name in ("lru", "blocks")]
    assert rates[0] == rates[1]
    assert rates[0] == sorted(rates[0])


def test_two_processes_find_what_one_does() -> None:
    told: list[str] = []
    policies = ("slru", "lru", "optimum")
    both = curves(TRACE, CAPACITIES, policies, workers=2, progress=told.append)
    assert both == curves(TRACE, CAPACITIES, policies, workers=1)
    assert told[-1] == "replaying: 4 of 4"


def test_a_definition_changes_what_counts() -> None:
    (all_of_it,) = curves(TRACE, [400], ("lru",), definition=Definition(last=True))
    (but_last,) = curves(TRACE, [400], ("lru",))
    repeats = replay(TRACE, 400, CacheConfig(eviction_policy="lru")).matched == np.diff(TRACE.offsets)
    assert all_of_it.reused_tokens - but_last.reused_tokens == repeats.sum() > 0


def test_what_the_default_policy_knows_of_attention_is_kept() -> None:
    assert policy_config("default", CacheConfig(page_size=16, attention_tokens=99)) == CacheConfig(
        attention_tokens=99
    )


def test_errors_are_for_people() -> None:
    with pytest.raises(UsageError, match="no policy is called best") as raised:
        curves(TRACE, CAPACITIES, ("best",))
    assert raised.value.hint is not None
    assert "lru" in raised.value.hint
    with pytest.raises(UsageError, match="holds no block"):
        curves(TRACE, [0], ("lru",))
    with pytest.raises(UsageError, match="no cache evicts by optimum"):
        policy_config("optimum", CacheConfig())


@pytest.mark.parametrize(
    "definition", [Definition("request"), Definition("block"), Definition(replies=False)]
)
def test_a_definition_that_a_curve_does_not_count_by_is_refused(definition: Definition) -> None:
    with pytest.raises(UsageError, match=f"a curve cannot be by '{definition.name}'"):
        curves(TRACE, CAPACITIES, ("lru",), definition=definition)
