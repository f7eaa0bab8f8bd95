from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.errors import UsageError
from sapwood.units import format_size, parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("512MiB", 512 * 2**20),
        ("2GiB", 2 * 2**30),
        ("1.5 gib", 3 * 2**29),
        ("100", 100),
        ("3kB", 3000),
        ("4G", 2**32),
    ],
)
def test_sizes(text: str, expected: int) -> None:
    assert parse_size(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("5m", 300.0), ("1h", 3600.0), ("90", 90.0), ("1.5s", 1.5), ("250ms", 0.25), ("2d", 172800.0)],
)
def test_durations(text: str, expected: float) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize("text", ["", "MiB", "-1", "1e9", "12XB", "1 2", "0x10", "٣", "∞", "9" * 400])
def test_what_is_neither_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="512MiB"):
        parse_size(text)
    with pytest.raises(UsageError, match="5m"):
        parse_duration(text)


@given(st.integers(0, 2**60))
def test_a_formatted_size_reads_back_near_itself(size: int) -> None:
    unit = format_size(size).replace(" bytes", "")
    assert parse_size(unit) == pytest.approx(size, rel=6e-3)
