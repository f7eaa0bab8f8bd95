"""What was done to what is held for good, for whoever writes it down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from sapwood.cache import Namespace, Tokens


@dataclass(frozen=True, slots=True, eq=False)
class Tried:
    """A prompt was to be pinned. It was looked up, and marked as used, also where it is not held then."""

    id: str
    namespace: Namespace
    tokens: Tokens
    at: float
    """By the cache's clock."""
    held: bool


@dataclass(frozen=True, slots=True)
class Unpinned:
    id: str


@dataclass(frozen=True, slots=True, eq=False)
class Published:
    """For all to read, once and for good."""

    prefixes: tuple[Tokens, ...]


Move: TypeAlias = Tried | Unpinned | Published
