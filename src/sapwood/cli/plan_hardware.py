"""`--hardware` and what else is said of a replica's devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from sapwood.sim import Hardware, hardware_named, spanning

_WORDS: Mapping[str, Callable[[float], str]] = MappingProxyType(
    {
        "peak_flops": lambda flops: f"{flops / 1e12:.4g} TFLOP/s",
        "bandwidth": lambda size: f"{size / 1e12:.3g} TB/s",
        "memory_bytes": lambda size: f"{size / 1e9:.3g} GB",
    }
)
"""What makes another device of a known one; shares and prices do not."""


def replica_of(name: str, devices: int, said: Mapping[str, Any]) -> Hardware:
    """So many known devices as one, but for what was `said` of each: fields of `Hardware`, None where nobody said it.

    Raises UsageError.
    """
    known = hardware_named(name)
    given: Mapping[str, Any] = {field: value for field, value in said.items() if value is not None}
    changed = [word(given[field]) for field, word in _WORDS.items() if field in given]
    device = replace(
        known, **given, name=f"{known.name} with {', '.join(changed)}" if changed else known.name
    )
    return spanning(device, devices)
