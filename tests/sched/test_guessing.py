from __future__ import annotations

from sapwood.sched.credit import Allowance, Credit, Record
from sapwood.sched.guessing import Guessing


def test_the_tree_is_asked_less_and_less_where_it_knows_nothing() -> None:
    guessing, asked = Guessing(Credit(Allowance(), Record())), []
    for generated in range(100):
        if guessing.asks_the_tree(generated):
            asked.append(generated)
            guessing.tree_told(generated, something=False)
    assert asked == [0, 2, 6, 14, 30, 62, 94]


def test_where_it_knows_something_it_is_asked_each_time() -> None:
    guessing = Guessing(Credit(Allowance(), Record()))
    guessing.tree_told(5, something=False)
    assert not guessing.asks_the_tree(6)
    guessing.tree_told(7, something=True)
    assert guessing.asks_the_tree(8)
    guessing.tree_told(8, something=False)
    assert guessing.asks_the_tree(10)
