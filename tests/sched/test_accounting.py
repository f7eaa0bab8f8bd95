from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sapwood.cache import History
from sapwood.sched.accounting import account, account_unread


def known(
    cached: int = 0, known: int = 0, *, branches: bool = False, ago: float | None = None, elsewhere: int = 0
) -> History:
    return History(cached, max(cached, known), branches, ago, elsewhere)


@given(st.data(), st.integers(1, 200), st.sampled_from([1, 4, 16]), st.booleans())
def test_every_token_has_one_reason(
    data: st.DataObject, prompt_len: int, page_size: int, branches: bool
) -> None:
    def pages(least: int = 0) -> int:
        return data.draw(st.integers(least, (prompt_len - 1) // page_size)) * page_size

    cached = pages()
    once = pages(cached // page_size)
    history = History(cached, once, branches, 1.0 if once > cached else None, pages())
    readable = data.draw(st.none() | st.integers(0, prompt_len))
    reused = cached if readable is None else min(cached, readable // page_size * page_size)
    in_flight = pages(reused // page_size) - reused
    reuse = account(prompt_len, page_size, history, in_flight, readable)
    assert reuse.reused == reused
    assert reuse.missed.get("in_flight", 0) == in_flight
    assert reuse.reused + sum(reuse.missed.values()) == prompt_len
    assert all(count > 0 for count in reuse.missed.values())
    assert (reuse.diverged_at is None) == ("diverged" not in reuse.missed)
    assert (reuse.evicted_seconds_ago is None) == ("evicted" not in reuse.missed)
    assert sum(account_unread(prompt_len).missed.values()) == prompt_len


def test_where_nothing_more_is_known_tokens_were_never_seen() -> None:
    assert account(100, 1, known()).missed == {"never_seen": 99, "last_token": 1}
    assert account(100, 1, known(60)).missed == {"never_seen": 39, "last_token": 1}
    assert account(100, 1, known(99)).missed == {"last_token": 1}
    assert account(1, 1, known()).missed == {"last_token": 1}


def test_what_fills_no_page_is_its_tail() -> None:
    assert account(48, 16, known(32)).missed == {"page_tail": 15, "last_token": 1}
    assert account(50, 16, known(48)).missed == {"page_tail": 1, "last_token": 1}
    assert account(49, 16, known(48)).missed == {"last_token": 1}
    assert account(50, 16, known(32)).missed == {"never_seen": 16, "page_tail": 1, "last_token": 1}
    assert account(9, 16, known()).missed == {"page_tail": 8, "last_token": 1}


def test_what_another_was_computing_is_not_never_seen() -> None:
    assert account(100, 1, known(), in_flight=99).missed == {"in_flight": 99, "last_token": 1}
    missed = {"in_flight": 16, "never_seen": 16, "page_tail": 1, "last_token": 1}
    assert account(50, 16, known(16), in_flight=16).missed == missed


def test_what_another_was_computing_with_its_scores_may_be_cached_without() -> None:
    reuse = account(8, 1, known(7), in_flight=1, readable=5)
    assert (reuse.reused, reuse.missed) == (5, {"in_flight": 1, "reuse_off": 1, "last_token": 1})
    reuse = account(10, 1, known(6), in_flight=3, readable=5)
    assert (reuse.reused, reuse.missed) == (5, {"in_flight": 3, "never_seen": 1, "last_token": 1})


def test_what_was_cached_once_was_evicted_and_says_when() -> None:
    reuse = account(100, 1, known(20, 70, ago=40.0))
    assert reuse.missed == {"evicted": 50, "never_seen": 29, "last_token": 1}
    assert reuse.evicted_seconds_ago == 40.0
    refilled = account(100, 1, known(20, 70, ago=40.0), in_flight=50)
    assert refilled.missed == {"in_flight": 50, "never_seen": 29, "last_token": 1}
    assert refilled.evicted_seconds_ago is None


def test_past_a_known_prefix_that_goes_on_otherwise_the_rest_has_diverged() -> None:
    reuse = account(100, 1, known(20, 70, branches=True, ago=40.0))
    assert reuse.missed == {"evicted": 50, "diverged": 29, "last_token": 1}
    assert reuse.diverged_at == 70
    assert account(71, 1, known(70, branches=True)).diverged_at is None


def test_what_another_namespace_holds_is_counted_past_all_that_is_known_here() -> None:
    reuse = account(100, 1, known(20, branches=True, elsewhere=60))
    assert reuse.missed == {"other_namespace": 40, "never_seen": 39, "last_token": 1}
    assert account(100, 1, known(60, elsewhere=20)).missed == {"never_seen": 39, "last_token": 1}


def test_the_example_of_the_explanation() -> None:
    """1600 tokens of which 1488 were found: one is the last, the rest was never seen."""
    assert account(1600, 1, known(1024 + 464)).missed == {"never_seen": 111, "last_token": 1}
