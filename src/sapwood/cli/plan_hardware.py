"""`--hardware` and what else is said of a replica's devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sapwood.sim import Hardware, hardware_named, spanning

_OF_NO_NAME = frozenset({"mfu", "memory_utilization", "price_per_hour"})
"""What may be said of a device that is still the known one."""


def replica_of(name: str, devices: int, said: Mapping[str, Any]) -> Hardware:
    """So many known devices as one, but for what was `said` of each: fields of `Hardware`, None where nobody said it.

    Raises UsageError.
    """
    known = hardware_named(name)
    given: Mapping[str, Any] = {field: value for field, value in said.items() if value is not None}
    changed = set(given) - _OF_NO_NAME
    device = replace(known, **given, name=f"{known.name}, changed" if changed else known.name)
    return spanning(device, devices)
