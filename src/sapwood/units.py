"""Sizes and durations as people write them: `512MiB`, `2GiB`, `5m`. Standard library only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from sapwood.errors import UsageError

_SIZES: Mapping[str, float] = MappingProxyType(
    {
        "": 1,
        "b": 1,
        "kib": 2**10,
        "mib": 2**20,
        "gib": 2**30,
        "tib": 2**40,
        "kb": 10**3,
        "mb": 10**6,
        "gb": 10**9,
        "tb": 10**12,
        "k": 2**10,
        "m": 2**20,
        "g": 2**30,
        "t": 2**40,
    }
)
_DURATIONS: Mapping[str, float] = MappingProxyType(
    {"": 1.0, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
)
_QUANTITY = re.compile(r"\s*(\d{1,18}(?:\.\d{1,18})?)\s*([a-z]*)\s*", re.ASCII | re.IGNORECASE)


def parse_size(text: str) -> int:
    """Bytes in `text`: plain bytes, or a number with KiB, MiB, GiB, TiB (also kB, MB, GB, TB and K, M, G, T).

    Raises UsageError for anything else.
    """
    number, unit = _split(text, _SIZES, "a size such as 512MiB, 2GiB or plain bytes")
    return int(number * _SIZES[unit])  # Exact up to 2**53 bytes.


def parse_duration(text: str) -> float:
    """Seconds in `text`: plain, or a number with ms, s, m, h or d. Raises UsageError for anything else."""
    number, unit = _split(text, _DURATIONS, "a duration such as 5m, 1h or plain seconds")
    return number * _DURATIONS[unit]


def format_size(count: int) -> str:
    """`count` bytes with a binary unit and at most two decimals, `1.5 GiB`."""
    value, unit = float(count), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.2f}".rstrip("0").rstrip(".") + f" {unit}"


def _split(text: str, units: Mapping[str, float], expected: str) -> tuple[float, str]:
    match = _QUANTITY.fullmatch(text)
    if match is None or match[2].lower() not in units:
        raise UsageError(f"{text!r} is not {expected}")
    return float(match[1]), match[2].lower()
