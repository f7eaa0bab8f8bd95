"""A request of a trace with its contents: what comes to a replica's door."""

from __future__ import annotations

from dataclasses import dataclass

from sapwood.cache import Namespace, Tokens
from sapwood.types import Retain


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asked for that a trace does not say, where it is known.

    Attributes:
        tokens: most tokens of its answer, which may be more than it has: what is guessed depends on it. None: as many
            as fit.
        priority, reuse, retain: as in `Request`.
        ends: tokens that end its answer, behind which nothing is guessed.
    """

    tokens: int | None
    priority: int = 0
    reuse: bool = True
    retain: tuple[Retain, ...] = ()
    ends: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Visit:
    """`tokens` are those of the prompt and of the answer that will be given.

    Where several samples are drawn, `others` are those of the prompt and each further answer. `cut` has the samples,
    counted from 0, that do not end with their tokens, as whoever asked is gone by then (`Replica.abort`).
    """

    index: int
    """Of the request in its trace."""
    namespace: Namespace
    tokens: Tokens
    prompt_tokens: int
    asked: Asked | None = None
    others: tuple[Tokens, ...] = ()
    cut: frozenset[int] = frozenset()

    @property
    def samples(self) -> int:
        return 1 + len(self.others)

    def told(self, sample: int) -> Tokens:
        """Of the prompt and of this sample's answer."""
        return self.others[sample - 1] if sample else self.tokens

    @property
    def prompt(self) -> Tokens:
        return self.tokens[: self.prompt_tokens]

    @property
    def output_tokens(self) -> int:
        return len(self.tokens) - self.prompt_tokens

    @property
    def computed(self) -> Tokens:
        """All but the last token that is drawn, which no step reads: it is in nobody's cache."""
        return self.tokens[: max(self.prompt_tokens, len(self.tokens) - 1)]
