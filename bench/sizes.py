"""How much work a case does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeVar

Size = Literal["quick", "normal", "full"]
"""quick only proves that a case works end to end; its figures mean nothing."""

T = TypeVar("T")


def sized(size: Size, *, quick: T, normal: T, full: T | None = None) -> T:
    """The value for a size; `full` is as `normal` unless given."""
    values: Mapping[Size, T] = {
        "quick": quick,
        "normal": normal,
        "full": normal if full is None else full,
    }
    return values[size]
