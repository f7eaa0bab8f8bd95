"""Walks down the tree: how far some tokens are held, and how far they ever were. They change nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sapwood.cache.index import Trace
from sapwood.cache.keys import Query, Tokens
from sapwood.cache.node import Node, Root


@dataclass(frozen=True, slots=True)
class Path:
    """What a walk found."""

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
