"""Numbers for people."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.cli import plan_numbers as numbers

POSITIVE = st.floats(1e-12, 1e15, allow_nan=False)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0.0, "0"),
        (2.81e-5, "≈ 0"),
        (-2.81e-5, "≈ 0"),
        (0.00488, "0.0049"),
        (0.365, "0.365"),
        (54.71, "54.7"),
        (100.0, "100"),
        (3670.4, "3,670"),
        (math.nan, "–"),
    ],
)
def test_figures(value: float, said: str) -> None:
    assert numbers.figures(value) == said


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (20.0, "20"),
        (17.5, "17.50"),
        (1234.5, "1,234.50"),
        (0.05, "0.05"),
        (0.0312, "0.031"),
        (0.00469, "0.0047"),
        (0.0001234, "0.00012"),
        (1e-6, "0.000001"),
        (9e-7, "≈ 0"),
        (0.0, "0"),
        (math.nan, "–"),
    ],
)
def test_money(value: float, said: str) -> None:
    assert numbers.money(value) == said


def test_one_of_a_thing_is_no_several() -> None:
    assert [numbers.counted(n, "request") for n in (0, 1, 1600)] == [
        "0 requests",
        "1 request",
        "1,600 requests",
    ]


@given(POSITIVE)
def test_nothing_has_an_exponent(value: float) -> None:
    for show in (numbers.figures, numbers.seconds, numbers.gigabytes, numbers.tokens, numbers.money):
        assert "e" not in show(value).replace("bytes", "").replace("over", "")
    assert (numbers.money(value) == "≈ 0") == (value < 1e-6)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (5.0, "5 s"),
        (599.5, "599.5 s"),
        (600.0, "10 min"),
        (630.0, "10.5 min"),
        (700.0, "700 s"),
        (700.25, "700.25 s"),
        (37_000.0, "37,000 s"),
        (37_800.0, "10.5 h"),
        (950_400.0, "11 days"),
        (1e300, "over a million days"),
    ],
)
def test_exact_seconds_are_in_a_unit_in_which_they_are_short(value: float, said: str) -> None:
    assert numbers.exact_seconds(value) == said


@given(st.floats(0.001, 1), st.floats(0.001, 1))
def test_what_differs_is_told_apart(value: float, goal: float) -> None:
    digits = numbers.apart(value, goal, numbers.percent, 1)
    told = [float(numbers.percent(each, digits).removesuffix(" %")) for each in (value, goal)]
    if abs(value - goal) > 1e-12:
        assert (told[0] < told[1]) == (value < goal)
    assert digits == 1 or abs(value - goal) < 0.002
