"""The free queue: taken at the head, added at the tail, and left from anywhere. Behaviour 80."""

from __future__ import annotations

import pytest

from cache.helpers import NS
from sapwood.cache.block import Block
from sapwood.cache.free_queue import FreeQueue
from sapwood.errors import BooksError


def queue_with(count: int) -> tuple[FreeQueue, list[Block]]:
    queue, blocks = FreeQueue(), [Block(page, b"", NS, b"") for page in range(count)]
    for block in blocks:
        queue.append(block)
    return queue, blocks


def test_the_head_leaves_first_and_the_middle_closes_up() -> None:
    queue, blocks = queue_with(5)
    assert queue.pop() is blocks[0]
    queue.remove(blocks[2])
    queue.check([blocks[1], blocks[3], blocks[4]])
    queue.append(blocks[2])
    assert [block.page for block in queue] == [1, 3, 4, 2]
    queue.remove(blocks[2])
    queue.append(blocks[0])
    assert [queue.pop().page for _ in range(4)] == [1, 3, 4, 0]
    assert len(queue) == 0
    queue.check([])


@pytest.mark.parametrize("gone", range(3))
def test_one_may_leave_from_either_end_and_from_the_middle(gone: int) -> None:
    queue, blocks = queue_with(3)
    queue.remove(blocks.pop(gone))
    assert list(queue) == blocks
    queue.check(blocks)


def test_an_empty_queue_gives_nothing() -> None:
    with pytest.raises(BooksError, match="none is free"):
        FreeQueue().pop()


def test_one_that_is_not_queued_cannot_leave() -> None:
    queue, blocks = queue_with(2)
    queue.remove(blocks[0])
    with pytest.raises(BooksError, match="page 0, 0 pins is to leave the free queue and is not in it"):
        queue.remove(blocks[0])
    queue.check(blocks[1:])
