"""The choice of experts: whom the highest scores name, ties by number, weights near the softmax, rows alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.model.routing import route
from sapwood.model.spec import Experts


def scores(*rows: list[float]) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    return np.array(rows, np.float32)


def test_equal_scores_go_to_the_lower_number() -> None:
    found = route(
        scores([1.0, 3.0, 3.0, 1.0], [2.0, 2.0, 2.0, 2.0], [0.0, -0.0, -1.0, 0.0]), Experts(4, 3, True)
    )
    assert found.experts.tolist() == [[1, 2, 0], [0, 1, 2], [0, 1, 3]]
    assert found.weights[1].tolist() == [np.float32(1 / 3)] * 3


@given(st.integers(0, 2**32 - 1), st.integers(1, 8), st.booleans(), st.floats(0.1, 60))
def test_weights_are_near_the_softmax(seed: int, used: int, normalised: bool, spread: float) -> None:
    rows = (spread * np.random.default_rng(seed).standard_normal((5, 8))).astype(np.float32)
    found = route(rows, Experts(8, used, normalised))
    shares = np.exp(rows.astype(np.float64) - rows.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    expected = np.take_along_axis(shares, found.experts, axis=1)
    if normalised:
        expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found.weights, expected, rtol=1e-6, atol=1e-40)
    assert (np.sort(rows, axis=1)[:, ::-1][:, :used] == np.take_along_axis(rows, found.experts, axis=1)).all()


@pytest.mark.parametrize("normalised", [True, False])
def test_a_row_is_routed_by_itself(normalised: bool) -> None:
    rows = np.random.default_rng(3).standard_normal((40, 16)).astype(np.float32)
    together = route(rows, Experts(16, 4, normalised))
    for i in range(len(rows)):
        alone = route(rows[i : i + 1], Experts(16, 4, normalised))
        assert alone.experts.tobytes() == together.experts[i].tobytes()
        assert alone.weights.tobytes() == together.weights[i].tobytes()


def test_the_weights_bits_are_pinned() -> None:
    """Arithmetic of additions, multiplications and divisions: the same on every CPU and with every library."""
    found = route(scores([0.1, 1.7, -2.5, 0.9]), Experts(4, 3, False))
    assert found.experts.tolist() == [[1, 3, 0]]
    pinned = ["0x1.33483c0000000p-1", "0x1.14243c0000000p-2", "0x1.f050460000000p-4"]
    assert [weight.hex() for weight in found.weights[0].tolist()] == pinned
