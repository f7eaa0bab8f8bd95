from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.cache.hit_density import _AGE_ENDS, _AGES, CLASSES, HitDensity, age_of, class_of


def test_ages_are_eight_seconds_then_octaves() -> None:
    assert [age_of(seconds) for seconds in (-1, 0, 7.9, 8, 15.9, 16, 32, 100)] == [0, 0, 0, 1, 1, 2, 3, 4]
    assert age_of(1e9) == _AGES


@pytest.mark.parametrize("age", range(_AGES))
def test_an_age_ends_exactly_where_the_next_begins(age: int) -> None:
    assert age_of(_AGE_ENDS[age]) == age + 1
    assert age_of(math.nextafter(_AGE_ENDS[age], 0)) == age


def test_uses_beyond_the_last_class_are_one_class() -> None:
    assert [class_of(hits) for hits in (0, 1, 2, 7, 8, 9, 1000)] == [0, 0, 1, 6, 7, 7, 7]


def test_before_anything_is_learned_value_falls_with_age_and_classes_are_alike() -> None:
    values = np.array(HitDensity(1000).values)
    assert (np.diff(values, axis=1) < 0).all()
    assert (values == values[0]).all()


def plain_values(density: HitDensity) -> list[list[float]]:
    """The best rate of hits over all horizons, no less than that of fewer uses, in plain loops over the counts."""
    idle, hit = density._idle.tolist(), density._hit.tolist()
    prior = max(1.0, sum(idle) / 256)
    values = []
    for uses in range(CLASSES):
        chance, left, held = [], 1.0, []
        for age in range(_AGES + 1):
            blank = 0.3 * (1 if age else 2) / (_AGES + 2)
            average = (sum(row[age] for row in hit) + prior * blank) / (sum(idle) + prior)
            chance.append((hit[uses][age] + prior * average) / (idle[uses] + prior))
            seconds = _AGE_ENDS[age] - (_AGE_ENDS[age - 1] if age else 0.0)
            held.append(max(left - chance[age] / 2, 0.01) * seconds)
            left -= chance[age]
        values.append(
            [
                max(sum(chance[age : end + 1]) / sum(held[age : end + 1]) for end in range(age, _AGES + 1))
                for age in range(_AGES + 1)
            ]
        )
    return [
        [max(values[fewer][age] for fewer in range(uses + 1)) for age in range(_AGES + 1)]
        for uses in range(CLASSES)
    ]


@given(st.lists(st.tuples(st.integers(1, 10), st.integers(0, _AGES), st.integers(1, 500), st.booleans())))
def test_values_equal_plain_loops_over_all_horizons(events: list[tuple[int, int, int, bool]]) -> None:
    density = HitDensity(100)
    for hits, age, pages, comes_back in events:
        density.began_idle(hits, pages)
        if comes_back:
            density.reused(hits, age, pages)
    density._refresh()
    np.testing.assert_allclose(density.values, plain_values(density), rtol=1e-9)


def test_what_comes_back_after_a_minute_is_worth_more_at_ten_seconds_than_what_never_does() -> None:
    density = HitDensity(1000)
    for _ in range(50):
        density.began_idle(1, 100)
        density.began_idle(2, 100)
        density.reused(2, age_of(60.0), 90)
    values = density.values
    assert values[class_of(2)][age_of(10.0)] > 10 * values[class_of(1)][age_of(1.0)]
    # Its value rises as its time comes near, and falls when that has passed.
    assert values[class_of(2)][age_of(50.0)] > 2 * values[class_of(2)][age_of(10.0)]
    assert values[class_of(2)][age_of(300.0)] < values[class_of(2)][age_of(10.0)]


def test_values_follow_a_workload_that_changes() -> None:
    density = HitDensity(1000)
    at_ten = age_of(10.0)
    for returning in (2, 3, 2):
        for _ in range(600):
            for hits in (2, 3):
                density.began_idle(hits, 100)
            density.reused(returning, age_of(30.0), 100)
        twice, thrice = density.values[class_of(2)][at_ten], density.values[class_of(3)][at_ten]
        # What was used more often is never worth less.
        assert thrice > 2 * twice if returning == 3 else thrice == twice


def test_counts_are_bounded_and_finite_whatever_is_counted() -> None:
    density, rng = HitDensity(50), random.Random(2)
    for _ in range(3000):
        hits, pages = rng.randrange(1, 12), rng.randrange(1, 50)
        density.began_idle(hits, pages)
        density.reused(hits, rng.randrange(_AGES + 1), rng.randrange(pages + 1))
    assert density._idle.sum() <= 2 * 32 * 50
    values = np.array(density.values)
    assert np.isfinite(values).all()
    assert (values > 0).all()
