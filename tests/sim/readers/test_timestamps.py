"""Times as logs write them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from sapwood.sim.readers.timestamps import seconds_of, seconds_without_year

THEN = datetime(2026, 11, 29, 10, 0, 9, 250_000, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    "value",
    [
        "2026-11-29T10:00:09.250Z",
        "2026-11-29 10:00:09.25",
        "2026-11-29 10:00:09,250",
        "2026-11-29T10:00:09.2500000",
        "2026-11-29T12:00:09.250+02:00",
        "2026-11-29T04:30:09.250-0530",
        THEN,
        str(THEN),
        THEN * 1e3,
        int(THEN * 1e6),
        str(int(THEN * 1e9)),
    ],
)
def test_all_of_these_are_one_moment(value: object) -> None:
    assert seconds_of(value) == pytest.approx(THEN, abs=1e-5)


@pytest.mark.parametrize(
    "value", [None, True, "soon", "", [], "2026-11", float("inf"), float("nan"), "9" * 400, 10**400]
)
def test_these_are_none(value: object) -> None:
    assert seconds_of(value) is None


def test_without_a_year_it_counts_from_its_beginning() -> None:
    assert seconds_without_year("01-01 00:00:01.5") == 1.5
    assert seconds_without_year("03-01 00:00:00") == 60 * 86400
    assert seconds_without_year("x") is None
