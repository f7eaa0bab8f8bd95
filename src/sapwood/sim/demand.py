"""How long the requests of a trace are, and so which of them a replica can never hold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sapwood.sim.trace import Trace


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """By the engine's rule (`sched.Bounds`): prompt and reply count, but a reply's last token needs no place in a pool.

    Attributes:
        needs: int64, ascending: tokens of a pool that each request takes which the model can read.
        beyond_context: how many others there are.
    """

    needs: NDArray[np.int64]
    beyond_context: int

    @classmethod
    def of(cls, trace: Trace, context: int | None = None) -> Demand:
        """`context` is the longest sequence that the model reads; None sets no limit."""
        needs = trace.prompt_tokens + trace.output_tokens - np.minimum(trace.output_tokens, 1)
        unread = beyond_context(trace, context)
        return cls(np.sort(needs[~unread]), int(unread.sum()))

    @property
    def requests(self) -> int:
        return len(self.needs) + self.beyond_context

    def refused(self, pool_tokens: int) -> int:
        """Requests that a replica refuses whose pool holds so many tokens."""
        return self.requests - int(np.searchsorted(self.needs, pool_tokens, "right"))

    def longest(self, most_tokens: int) -> int:
        """Tokens that the longest request needs of those that so many tokens hold; 1 if there is none."""
        held = self.needs[self.needs <= most_tokens]
        return int(held[-1]) if len(held) else 1


def beyond_context(trace: Trace, context: int | None) -> NDArray[np.bool_]:
    """bool [n]: requests that are longer, prompt and reply together."""
    if context is None:
        return np.zeros(len(trace), np.bool_)
    return np.asarray(trace.prompt_tokens + trace.output_tokens > context)


def without_names(trace: Trace, chosen: NDArray[np.bool_]) -> Trace:
    """The same requests, but those chosen, bool [n], find nothing and leave nothing, as what is refused does."""
    return trace.named(np.where(chosen, 0, np.diff(trace.offsets)))
