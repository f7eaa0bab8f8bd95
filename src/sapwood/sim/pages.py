"""A trace in pages of another size: what can be shared where only whole pages are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sapwood.errors import UsageError
from sapwood.sim.paths import path_ids
from sapwood.sim.trace import Trace


def in_pages(trace: Trace, page_tokens: int) -> Trace:
    """Blocks become pages of `page_tokens`; what fills none has no name any more, so nobody shares it.

    Raises UsageError for pages that are not whole blocks of the trace.
    """
    per_page, rest = divmod(page_tokens, trace.unit_tokens)
    if rest or not per_page:
        raise UsageError(
            f"pages of {page_tokens} tokens are not made of the blocks of {trace.name}",
            hint=f"its blocks have {trace.unit_tokens} tokens; take a multiple of that",
        )
    pages = trace.known_tokens // page_tokens
    offsets = np.concatenate(([0], np.cumsum(pages)))
    place = np.arange(offsets[-1]) - np.repeat(offsets[:-1], pages)
    ends = np.repeat(trace.offsets[:-1], pages) + per_page * (place + 1) - 1
    return replace(
        trace,
        unit_tokens=page_tokens,
        known_tokens=pages * page_tokens,
        names=path_ids(trace)[ends],
        offsets=offsets,
    )
