"""The depth-first walk, compared with one over a tree that is really built."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sapwood.sched.grouping import depth_first


@dataclass
class Node:
    """One token deeper than its parent."""

    members: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    children: dict[object, Node] = field(default_factory=dict)

    def walk(self, visited: int | None) -> list[int]:
        branches = sorted(
            self.children.values(),
            key=lambda node: (visited not in node.members, -len(node.members), min(node.members)),
        )
        return [index for node in branches for index in node.walk(visited)] + sorted(self.ends)


def slowly(prefixes: list[tuple[int, ...]], roots: list[str], visited: int | None = None) -> list[int]:
    top = Node()
    for index, (prefix, root) in enumerate(zip(prefixes, roots, strict=True)):
        node = top
        for depth, token in enumerate(prefix):
            node = node.children.setdefault((root, token) if depth == 0 else token, Node())
            node.members.append(index)
        node.ends.append(index)
    return [index for index in top.walk(visited) if index != visited]


def quickly(prefixes: list[tuple[int, ...]], roots: list[str], visited: int | None = None) -> list[int]:
    walked = depth_first([np.array(prefix, np.int32) for prefix in prefixes], roots, visited)
    return [int(index) for index in walked]


def test_the_heaviest_branch_first_and_branches_before_those_that_end_at_their_node() -> None:
    prefixes = [(1,), (1, 2), (1, 3), (1, 3), (5, 5), ()]
    assert quickly(prefixes, ["m"] * 6) == [2, 3, 1, 0, 4, 5]


def test_equal_tokens_under_different_roots_are_not_a_group() -> None:
    prefixes = [(1, 2), (9,), (1, 2), (9,)]
    assert quickly(prefixes, ["a", "a", "b", "a"]) == [1, 3, 0, 2]


def test_nothing_is_walked_to_nothing() -> None:
    assert quickly([], []) == []


def test_the_walk_goes_on_where_it_was() -> None:
    prefixes = [(1, 2), (1, 2), (1, 3), (5, 5), (5, 5), (5, 5), (1, 3, 8)]
    assert quickly(prefixes, ["m"] * 7, visited=6) == [2, 0, 1, 3, 4, 5]


tokens = st.lists(st.integers(0, 2), max_size=6).map(tuple)


@given(st.lists(st.tuples(tokens, st.sampled_from("ab")), max_size=25), st.booleans())
def test_the_walk_is_that_of_a_tree_built_token_by_token(
    items: list[tuple[tuple[int, ...], str]], goes_on: bool
) -> None:
    prefixes, roots = [prefix for prefix, _ in items], [root for _, root in items]
    visited = len(items) - 1 if goes_on and items else None
    assert quickly(prefixes, roots, visited) == slowly(prefixes, roots, visited)
