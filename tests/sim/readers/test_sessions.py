"""Which requests are turns of one conversation."""

from __future__ import annotations

import numpy as np

from sapwood.sim.readers.sessions import continued
from sapwood.sim.trace import TraceRequest


def turn(at: float, *names: int, unit: int = 512, scope: int = 0) -> TraceRequest:
    """Whole blocks and half a one, which has the last name."""
    tokens = (len(names) - 1) * unit + unit // 2
    return TraceRequest(at, tokens, 3, np.array(names, np.int32), tokens, 0, scope)


def test_a_prompt_that_goes_on_from_a_whole_one_is_of_its_session() -> None:
    rows = [
        turn(0, 1, 2, 90),
        turn(1, 5, 6, 91),
        turn(2, 1, 2, 3, 92),
        turn(3, 1, 2, 3, 4, 93),
        turn(4, 5, 6, 7, 94),
    ]
    a, b, *rest = continued(rows, 512)
    assert a != b
    assert rest == [a, a, b]


def test_order_of_the_rows_is_that_of_time() -> None:
    later, sooner = continued([turn(5, 1, 2, 3, 92), turn(1, 1, 2, 90)], 512)
    assert later == sooner


def test_what_many_go_on_from_is_no_turn() -> None:
    rows = [turn(0, 1, 90), *(turn(i, 1, 10 + i, 90 + i) for i in range(1, 7))]
    assert len(set(continued(rows, 512))) == 7


def test_two_that_go_on_from_the_same_turn_are_not_both_of_it() -> None:
    first, second, third = continued([turn(0, 1, 2, 90), turn(1, 1, 2, 3, 91), turn(2, 1, 2, 4, 92)], 512)
    assert first == second != third


def test_scopes_do_not_share_sessions() -> None:
    first, second = continued([turn(0, 1, 2, 90), turn(1, 1, 2, 3, 91, scope=1)], 512)
    assert first != second


def test_tokens_are_compared_in_stretches() -> None:
    def said(at: float, tokens: list[int]) -> TraceRequest:
        names = np.array(tokens, np.int32)
        return TraceRequest(at, len(names), 3, names, len(names), 0)

    first = [*range(150)]
    rows = [said(0, first), said(1, [*first, *range(80)]), said(2, [7, *first]), said(3, [1, 2])]
    one, two, three, four = continued(rows, 1)
    assert one == two
    assert len({one, three, four}) == 3
