"""`--cost`: where the times of `sapwood plan` come from."""

from __future__ import annotations

from collections.abc import Mapping

from sapwood.cli.talk import Talk
from sapwood.sim import FORMULA, TEXT, CostModel, Hardware, ModelShape, cost_from


def cost_named(source: str | None, model: ModelShape, hardware: Hardware) -> CostModel:
    """Raises UsageError. A large capture takes seconds, and it is told that they pass."""
    if source in (None, FORMULA, TEXT):
        return cost_from(source or FORMULA, model, hardware)
    with Talk().working(f"fitting: {source}") as progress:
        progress(f"fitting: {source}")
        return cost_from(source, model, hardware)


def assumed(source: str | None, given: Mapping[str, object]) -> tuple[str, ...]:
    """Flags that nobody gave, of those that are to name what the times were measured on."""
    if source in (None, FORMULA, TEXT):
        return ()
    return tuple(flag for flag, value in given.items() if value is None)
