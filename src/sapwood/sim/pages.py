"""A trace in pages of another size: what can be shared where only whole pages are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sapwood.errors import UsageError
from sapwood.sim.paths import path_ids
from sapwood.sim.trace import Names, Trace

_AT_ONCE = 8192
"""Requests whose pages are named at a time, so that no intermediate is as large as all names."""


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
    return replace(
        trace,
        unit_tokens=page_tokens,
        known_tokens=pages * page_tokens,
        names=_at_ends(path_ids(trace), trace.offsets, offsets, per_page),
        offsets=offsets,
    )


def _at_ends(ids: Names, blocks: NDArray[np.int64], offsets: NDArray[np.int64], per_page: int) -> Names:
    """Of each page the id of its last block."""
    names = np.empty(int(offsets[-1]), np.int32)
    for row in range(0, len(offsets) - 1, _AT_ONCE):
        edges = offsets[row : row + _AT_ONCE + 1]
        pages = np.diff(edges)
        place = np.arange(edges[0], edges[-1]) - np.repeat(edges[:-1], pages)
        ends = np.repeat(blocks[row : row + len(pages)], pages) + per_page * (place + 1) - 1
        names[edges[0] : edges[-1]] = ids[ends]
    return names
