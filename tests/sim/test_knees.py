from __future__ import annotations

import numpy as np
import pytest

from sapwood.sim.knees import knees


def test_where_a_steep_line_becomes_a_gentle_one() -> None:
    capacities = list(range(0, 110, 10))
    rates = [min(c, 30) * 0.02 + max(c - 30, 0) * 0.001 for c in capacities]
    assert [capacities[at] for at in knees(capacities, rates)] == [30]


def test_two_cliffs_have_two_knees() -> None:
    capacities = list(range(21))
    rates = [0.0] * 2 + [0.5] * 8 + [1.0] * 11
    assert knees(capacities, rates) == [2, 10]


def test_the_knee_of_a_known_curve() -> None:
    """Kneedle's own example: 1 - 0.1 / (x + 0.1) bends at 0.22."""
    x = np.linspace(0, 1, 10)
    (knee,) = knees(list(range(10)), (1 - 0.1 / (x + 0.1)).tolist())
    assert x[knee] == pytest.approx(0.22, abs=0.01)


def test_a_straight_or_flat_line_has_none_nor_has_one_that_gets_steeper() -> None:
    assert knees(range(9), [0.1 * n for n in range(9)]) == []
    assert knees(range(9), [0.5] * 9) == []
    assert knees(range(9), [n * n for n in range(9)]) == []
    assert knees([5, 5, 5], [0.1, 0.2, 0.3]) == knees([], []) == knees([1, 2], [0.1, 0.9]) == []


def test_a_ripple_is_no_knee_unless_asked_for() -> None:
    rates = [0.0, 0.1, 0.2, 0.31, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    assert knees(range(11), rates) == []
    assert knees(range(11), rates, sensitivity=0.05) == [3]
