"""Numbers for people: three figures or so, never an exponent, and more digits where a rounded one would mislead."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

Shown: TypeAlias = Callable[[float, int], str]
"""A value with so many digits."""
MOST_DIGITS = 12
_SHORT = 5
_MINUTES_FROM, _DAY = 600.0, 86_400.0


def figures(value: float, digits: int = 3) -> str:
    """So many of them, or all of a whole number: `0.365`, `54.7`, `3,670`; what is almost nothing is `≈ 0`."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else "–"
    if abs(value) < 10.0**-digits:
        return "≈ 0"
    decimals = min(digits + 1, max(0, digits - 1 - math.floor(math.log10(abs(value)))))
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def percent(rate: float, digits: int = 1) -> str:
    """`15.0 %`, with so many digits after the point."""
    return "–" if math.isnan(rate) else f"{100 * rate:.{digits}f} %"


def load(value: float, digits: int = 0) -> str:
    """`85 %`, of what can be computed in the time that there is."""
    return "–" if math.isnan(value) else f"{100 * value:,.{digits}f} %"


def seconds(value: float, digits: int = 3) -> str:
    """`73 ms`, `1.25 s`, `4.1 min`; `never` for what did not come."""
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "never"
    for below, size, unit in (
        (0.9995e-3, 1e-6, "µs"),
        (0.9995, 1e-3, "ms"),
        (_MINUTES_FROM, 1, "s"),
        (36_000, 60, "min"),
        (10 * _DAY, 3600, "h"),
    ):
        if value < below:
            return f"{figures(value / size, digits)} {unit}"
    return f"{figures(value / _DAY, digits)} days" if value < 1e6 * _DAY else "over a million days"


def gigabytes(value: float, digits: int = 3) -> str:
    """Decimal, as the vendors of accelerators count."""
    for least, size, unit in ((1000, 1000, "TB"), (1, 1, "GB"), (1e-3, 1e-3, "MB"), (1e-6, 1e-6, "kB")):
        if value >= 0.9995 * least:
            return f"{figures(value / size, digits)} {unit}"
    return f"{1e9 * value:.0f} bytes"


def tokens(count: float) -> str:
    """`512`, `24.6k`, `1.25M`."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= 0.9995 * size:
            return f"{figures(count / size)}{unit}"
    return f"{count:.0f}"


def money(value: float, digits: int = 2) -> str:
    """`20`, `17.50`, `0.031`, `0.0047`: small sums keep two figures; below a millionth they are `≈ 0`."""
    text = f"{value:,.{digits}f}"
    if float(text.replace(",", "")) == value:
        return text.removesuffix("." + "0" * digits)
    if value >= 1:
        return text
    if math.isnan(value) or value < 1e-6:
        return figures(value)
    decimals = max(2, digits) - 1 - math.floor(math.log10(value))
    return f"{value:.{decimals}f}".rstrip("0").rstrip(".")


def counted(count: int, name: str) -> str:
    """`1 request`, `1,600 requests`."""
    return f"{count:,} {name}" + "s" * (count != 1)


def apart(value: float, other: float, show: Shown, digits: int) -> int:
    """As many digits as tell `value` from `other`, at least `digits`: 14.97 % is not shown as the 15.0 % it misses."""
    if value == other or not (math.isfinite(value) and math.isfinite(other)):
        return digits
    return next(
        (n for n in range(digits, MOST_DIGITS) if not _same(show(value, n), show(other, n))), MOST_DIGITS
    )


def exact(value: float, show: Shown, digits: int) -> str:
    """Of what somebody gave: with as many digits as they gave, at least `digits`."""
    texts = (show(value, n) for n in range(digits, MOST_DIGITS))
    wanted = show(value, MOST_DIGITS)
    return next((text for text in texts if _same(text, wanted)), wanted)


def exact_seconds(value: float) -> str:
    """Likewise, in seconds where it is no short number of a larger unit: `10.5 min`, `700 s`."""
    if value < _MINUTES_FROM or _same(seconds(value, _SHORT), seconds(value, MOST_DIGITS)):
        return exact(value, seconds, 3)
    return exact(value, lambda number, digits: f"{figures(number, digits)} s", 3)


def _same(one: str, other: str) -> bool:
    """But for zeros at the end."""
    (number, _, unit), (another, _, another_unit) = one.partition(" "), other.partition(" ")
    if unit != another_unit:
        return False
    try:
        return float(number.replace(",", "")) == float(another.replace(",", ""))
    except ValueError:
        return number == another
