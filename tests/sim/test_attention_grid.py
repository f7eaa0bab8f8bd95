"""Times of attention between the points at which they were measured."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.errors import UsageError
from sapwood.sim import StepShape
from sapwood.sim.attention_grid import AttentionGrid, Point

CHUNKS, CONTEXTS, DECODING = (0, 16, 32, 64), (0, 16, 32, 64, 128), (0, 1, 2, 4)


def plane(chunk: float, context: float, decoding: float, theirs: float) -> float:
    """Linear in each direction."""
    return 5 + chunk * (2 + context / 8) + decoding * (1 + theirs / 4)


def measured(most_beside: int = 4) -> list[tuple[Point, float]]:
    """As in the published profiles: nothing where nothing is read or nobody decodes, and few beside a chunk."""
    return [
        (Point(*sizes), plane(*sizes))
        for sizes in product(CHUNKS, CONTEXTS, DECODING, CONTEXTS)
        if (sizes[0] or not sizes[1]) and bool(sizes[2]) == bool(sizes[3]) and (sizes[0] or sizes[2])
        if not sizes[0] or sizes[2] <= most_beside
    ]


def test_it_is_exact_where_it_was_measured() -> None:
    grid = AttentionGrid(measured())
    assert all(grid.at(point) == pytest.approx(time, rel=1e-12) for point, time in measured())


@pytest.mark.parametrize(
    "point", [(24, 40, 3, 20), (64, 128, 4, 128), (100, 16, 6, 300), (0, 0, 3, 77), (48, 100, 0, 0)]
)
def test_between_and_beyond_it_goes_on_in_lines(point: tuple[float, float, float, float]) -> None:
    assert AttentionGrid(measured(2)).at(Point(*point)) == pytest.approx(plane(*point), rel=1e-12)


def test_sizes_between_the_doubling_ones_are_left_out() -> None:
    between = [(Point(24, 48, 3, 100), 1e9), (Point(0, 0, 3, 48), 1e9)]
    assert AttentionGrid(measured() + between).at(Point(24, 48, 3, 100)) == pytest.approx(
        plane(24, 48, 3, 100)
    )


def test_a_step_is_its_chunks_and_those_that_decode() -> None:
    grid = AttentionGrid(measured())
    step = StepShape(np.array([0, 40, 19, 59]), np.array([16, 32, 1, 1]), 2)
    launch = plane(16, 0, 0, 0)
    chunks = launch + (plane(16, 0, 0, 0) - launch) + (plane(32, 40, 0, 0) - launch)
    assert grid.step(step) == pytest.approx(chunks + 2 * (1 + 40 / 4), rel=1e-12)
    assert grid.step(StepShape(np.array([19, 59]), np.array([1, 1]), 2)) == pytest.approx(plane(0, 0, 2, 40))


@given(st.floats(0, 300), st.floats(0, 40_000))
def test_the_quick_way_for_those_that_decode_is_the_same_bit_for_bit(
    sequences: float, context: float
) -> None:
    dice = np.random.default_rng(1)
    grid = AttentionGrid((point, time + float(dice.uniform(0, 9))) for point, time in measured())
    assert grid.decoding(sequences, context) == grid.at(Point(0, 0, sequences, context))


def test_what_is_no_grid_is_told() -> None:
    with pytest.raises(UsageError, match="no grid"):
        AttentionGrid([])
    with pytest.raises(UsageError, match="no grid"):
        AttentionGrid([(Point(0, 0, 1, 16), 9.3)])
    holes = [each for each in measured() if each[0] != Point(32, 16, 2, 64)]
    with pytest.raises(UsageError, match="lacks 1 points"):
        AttentionGrid(holes)
