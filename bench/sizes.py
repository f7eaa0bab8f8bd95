"""How much work a case does."""

from __future__ import annotations

from typing import Literal, TypeVar

Size = Literal["quick", "scout", "normal", "full"]
"""quick only proves that a case works end to end; its figures mean nothing. scout tells a server's settings apart."""

T = TypeVar("T")


def sized(size: Size, *, quick: T, normal: T, full: T | None = None) -> T:
    """The value for a size; `full` is as `normal` unless given, and `scout` a quarter of it if it is a number."""
    if size == "quick":
        return quick
    if size == "scout" and isinstance(normal, int) and isinstance(quick, int):
        return max(quick, normal // 4)  # type: ignore[return-value]  # T is int here
    return normal if full is None or size != "full" else full
