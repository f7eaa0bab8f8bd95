"""Times as logs write them. No clock is read."""

from __future__ import annotations

import calendar
import math
import re

_DATE = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9})\d*)?\s*(Z|[+-]\d\d:?\d\d)?", re.ASCII
)
_NO_YEAR = re.compile(r"(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?", re.ASCII)

_MILLISECONDS = 1e11
"""Numbers from here on are no seconds since 1970: they would be of the year 5138."""


def seconds_of(value: object) -> float | None:
    """Seconds since 1970 of an ISO date (UTC if it names no zone), or of s, ms, µs or ns; None if it is neither."""
    if isinstance(value, bool) or value is None:
        return None
    text = str(value).strip()
    if isinstance(value, int | float) or re.fullmatch(r"\d+(\.\d+)?", text, re.ASCII):
        number = float(text)  # Of what is too large for one it is infinite.
        return _scaled(number) if math.isfinite(number) else None
    match = _DATE.match(text)
    return None if match is None else _of_date(match)


def seconds_without_year(text: str) -> float | None:
    """Of `11-29 10:00:00`, counted from the beginning of a leap year."""
    match = _NO_YEAR.match(text)
    if match is None:
        return None
    month, day, hour, minute, second = map(int, match.groups()[:5])
    return _utc(2024, month, day, hour, minute, second) - _utc(2024, 1, 1, 0, 0, 0) + _fraction(match[6])


def _scaled(value: float) -> float:
    while value >= _MILLISECONDS:
        value /= 1000
    return value


def _of_date(match: re.Match[str]) -> float:
    year, month, day, hour, minute, second = map(int, match.groups()[:6])
    zone = match[8] or "Z"
    shift = 0
    if zone != "Z":
        shift = (int(zone[1:3]) * 60 + int(zone[-2:])) * 60 * (-1 if zone[0] == "-" else 1)
    return _utc(year, month, day, hour, minute, second) - shift + _fraction(match[7])


def _utc(*parts: int) -> float:
    return float(calendar.timegm((*parts, 0, 0, 0)))


def _fraction(digits: str | None) -> float:
    return int(digits) / 10 ** len(digits) if digits else 0.0
