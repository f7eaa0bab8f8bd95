from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cache.helpers import span, toks
from sapwood.cache.runs import SLACK, IntRun


@given(st.lists(st.integers(-9, 9)), st.lists(st.integers(-30, 30), max_size=40))
def test_any_appends_and_cuts_equal_a_list_and_hold_little_more(start: list[int], changes: list[int]) -> None:
    run, plain = IntRun(toks(*start)), list(start)
    for change in changes:
        if change >= 0:
            run.append(span(0, change))
            plain += range(change)
        else:
            count = min(-change, len(plain))
            assert run.cut(count).tolist() == plain[len(plain) - count :]
            plain = plain[: len(plain) - count]
        assert run.view.tolist() == plain
        assert run.size == len(plain)
        assert run.capacity <= 2 * run.size + SLACK


def test_a_run_owns_a_copy_of_what_it_was_made_from() -> None:
    source = span(0, 10_000)
    run = IntRun(source[:3])
    source[0] = 77
    assert run.view.tolist() == [0, 1, 2]
    assert run.capacity == 3


def test_cutting_the_head_leaves_two_runs_without_slack() -> None:
    run = IntRun(span(0, 1000))
    head = run.cut_head(10)
    assert head.view.tolist() == list(range(10))
    assert run.view.tolist() == list(range(10, 1000))
    assert (head.capacity, run.capacity) == (10, 990)


def test_cutting_nothing_changes_nothing() -> None:
    run = IntRun(toks(1, 2))
    assert run.cut(0).tolist() == []
    assert run.view.tolist() == [1, 2]


def test_joined_runs_follow_each_other() -> None:
    assert IntRun.joined([IntRun(toks(1)), IntRun(toks()), IntRun(toks(2, 3))]).view.tolist() == [1, 2, 3]


def test_appending_one_by_one_moves_the_memory_only_a_few_times() -> None:
    run, moves, before = IntRun(toks()), 0, 0
    for token in range(10_000):
        run.append(toks(token))
        moves, before = moves + (run.capacity != before), run.capacity
    assert moves < 40
