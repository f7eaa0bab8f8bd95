"""The serving scenarios, one file each; here is their order."""

from __future__ import annotations

from collections.abc import Sequence

from ..sizes import Size
from . import (
    cold_prefill,
    decode,
    documents,
    exact_repeat,
    exactness,
    multi_turn,
    restart,
    samples,
    shared_system,
    starved_chat,
)
from .base import Case

__all__ = ["Case", "all_cases"]


def all_cases(size: Size) -> Sequence[Case]:
    makers = (
        cold_prefill.case,
        exact_repeat.case,
        decode.alone,
        decode.together,
        shared_system.case,
        multi_turn.case,
        documents.case,
        samples.case,
        exactness.case,
        starved_chat.case,
        restart.case,
    )
    return [make(size) for make in makers]
