"""Sapwood serves open-weight language models and never computes the same prefix twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sapwood.errors import SapwoodError
from sapwood.types import Constraint, Retain, SamplingParams

if TYPE_CHECKING:
    from sapwood.llm import LLM

__all__ = ["LLM", "Constraint", "Retain", "SamplingParams", "SapwoodError", "__version__"]
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    # The engine is imported only when asked for: `cache`, `sched` and the reports work without the model room.
    if name == "LLM":
        from sapwood.llm import LLM

        return LLM
    raise AttributeError(f"module 'sapwood' has no attribute {name!r}")
