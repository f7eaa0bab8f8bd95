from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sapwood.sched.credit import ALLOWANCE, FIRST, MOST, Allowance, Credit, Record

steps = st.tuples(
    st.integers(1, 5),
    st.lists(
        st.tuples(st.integers(0, 4), st.integers(1, 16), st.floats(0, 1), st.floats(0.01, 1.0)), max_size=5
    ),
)


def credit_of(namespace: Record | None = None) -> Credit:
    return Credit(Allowance(), namespace or Record())


@given(steps=st.lists(steps, max_size=60), lifetime=st.integers(1, 20))
def test_no_stream_is_delayed_beyond_the_allowance_but_by_what_others_gained(
    steps: list[tuple[int, list[tuple[int, int, float, float]]]], lifetime: int
) -> None:
    """Others come and go beside it; of their gains a delay is the part that they paid it with."""
    allowance = Allowance()
    credits = [Credit(allowance, Record()) for _ in range(5)]
    gained, lost = [0.0] * 5, 0.0
    for number, (streams, drafts) in enumerate(steps, 1):
        allowance.add(ALLOWANCE)
        if number % lifetime == 0:
            credits, gained = [Credit(allowance, Record()) for _ in range(5)], [0.0] * 5
        for who, guessed, share, slope in drafts:
            price = slope * guessed
            if price > credits[who].balance(streams, chance=1):
                continue
            right = round(share * guessed)
            credits[who].pay(price, streams)
            assert allowance.left >= -1e-9
            credits[who].settle("own", guessed, right, streams)
            lost += max(0.0, price - right - gained[who]) / streams
            gained[who] = min(MOST, max(0.0, gained[who] + right - price))
        assert lost <= FIRST + ALLOWANCE * number + 1e-9


def test_who_has_gained_pays_itself_and_others_still_have_the_allowance() -> None:
    allowance = Allowance()
    one, other = (Credit(allowance, Record()) for _ in range(2))
    one.pay(1.0, 1)
    assert (one.balance(1, chance=1), other.balance(1, chance=1)) == (-1.0, 0.0), (
        "until it is known what became of it"
    )
    one.settle("tree", 4, 4, 1)
    assert (one.balance(1, chance=1), other.balance(1, chance=1)) == (FIRST + 3.0, FIRST)
    one.pay(2.0, 1)
    one.settle("tree", 4, 0, 1)
    assert (one.balance(1, chance=1), other.balance(1, chance=1)) == (FIRST + 1.0, FIRST)
    one.pay(2.0, 1)
    one.settle("tree", 4, 0, 1)
    assert (one.balance(1, chance=1), other.balance(1, chance=1)) == (0.0, 0.0)
    allowance.add(0.25)
    assert other.balance(8, chance=1) == 2.0, "a quarter of a step of each of eight"


def test_a_source_is_believed_as_it_proves_right() -> None:
    credit = credit_of()
    before = credit.chance("own", 4)
    for _ in range(5):
        credit.settle("own", 4, 0, 1)
    assert credit.chance("own", 4) < 0.5 * before
    assert credit.chance("tree", 100) > 0.7, "another source is another matter"
    for _ in range(20):
        credit.settle("own", 8, 8, 1)
    assert credit.chance("own", 4) > 0.9


def test_longer_agreement_is_worth_more() -> None:
    for source in ("own", "replies"):
        chances = [credit_of().chance(source, matched) for matched in range(1, 12)]
        assert chances == sorted(chances)


def test_what_others_of_the_namespace_saw_counts_for_the_next() -> None:
    shared = Record()
    before = credit_of(shared).chance("replies", 4)
    for _ in range(3):
        credit_of(shared).settle("replies", 6, 6, 1)
    assert credit_of(shared).chance("replies", 4) > 0.7 > before
    assert credit_of(shared).chance("own", 4) == credit_of().chance("own", 4)
    assert credit_of().chance("replies", 4) == before


def test_what_was_gained_long_ago_is_worth_no_more_than_so_much() -> None:
    credit = credit_of()
    for _ in range(100):
        credit.settle("tree", 16, 16, 1)
    assert credit.balance(1, chance=1) == FIRST + MOST


def test_the_less_likely_a_draft_is_right_the_more_is_left_for_others() -> None:
    allowance = Allowance()
    unlikely, likely = (Credit(allowance, Record()) for _ in range(2))
    assert unlikely.balance(4, 0.25) == 4 * 0.25 * FIRST
    unlikely.pay(1.0, 4)
    unlikely.settle("own", 2, 0, 4)
    assert unlikely.balance(4, 0.25) == 0.0
    assert likely.balance(4, 0.75) == 4 * 0.5 * FIRST
