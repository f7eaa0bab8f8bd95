from __future__ import annotations

import pytest

from cache.helpers import NS, span, toks
from sapwood.cache.keys import page_key
from sapwood.cache.node import Node, Root
from sapwood.cache.retention import Retention
from sapwood.cache.runs import IntRun


def node_of(tokens: int, page_size: int) -> Node:
    root = Root(NS, toks(), page_size)
    run = span(100, 100 + tokens)
    node = Node(
        root, page_key(run, 0, page_size), IntRun(run), IntRun(span(0, tokens // page_size)), page_size
    )
    root.children[node.key] = node
    root.living = 1
    return node


def test_a_new_node_is_unread_unused_and_childless() -> None:
    node = node_of(4, 2)
    assert (node.pins, node.used, node.living, node.filed_in, node.children) == (0, 0, 0, None, {})
    assert (node.hits, node.retention) == (1, None)
    assert (node.start, node.length, node.depth, node.is_ghost) == (0, 2, 2, False)


def test_a_split_keeps_the_lower_half_and_gives_both_the_same_pins() -> None:
    node = node_of(12, 4)
    node.pins, node.used = 3, 7
    old_key, root = node.key, node.parent
    upper = node.split(1)
    assert (upper.tokens.view.tolist(), upper.pages.view.tolist()) == ([100, 101, 102, 103], [0])
    assert (node.tokens.view.tolist(), node.pages.view.tolist()) == (list(range(104, 112)), [1, 2])
    assert (upper.pins, upper.used, upper.parent, upper.key) == (3, 7, root, old_key)
    assert (node.pins, node.parent, upper.children) == (3, upper, {node.key: node})
    assert node.key == page_key(span(104, 108), 0, 4)


def test_absorbing_undoes_splits() -> None:
    node = node_of(12, 4)
    key, root = node.key, node.parent
    lower = node.split(2)
    upper = lower.split(1)
    node.absorb([lower, upper])
    assert (node.key, node.parent) == (key, root)
    assert node.tokens.view.tolist() == list(range(100, 112))
    assert node.pages.view.tolist() == [0, 1, 2]


def test_trimming_takes_pages_off_the_tail_and_leaves_the_tokens() -> None:
    node = node_of(12, 4)
    assert node.trim(1).tolist() == [2]
    assert (node.length, node.depth, node.is_ghost) == (3, 2, False)
    assert node.trim(9).tolist() == [0, 1]
    assert node.trim(1).tolist() == []
    assert (node.length, node.depth, node.is_ghost) == (3, 0, True)
    assert node.tokens.view.tolist() == list(range(100, 112))


@pytest.mark.parametrize(("left", "upper_pages", "lower_pages"), [(3, 2, 1), (2, 2, 0), (1, 1, 0), (0, 0, 0)])
def test_a_split_gives_each_half_the_pages_that_are_left_of_it(
    left: int, upper_pages: int, lower_pages: int
) -> None:
    node = node_of(12, 4)
    node.trim(3 - left)
    upper = node.split(2)
    assert (upper.length, upper.pages.size, node.length, node.pages.size) == (2, upper_pages, 1, lower_pages)
    assert (upper.living, node.start) == (lower_pages > 0, 2)


def test_both_halves_of_a_split_have_the_same_past() -> None:
    node = node_of(4, 1)
    node.created, node.used, node.hits = 3, 5, 7
    node.idle_since, node.evicted_at, node.retention = 1.5, 2.5, Retention(9)
    upper = node.split(1)
    for half in (upper, node):
        assert (half.created, half.used, half.hits) == (3, 5, 7)
        assert (half.idle_since, half.evicted_at, half.retention) == (1.5, 2.5, Retention(9))


def test_the_printed_form_is_bounded() -> None:
    assert repr(node_of(3, 1)) == "node [100 101 102] of 3 pages, 0 pins"
    assert repr(node_of(1000, 4)) == "node [100 101 102 103 104 105 …] of 250 pages, 0 pins"
    assert "Namespace(fingerprint='model'" in repr(node_of(3, 1).parent)


def test_a_subtree_lists_parents_before_children() -> None:
    node = node_of(4, 1)
    uppers = [node.split(1), node.split(1)]
    assert list(uppers[0].subtree()) == [*uppers, node]
