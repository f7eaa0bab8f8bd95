"""The arithmetic that kernels and twin share, against rational numbers and the standard library."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sapwood.model import exact_float as ef

F32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
BIG = float(np.finfo(np.float32).max)
TINY = 2.0**-149


def f32(value: Any) -> np.float32:
    return np.float32(value)


def nearest(value: Fraction) -> np.float32:
    """A rational number rounded once to float32, ties to even; beyond the largest by IEEE 754's rule."""
    if value == 0:
        return f32(0)
    exponent = max(_floor_log2(abs(value)) - 23, -149)
    steps = abs(value) / Fraction(2) ** exponent
    whole = steps.numerator // steps.denominator
    rest = steps - whole
    whole += rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1)
    found = Fraction(whole) * Fraction(2) ** exponent
    size = f32(math.inf) if found > Fraction(BIG) else f32(float(found))
    return size if value > 0 else -size


def _floor_log2(value: Fraction) -> int:
    guess = value.numerator.bit_length() - value.denominator.bit_length()
    return guess if Fraction(2) ** guess <= value else guess - 1


@settings(max_examples=1000)
@given(F32, F32, F32)
@example(1.0 + 2.0**-23, 1.0 + 2.0**-23, -1.0)
@example(1.0 + 2.0**-12, 1.0 + 2.0**-12, 2.0**-60)
@example(1.0 + 2.0**-12, 1.0 - 2.0**-12, 2.0**-25)
@example(2.0**-75, 2.0**-75, TINY)
@example(2.0**-75, 2.0**-74, 2.0**-140)
@example(BIG, 1.0, BIG)
@example(BIG, BIG, -BIG)
@example(BIG, 1.0, 2.0**103)
@example(3.0, 5.0, -15.0)
def test_fma_rounds_once(a: float, b: float, c: float) -> None:
    expected = nearest(Fraction(a) * Fraction(b) + Fraction(c))
    assert ef.fma(a, b, c)[()] == expected


@settings(max_examples=300)
@given(st.integers(-(2**24), 2**24), st.integers(-(2**24), 2**24), st.integers(-60, 60), st.booleans())
def test_fma_next_to_ties(a: int, b: int, shift: int, up: bool) -> None:
    """Products of 48 bits and an addend that reaches just beyond them: where rounding twice goes wrong."""
    c = math.ldexp(1.0 if up else -1.0, shift)
    assert ef.fma(a, b, c)[()] == nearest(Fraction(a) * Fraction(b) + Fraction(c))


def test_rounding_twice_would_be_seen() -> None:
    """The plain float64 way gives another result here, so the tests above have teeth."""
    a, b, c = f32(1 + 2.0**-12), f32(1 + 2.0**-12), f32(2.0**-60)
    twice = f32(float(a) * float(b) + float(c))
    assert twice != ef.fma(a, b, c)[()]


def test_fma_broadcasts_and_passes_on_what_is_not_finite() -> None:
    assert ef.fma(np.ones((2, 1)), np.ones(3), 1.0).shape == (2, 3)
    assert np.isnan(ef.fma(math.nan, 1.0, 1.0))
    assert np.isnan(ef.fma(math.inf, 1.0, -math.inf))
    assert ef.fma(math.inf, 1.0, 5.0) == math.inf


def test_chain_is_one_fma_after_another() -> None:
    rng = np.random.default_rng(0)
    x, weight = (rng.standard_normal((rows, 37)).astype(np.float32) for rows in (3, 5))
    found = ef.chain(x, weight)
    for m in range(3):
        for n in range(5):
            total = f32(0)
            for k in range(37):
                total = nearest(
                    Fraction(float(x[m, k])) * Fraction(float(weight[n, k])) + Fraction(float(total))
                )
            assert found[m, n] == total


def test_lanes_are_added_in_one_tree() -> None:
    lanes = np.array([1e8, 1.0, -1e8, 1.0, 3.0, 5.0, 7.0, 9.0], np.float32)
    a, b, c, d = (f32(lanes[i] + lanes[i + 4]) for i in range(4))
    assert ef.sum_lanes(lanes) == f32(f32(a + c) + f32(b + d))
    assert ef.sum_lanes(np.ones((4, 8), np.float32)).tolist() == [8.0] * 4


@settings(max_examples=500)
@given(st.floats(-87, 88, width=32))
def test_exp_is_within_two_units_of_the_last_place(x: float) -> None:
    expected = math.exp(x)
    assert abs(float(ef.exp(np.array([x], np.float32))[0]) - expected) <= 2 * float(np.spacing(f32(expected)))


def test_exp_at_its_edges() -> None:
    found = ef.exp(np.array([0.0, -0.0, -87.34, -200.0, -math.inf, 88.3, 1000.0, math.nan], np.float32))
    assert found[:5].tolist() == [1.0, 1.0, 0.0, 0.0, 0.0]
    assert np.isfinite(found[5:7]).all()
    assert np.isnan(found[7])


def test_exp_never_falls() -> None:
    xs = np.linspace(-88, 88, 200_001, dtype=np.float32)
    values = ef.exp(xs).astype(np.float64)
    # A polynomial may dip by a unit of the last place where its intervals meet; never by more.
    assert (np.diff(values) >= -np.spacing(values[1:].astype(np.float32))).all()


@given(st.floats(-80, 80, width=32))
def test_silu_is_near_the_definition(x: float) -> None:
    expected = x / (1 + math.exp(-x))
    assert float(ef.silu(np.array([x], np.float32))[0]) == pytest.approx(expected, rel=1e-6, abs=1e-37)


@given(st.floats(-9, 9, width=32))
@example(-8.9)
@example(1e30)
@example(-1e30)
def test_gelu_is_near_the_definition(x: float) -> None:
    u = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    expected = x / (1 + math.exp(-2 * u)) if u > -300 else -0.0
    assert float(ef.gelu_tanh(np.array([x], np.float32))[0]) == pytest.approx(expected, rel=2e-5, abs=1e-7)


@pytest.mark.parametrize("width", [1, 7, 8, 9, 64, 577])
def test_rms_norm_is_near_the_definition(width: int) -> None:
    rng = np.random.default_rng(width)
    x, weight = (
        rng.standard_normal((3, 2, width)).astype(np.float32),
        rng.standard_normal(width).astype(np.float32),
    )
    mean = (x.astype(np.float64) ** 2).mean(axis=-1, keepdims=True)
    np.testing.assert_allclose(
        ef.rms_norm(x, weight, 1e-5), x / np.sqrt(mean + 1e-5) * weight, rtol=2e-6, atol=1e-7
    )


def test_a_row_is_normed_by_itself() -> None:
    x = np.random.default_rng(1).standard_normal((5, 20)).astype(np.float32)
    weight = np.ones(20, np.float32)
    assert ef.rms_norm(x, weight, 1e-5)[3].tobytes() == ef.rms_norm(x[3:4], weight, 1e-5)[0].tobytes()
