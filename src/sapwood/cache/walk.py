"""Walks down the tree: how far some tokens are held, and how far they ever were. They change nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sapwood.cache.index import Trace
from sapwood.cache.keys import Query, Tokens, common_prefix
from sapwood.cache.node import Node, Root

MOST_BRANCHES = 32
"""Where more follow, what was used last tells little of what comes next."""


@dataclass(slots=True)
class Path:
    """What a walk found. Made for every lookup, so not frozen, which would take three times as long."""

    nodes: Sequence[Node]
    """From the first below the start; all match to their end, except perhaps the last."""
    pages: int
    """Pages matched in all, ghosts left out."""
    inside: int | None
    """Pages matched of the last node, if the match ends inside it."""


def walk(start: Node, tokens: Tokens) -> Path:
    """The longest prefix of the tokens that is held below a node. Costs one look at each edge on the way."""
    size, end = start.page_size, len(tokens) - start.page_size
    nodes: list[Node] = []
    node, at = start, 0
    query = Query(tokens, size)
    while at <= end:
        child = node.children.get(query.key(at))
        if child is None or not (held := child.pages.size):
            break
        nodes.append(child)
        run = child.tokens
        if held * size < run.size or not query.goes_on_with(run.view, at):
            shared = min(query.shared_with(run.view, at) // size, held)
            return Path(nodes, at // size + shared, shared)
        at += run.size
        node = child
    return Path(nodes, at // size, None)


def trace(root: Root, tokens: Tokens) -> Trace:
    """Walks on through ghosts, which a match does not."""
    size, end = root.page_size, len(tokens) - root.page_size
    query = Query(tokens, size)
    node: Node = root
    at, cached, inside, evicted_at = 0, 0, False, None
    while at <= end and not inside:
        child = node.children.get(query.key(at))
        if child is None:
            break
        shared = query.shared_with(child.tokens.view, at) // size
        if evicted_at is None:
            cached += min(shared, child.pages.size)
            evicted_at = child.evicted_at if child.pages.size < shared else None
        at += shared * size
        inside = shared < child.length
        node = child
    branches = at > 0 and (inside or bool(node.children))
    return Trace(cached, at // size, branches=branches, evicted_at=evicted_at)


def continuation(root: Root, tokens: Tokens, limit: int) -> Tokens:
    """At most `limit` tokens that follow, ghosts included; at a branch what was used last."""
    size, end = root.page_size, len(tokens) - root.page_size
    query = Query(tokens, size)
    node: Node | None = root
    at = 0
    while node is not None and at <= end:
        node = node.children.get(query.key(at))
        if node is not None and not query.goes_on_with(node.tokens.view, at):
            ahead = node.tokens.view[len(tokens) - at :]
            agrees = len(ahead) and query.shared_with(node.tokens.view, at) == len(tokens) - at
            return _gathered(node, ahead, limit) if agrees else tokens[:0]
        at += 0 if node is None else node.tokens.size
    if node is None:
        return tokens[:0]
    rest = tokens[at:]
    following = _latest(node, rest)
    return (
        tokens[:0] if following is None else _gathered(following, following.tokens.view[len(rest) :], limit)
    )


def _gathered(node: Node, ahead: Tokens, limit: int) -> Tokens:
    """What is ahead in a node, and what follows it; a copy, as runs change."""
    parts, count = [ahead[:limit]], len(ahead)
    following = _latest(node, ahead[:0])
    while count < limit and following is not None:
        parts.append(following.tokens.view[: limit - count])
        count += following.tokens.size
        following = _latest(following, ahead[:0])
    return np.concatenate(parts)


def _latest(node: Node, beginning: Tokens) -> Node | None:
    """The child used last of those that begin so (with less than a page); none where there are too many to look at."""
    if len(node.children) > MOST_BRANCHES:
        return None
    count = len(beginning)
    fitting = (
        child
        for child in node.children.values()
        if not count or common_prefix(child.tokens.view, beginning) == count
    )
    return max(fitting, key=lambda child: child.used, default=None)
