"""What a request is told that its prompt cost."""

from __future__ import annotations

from dataclasses import dataclass

from sapwood.contract.profiles import Implicit


@dataclass(frozen=True, slots=True)
class Written:
    """Tokens written with one time-to-live, in seconds."""

    ttl: float
    tokens: int


@dataclass(frozen=True, slots=True)
class Billing:
    """`read + sum(written) + plain == prompt tokens`. `written` has each ttl once, the longest first."""

    read: int
    written: tuple[Written, ...]
    plain: int

    @property
    def written_tokens(self) -> int:
        return sum(each.tokens for each in self.written)

    def written_at(self, ttl: float) -> int:
        """Tokens written with this time-to-live, in seconds."""
        return sum(each.tokens for each in self.written if each.ttl == ttl)


def implicit_billing(profile: Implicit, prompt_tokens: int, reused: int) -> Billing:
    """For rules that keep no entries: what was physically there, if it is enough to speak of."""
    read = reused if reused >= profile.minimum else 0
    return Billing(read, (), prompt_tokens - read)
