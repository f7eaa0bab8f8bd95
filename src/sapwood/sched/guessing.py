"""What is kept of one sequence from one draft to the next."""

from __future__ import annotations

from dataclasses import dataclass, field

from sapwood.sched.credit import Credit
from sapwood.sched.lookback import Pairs

_LONGEST_PAUSE = 32


@dataclass(slots=True)
class Guessing:
    credit: Credit
    pairs: Pairs = field(default_factory=Pairs)
    """Of its own tokens."""
    _asked_again: int = 0
    _pause: int = 1

    def asks_the_tree(self, generated: int) -> bool:
        """Whether it is time to: where nothing followed, something will only once another one has ended."""
        return generated >= self._asked_again

    def tree_told(self, generated: int, *, something: bool) -> None:
        """What the tree knew after so many tokens."""
        self._pause = 1 if something else min(2 * self._pause, _LONGEST_PAUSE)
        self._asked_again = generated if something else generated + self._pause
