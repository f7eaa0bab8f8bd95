"""The least that is enough, with few questions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

Choice = TypeVar("Choice")


def least(choices: Sequence[Choice], enough: Callable[[Choice], bool]) -> Choice | None:
    """The first of `choices` that is enough, or None; once one is, all later ones are taken to be.

    Asks from the front in growing strides, as what is far too little or too much is the dearest to ask about.
    """
    low, stride, at = 0, 1, 0
    while at < len(choices) - 1 and not enough(choices[at]):
        low, at, stride = at + 1, min(at + stride, len(choices) - 1), stride * 2
    if at >= len(choices) - 1 and (not choices or not enough(choices[-1])):
        return None
    high = at
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(choices[middle]) else (middle + 1, high)
    return choices[high]
