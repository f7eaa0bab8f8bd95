"""How long answers are taken to be that a log does not hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sapwood.sim.readers.call import Call

UNKNOWN_TOKENS = 256
"""Where nothing is known: means of public traces are 211 (Azure, conversations) and 342 (Mooncake, conversations)."""


@dataclass(frozen=True, slots=True)
class Answers:
    """Attributes:
    tokens: of each that is not known, or what its request allows if that is less.
    known: how many the mean is taken of; 0 where `tokens` is no mean.
    given: whether somebody said it.
    """

    tokens: int = UNKNOWN_TOKENS
    known: int = 0
    given: bool = False

    @classmethod
    def of(cls, lengths: Sequence[int | None], given: int | None) -> Answers:
        """`lengths`: of all answers, None where unknown; `given`: what is to be assumed of these."""
        if given is not None:
            return cls(given, given=True)
        known = [length for length in lengths if length is not None]
        return cls(round(sum(known) / len(known)), len(known)) if any(known) else cls()

    def length(self, call: Call) -> int:
        return self.tokens if call.limit is None else min(self.tokens, call.limit)

    def notes(self, calls: Sequence[Call]) -> tuple[str, ...]:
        """For people; `calls` are those whose answers are not known."""
        if not calls:
            return ()
        why = f", the mean of the {self.known:,} that are known" if self.known else ""
        limited = sum(self.length(call) < self.tokens for call in calls)
        cut = f", {limited:,} of them as their max_tokens, which is less" if limited else ""
        other = "" if self.given else "; --output-tokens N assumes another length"
        return (
            f"{len(calls):,} answers are of unknown length and taken as {self.tokens:,} tokens each{why}{cut}{other}",
        )
