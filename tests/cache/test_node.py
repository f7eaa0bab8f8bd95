from __future__ import annotations

from cache.helpers import NS, span, toks
from sapwood.cache.keys import page_key
from sapwood.cache.node import Node, Root
from sapwood.cache.runs import IntRun


def node_of(tokens: int, page_size: int) -> Node:
    root = Root(NS, toks())
    run = span(100, 100 + tokens)
    node = Node(root, page_key(run, 0, page_size), IntRun(run), IntRun(span(0, tokens // page_size)))
    root.children[node.key] = node
    return node


def test_a_new_node_is_unread_unused_and_childless() -> None:
    node = node_of(4, 2)
    assert (node.pins, node.used, node.place, node.children) == (0, 0, None, {})


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


def test_trimming_takes_pages_off_the_tail_and_never_more_than_there_are() -> None:
    node = node_of(12, 4)
    assert node.trim(1).tolist() == [2]
    assert node.tokens.view.tolist() == list(range(100, 108))
    assert node.trim(9).tolist() == [0, 1]
    assert (node.tokens.size, node.pages.size) == (0, 0)


def test_the_printed_form_is_bounded() -> None:
    assert repr(node_of(3, 1)) == "node [100 101 102] of 3 pages, 0 pins"
    assert repr(node_of(1000, 4)) == "node [100 101 102 103 104 105 …] of 250 pages, 0 pins"
    assert "Namespace(fingerprint='model'" in repr(node_of(3, 1).parent)


def test_a_subtree_lists_parents_before_children() -> None:
    node = node_of(4, 1)
    uppers = [node.split(1), node.split(1)]
    assert list(uppers[0].subtree()) == [*uppers, node]
