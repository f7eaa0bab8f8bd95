"""How much work a case does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeVar

Size = Literal["quick", "scout", "normal", "full"]
"""quick only proves that a case works end to end; its figures mean nothing. scout tells a server's settings apart."""

T = TypeVar("T")


def sized(size: Size, *, quick: T, normal: T, full: T | None = None, scout: T | None = None) -> T:
    """The value for a size; `full` and `scout` are as `normal` unless given."""
    values: Mapping[Size, T] = {
        "quick": quick,
        "scout": normal if scout is None else scout,
        "normal": normal,
        "full": normal if full is None else full,
    }
    return values[size]
