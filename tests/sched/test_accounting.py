from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sapwood.sched.accounting import account, account_unread


@given(st.integers(1, 200), st.integers(0, 20), st.sampled_from([1, 4, 16]))
def test_every_token_has_one_reason(prompt_len: int, pages: int, page_size: int) -> None:
    matched = min(pages, (prompt_len - 1) // page_size) * page_size
    reuse = account(prompt_len, matched, page_size)
    assert reuse.reused == matched
    assert reuse.reused + sum(reuse.missed.values()) == prompt_len
    assert all(count > 0 for count in reuse.missed.values())
    assert sum(account_unread(prompt_len).missed.values()) == prompt_len


def test_reasons() -> None:
    assert account(100, 0, 1).missed == {"never_seen": 99, "last_token": 1}
    assert account(100, 60, 1).missed == {"never_seen": 39, "last_token": 1}
    assert account(100, 99, 1).missed == {"last_token": 1}
    assert account(1, 0, 1).missed == {"last_token": 1}
    assert account(48, 32, 16).missed == {"page_tail": 15, "last_token": 1}
    assert account(50, 48, 16).missed == {"page_tail": 1, "last_token": 1}
    assert account(49, 48, 16).missed == {"last_token": 1}
    assert account(50, 32, 16).missed == {"never_seen": 16, "page_tail": 1, "last_token": 1}
    assert account(9, 0, 16).missed == {"page_tail": 8, "last_token": 1}


def test_what_another_was_computing_is_not_never_seen() -> None:
    assert account(100, 0, 1, in_flight=99).missed == {"in_flight": 99, "last_token": 1}
    assert account(50, 16, 16, in_flight=16).missed == {
        "in_flight": 16,
        "never_seen": 16,
        "page_tail": 1,
        "last_token": 1,
    }


def test_the_example_of_the_explanation() -> None:
    """1600 tokens of which 1488 were found: one is the last, the rest was never seen."""
    reuse = account(1600, 1024 + 464, 1)
    assert reuse.missed == {"never_seen": 111, "last_token": 1}
