"""Native draws and their slow twin, bit for bit: rows of any length, ties, bans, cuts, and what is not finite."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sapwood.model import draw_reference
from sapwood.model.ops import Picked, Ranked
from sapwood.model.ops_native import NativeOps
from sapwood.model.ops_reference import ReferenceOps
from sapwood.types import SamplingParams

TWIN, ONE, TWO = ReferenceOps(), NativeOps(1), NativeOps(2)

Floats = NDArray[np.float32]
BIG = float(np.finfo(np.float32).max)

counts = st.one_of(st.integers(1, 140), st.sampled_from([64, 128, 2048, 2049, 3000, 20000]))
numbers = st.one_of(
    st.floats(0, 1, exclude_max=True), st.sampled_from([0.0, 0.5, 1 - 2.0**-53, 2.0**-1074, 1e-300])
)
cuts = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 5e-324, 1e-300, 0.01, 0.7, 1.0, 1.0, 1.3, 7.0, 100.0]),
    top_k=st.sampled_from([0, 0, 0, 1, 2, 40, 63, 700, 19999, 20000, 2**40]),
    top_p=st.one_of(
        st.just(1.0), st.just(1.0), st.floats(0.001, 1.0), st.sampled_from([1e-300, 0.9, 0.9999])
    ),
    min_p=st.sampled_from([0.0, 0.0, 0.0, 1e-12, 0.05, 1.0]),
)


@st.composite
def rows(draw: st.DrawFn, count: int) -> Floats:
    """Flat and peaked rows, with ties, zeros of both signs, bans and huge values."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    row = (rng.standard_normal(count) * draw(st.sampled_from([0.0, 0.01, 1.0, 4.0, 300.0]))).astype(
        np.float32
    )
    if draw(st.booleans()):
        row = np.rint(row).astype(np.float32)
    if draw(st.booleans()):
        row[rng.random(count) < draw(st.sampled_from([0.02, 0.5, 0.999]))] = -np.inf
    if draw(st.integers(0, 5)) == 0:
        row[rng.integers(count, size=3)] = rng.choice([BIG, -BIG, 0.0, -0.0, 1e-40], 3).astype(np.float32)
    if np.isneginf(row).all():
        row[rng.integers(count)] = 1.5
    return row


def check_pick(rows: list[Floats], params: list[SamplingParams], numbers: list[float]) -> Picked:
    expected = TWIN.pick(rows, params, numbers)
    for ops in (ONE, TWO):
        got = ops.pick(rows, params, numbers)
        assert got.tokens.tolist() == expected.tokens.tolist()
        assert got.finite.tolist() == expected.finite.tolist()
    return expected


def check_rank(rows: list[Floats], top: int) -> Ranked:
    expected = TWIN.rank(rows, top)
    for ops in (ONE, TWO):
        got = ops.rank(rows, top)
        assert got.tokens.tolist() == expected.tokens.tolist()
        assert got.peaks.tobytes() == expected.peaks.tobytes()
        assert got.weights.tobytes() == expected.weights.tobytes()
        assert got.finite.tolist() == expected.finite.tolist()
    return expected


@settings(max_examples=300)
@given(st.data(), counts, st.lists(st.tuples(cuts, numbers), min_size=1, max_size=3))
def test_a_pick_is_that_of_the_twin(
    data: st.DataObject, count: int, asked: list[tuple[SamplingParams, float]]
) -> None:
    each = [data.draw(rows(count)) for _ in asked]
    picked = check_pick(each, [params for params, _ in asked], [number for _, number in asked])
    assert all(not np.isneginf(row[token]) for row, token in zip(each, picked.tokens, strict=True))


@settings(max_examples=100)
@given(st.data(), counts, st.sampled_from([0, 1, 5, 33, 300, 20000]))
def test_a_ranking_is_that_of_the_twin(data: st.DataObject, count: int, top: int) -> None:
    check_rank([data.draw(rows(count)), data.draw(rows(count))], min(top, count))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("at", [0, 77, 127, 128, 129])
def test_what_is_not_finite_is_noticed_wherever_it_is(bad: float, at: int) -> None:
    good = np.linspace(-3, 5, 130, dtype=np.float32)
    ill = good.copy()
    ill[at] = bad
    for temperature in (0.0, 1.0):
        params = [SamplingParams(temperature=temperature, top_k=3)] * 2
        assert check_pick([good, ill], params, [0.3, 0.3]).finite.tolist() == [True, False]
    assert check_rank([ill, good], 4).finite.tolist() == [False, True]


def test_finite_logits_whose_sum_overflows_are_finite() -> None:
    row = np.full(300, BIG, np.float32)
    assert check_pick([row], [SamplingParams(top_p=0.5)], [0.999]).finite.all()


@settings(max_examples=300)
@given(st.floats(-708, 0))
@example(0.0)
@example(-708.0)
def test_exp_is_within_two_units_in_the_last_place(x: float) -> None:
    (found,) = draw_reference.exp(np.array([x])).tolist()
    assert abs(found - math.exp(x)) <= 2 * math.ulp(math.exp(x))


def test_exp_has_its_ends() -> None:
    assert draw_reference.exp(np.array([0.0, -0.0, -708.1, -np.inf])).tolist() == [1.0, 1.0, 0.0, 0.0]


keys = st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 3))


@given(keys, keys, keys)
def test_a_number_is_that_of_numpys_generator(seed: int, sample: int, position: int) -> None:
    assert ONE.uniform(seed, sample, position) == draw_reference.uniform(seed, sample, position)


def test_no_rows_are_no_work() -> None:
    assert len(check_pick([], [], []).tokens) == 0


def test_shapes_that_do_not_fit_are_refused() -> None:
    one, two = np.zeros(3, np.float32), np.zeros(4, np.float32)
    with pytest.raises(ValueError, match="one width"):
        ONE.pick([one, two], [SamplingParams()] * 2, [0.0, 0.0])
    with pytest.raises(ValueError, match="more tokens"):
        ONE.rank([one], 4)


def test_rows_of_another_type_are_refused_not_copied() -> None:
    wide: list[Any] = [np.zeros(3)]
    with pytest.raises(TypeError):
        ONE.pick(wide, [SamplingParams()], [0.0])
    with pytest.raises(TypeError):
        ONE.rank(wide, 2)
