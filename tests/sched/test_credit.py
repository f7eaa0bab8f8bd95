from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sapwood.sched.credit import ALLOWANCE, FIRST, MOST, Credit, Record

drafts = st.tuples(
    st.integers(0, 30), st.integers(1, 16), st.floats(0, 1), st.sampled_from(["tree", "own", "replies"])
)


@given(drafts=st.lists(drafts, max_size=60), slope=st.floats(0.01, 1.0))
def test_who_spends_what_it_has_is_never_slowed_beyond_the_allowance(
    drafts: list[tuple[int, int, float, str]], slope: float
) -> None:
    credit, generated, lost = Credit(), 0, 0.0
    for tokens, guessed, share, source in drafts:
        generated += tokens
        if slope * guessed <= credit.balance(generated):
            right = round(share * guessed)
            lost += slope * guessed - right
            credit.settle(source, guessed, right, slope * guessed)  # type: ignore[arg-type]
            generated += right
        assert lost <= FIRST + ALLOWANCE * generated + 1e-9


def test_a_source_is_believed_as_it_proves_right() -> None:
    credit = Credit()
    before = credit.chance("own", 4)
    for _ in range(5):
        credit.settle("own", 4, 0, 0.1)
    assert credit.chance("own", 4) < 0.5 * before
    assert credit.chance("tree", 100) > 0.7, "another source is another matter"
    for _ in range(20):
        credit.settle("own", 8, 8, 0.1)
    assert credit.chance("own", 4) > 0.9


def test_longer_agreement_is_worth_more() -> None:
    for source in ("own", "replies"):
        chances = [Credit().chance(source, matched) for matched in range(1, 12)]
        assert chances == sorted(chances)


def test_what_others_of_the_namespace_saw_counts_for_the_next() -> None:
    shared = Record()
    before = Credit(shared).chance("replies", 4)
    for _ in range(3):
        Credit(shared).settle("replies", 6, 6, 0.0)
    assert Credit(shared).chance("replies", 4) > 0.7 > before
    assert Credit(shared).chance("own", 4) == Credit().chance("own", 4)
    assert Credit().chance("replies", 4) == before


def test_what_was_gained_long_ago_is_worth_no_more_than_so_much() -> None:
    credit = Credit()
    for _ in range(100):
        credit.settle("tree", 16, 16, 1.0)
    assert credit.balance(0) == FIRST + MOST
