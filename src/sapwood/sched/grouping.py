"""Prefixes in the order in which a depth-first walk of their tree meets them, the heaviest branch first."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int32]


def depth_first(
    prefixes: Sequence[Tokens], roots: Sequence[Hashable], visited: int | None = None
) -> NDArray[np.intp]:
    """Indices of `prefixes` in walking order. A branch weighs as much as the prefixes that end in or below it.

    The walk goes on from the prefix `visited`, which is left out of the answer: its branches come first at each
    node. Equal weights: the branch with the smallest index first, so give the oldest first. At a node, branches
    come before the prefixes that end there. Prefixes under different `roots` share nothing.

    Sorted by their bytes, the prefixes of each branch stand side by side; the tree is read off the lengths that
    neighbours share (the interval tree of Abouelhoda, Kurtz and Ohlebusch, 2004), so none is built.
    """
    names = {root: number for number, root in enumerate(dict.fromkeys(roots))}
    keys = [(names[root], prefix.tobytes()) for root, prefix in zip(roots, prefixes, strict=True)]
    ranked = sorted(range(len(prefixes)), key=lambda i: keys[i])
    shared = [_shared(prefixes[a], prefixes[b]) if roots[a] == roots[b] else 0 for a, b in pairwise(ranked)]

    def rank(part: range, depth: int) -> tuple[bool, bool, int, int]:
        members = ranked[part.start : part.stop]
        ends_here = len(prefixes[members[0]]) == depth
        return visited not in members, ends_here, -len(members), min(members)

    walked: list[int] = []
    stack = [range(len(ranked))] if ranked else []
    while stack:
        branch = stack.pop()
        if len(branch) == 1:
            walked.append(ranked[branch[0]])
            continue
        depth = min(shared[branch[0] : branch[-1]])
        # The walk goes on with what was pushed last.
        stack += sorted(_split(branch, shared, depth), key=lambda part: rank(part, depth), reverse=True)
    return np.array([index for index in walked if index != visited], np.intp)


def _split(branch: range, shared: list[int], depth: int) -> list[range]:
    """The children of the node at `depth`: cut where neighbours share no more than that."""
    cuts = [i + 1 for i in branch[:-1] if shared[i] == depth]
    return [range(a, b) for a, b in zip([branch.start, *cuts], [*cuts, branch.stop], strict=True)]


def _shared(a: Tokens, b: Tokens) -> int:
    length = min(len(a), len(b))
    differs = a[:length] != b[:length]
    first = int(differs.argmax()) if length else 0
    return first if length and differs[first] else length
