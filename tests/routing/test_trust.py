from __future__ import annotations

import pytest

from sapwood.routing.trust import Trust


def test_nobody_is_mistrusted_before_anything_is_known() -> None:
    trust = Trust()
    trust.learn(1, 0, 0)
    assert trust.of(1) == trust.of(2) == 1.0


def test_who_never_has_what_it_should_is_believed_ever_less() -> None:
    trust, seen = Trust(), []
    for _ in range(20):
        trust.learn(1, 2000, 0)
        seen.append(trust.of(1))
    assert seen == sorted(seen, reverse=True)
    assert seen[-1] < 0.2
    assert trust.of(2) == 1.0


def test_trust_comes_back_within_some_reports_and_never_exceeds_1() -> None:
    trust = Trust()
    for reused in [0] * 30 + [10_000] * 60:
        trust.learn(1, 2000, reused)
    assert 0.95 < trust.of(1) <= 1.0


def test_a_report_below_nothing_counts_as_nothing() -> None:
    trust, other = Trust(), Trust()
    trust.learn(1, 100, -5)
    other.learn(1, 100, 0)
    assert trust.of(1) == other.of(1)


def test_who_comes_back_begins_anew() -> None:
    trust = Trust()
    trust.learn(1, 2000, 0)
    trust.forget(1)
    assert trust.of(1) == pytest.approx(1.0)
