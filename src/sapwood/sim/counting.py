"""From blocks found to prompt tokens reused: what a hit rate counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sapwood.sim.trace import Trace


@dataclass(frozen=True, slots=True)
class Counting:
    """A definition. By default all that was found counts, with the tokens that it has."""

    last_token: bool = True
    """Whether the last prompt token can count; an engine computes it in any case, for its logits."""
    partial_tail: bool = True
    """Whether the part of a prompt that fills no block can count."""

    def reused_tokens(self, trace: Trace, matched: NDArray[np.int64]) -> NDArray[np.int64]:
        """int64 [n], of each prompt, given the blocks that each request found (int64 [n])."""
        prompts, unit = trace.prompt_tokens, trace.unit_tokens
        most = prompts if self.partial_tail else prompts // unit * unit
        if not self.last_token:
            most = np.minimum(most, prompts - 1)
        return np.minimum(np.minimum(matched * unit, trace.known_tokens), most)

    def text(self) -> str:
        """For people, to stand beside a figure."""
        tail = "a partial last block counts" if self.partial_tail else "whole blocks count"
        last = "the last token too" if self.last_token else "the last token never"
        return f"prompt tokens found cached, of all prompt tokens; {tail}, {last}"
