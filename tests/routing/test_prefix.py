"""What the prefix-aware router weighs, case by case. A token costs 1 ms; a prompt of 10 blocks 650 ms."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from routing.helpers import (
    NOTHING,
    NS,
    OTHER,
    blocks,
    idle,
    millisecond_per_token,
    prefix_aware,
    send,
    ticket,
    waits,
)
from sapwood.cache import Tokens
from sapwood.routing import BLOCK_TOKENS, Candidate, PrefixAware, Shadow, Ticket, block_keys

LONG = tuple(range(10))


def warmed(replica: int = 1, capacity_tokens: int = 100_000) -> PrefixAware:
    """One replica holds the long prompt; a conversation about it goes on there."""
    router = prefix_aware(capacity_tokens)
    assert send(router, ticket(*LONG), idle(replica)) == replica
    return router


def stored(asked: Ticket, *reply: int) -> Tokens:
    return np.concatenate([asked.tokens, np.full(BLOCK_TOKENS - 10, 7, np.int32), blocks(*reply)]).astype(
        np.int32
    )


def test_it_goes_where_its_prefix_is() -> None:
    assert send(warmed(1), ticket(*LONG, 99), idle(0, 1, 2)) == 1


@pytest.mark.parametrize(("wait", "replica"), [(0.5, 1), (0.63, 1), (0.66, 0), (10.0, 0), (math.inf, 0)])
def test_a_wait_that_is_longer_than_reading_the_prefix_outweighs_it(wait: float, replica: int) -> None:
    assert send(warmed(1), ticket(*LONG, 99), waits(0.0, wait)) == replica


def test_what_storing_it_would_evict_is_weighed() -> None:
    router = prefix_aware(12 * BLOCK_TOKENS)
    for _ in range(8):  # replica 0 is full of what is asked for all the time
        send(router, ticket(*range(20, 32), own=0), idle(0))
    costs = {offer.candidate.replica: offer for offer in router.offers(ticket(*LONG), idle(0, 1), 0.0)}
    assert costs[0].evicted == pytest.approx(10 * BLOCK_TOKENS / 1000 * 8 / 9)
    assert costs[1].evicted == 0.0
    assert costs[0].prefill == costs[1].prefill == pytest.approx(0.65)
    # It is given a wait just below what it would lose on the other one.
    assert send(router, ticket(*LONG), [Candidate(0, 0, 0, 0.0), Candidate(1, 0, 0, 0.5)]) == 1


def test_its_own_prefix_is_not_among_what_it_would_evict() -> None:
    router = warmed(1, capacity_tokens=10 * BLOCK_TOKENS)
    [offer] = router.offers(ticket(*LONG, 99), idle(1), 0.0)
    assert offer.evicted == 0.0


def test_another_tenant_s_prefix_is_no_reason() -> None:
    router = warmed(1)
    offers = router.offers(ticket(*LONG, namespace=OTHER), idle(0, 1), 0.0)
    assert offers[0].prefill == offers[1].prefill
    assert send(router, ticket(*LONG, namespace=OTHER), idle(0, 1)) == 0


def test_the_last_token_is_computed_in_any_case() -> None:
    router = prefix_aware()
    send(router, ticket(*LONG, own=0), idle(0))
    [offer] = router.offers(ticket(*LONG, own=0), idle(0), 0.0)
    assert offer.prefill == pytest.approx(0.001)


def test_explaining_a_choice_changes_nothing() -> None:
    router = warmed(1)
    for _ in range(50):
        router.offers(ticket(5), idle(0), 0.0)
    assert (router.shadow.held(0), router.shadow.held(1)) == (0, 10)


def test_a_burst_of_one_prompt_follows_the_first_before_anything_has_ended() -> None:
    router, stale = prefix_aware(), [Candidate(replica, 0, 0, 0.0) for replica in range(3)]
    chosen = [router.choose(ticket(*LONG), stale, 0.0) for _ in range(2)]
    assert chosen[0] == chosen[1]


@pytest.mark.parametrize(("as_of", "replica"), [(0.0, 0), (None, 1)])
def test_what_was_sent_since_a_replica_told_is_waited_for(as_of: float | None, replica: int) -> None:
    """Replica 1 has the prefix, and was just given a prompt of two seconds that it does not tell of yet."""
    router = warmed(1)
    told = [Candidate(n, 0, 0, 0.0, as_of) for n in range(2)]
    router.choose(ticket(*range(100, 131)), told[1:], 1.0)
    assert send(router, ticket(*LONG, 99), told, 1.0) == replica


def test_cold_requests_do_not_drown_the_replica_with_the_empty_cache() -> None:
    """RO-01: they went to the smallest tree, whatever its queue."""
    router = prefix_aware(50 * BLOCK_TOKENS)
    for n in range(10):
        send(router, ticket(*range(100 * n, 100 * n + 5)), idle(1))
    counts = Counter(
        send(router, ticket(*range(1000 * n, 1000 * n + 3)), [Candidate(0, 4, 50, 30.0), *idle(1)])
        for n in range(1, 21)
    )
    assert counts[1] == 20


def test_a_hot_prompt_is_copied_and_a_conversation_is_not_moved() -> None:
    router, counts = prefix_aware(), Counter[int]()
    talk: tuple[int, ...] = (0, 1, 2)
    home = send(router, ticket(*talk), idle(0, 1, 2, 3))
    for n in range(200):
        counts[send(router, ticket(50, 51, 52, 53, own=n % 60), idle(0, 1, 2, 3), n / 10)] += 1
        if n % 4 == 0:
            talk = (*talk, 1000 + n)
            assert send(router, ticket(*talk), idle(0, 1, 2, 3), n / 10) == home
            counts[home] += 1
    assert len(counts) == 4
    assert max(counts.values()) <= 1.25 * 250 / 4


def test_a_conversation_that_has_more_than_its_share_stays_where_it_is() -> None:
    """Nobody else is there: to move it would cost its history, and gain nothing."""
    router, talk = prefix_aware(), LONG
    home = send(router, ticket(*talk), idle(0, 1, 2, 3))
    for n in range(30):
        talk = (*talk, 1000 + n)
        assert send(router, ticket(*talk), idle(0, 1, 2, 3), float(n)) == home


def test_a_faster_replica_gets_more_than_the_cap() -> None:
    """It tells of shorter waits, and it ends what it is given."""
    router, counts = prefix_aware(), Counter[int]()
    for n in range(200):
        asked = ticket(1000 + n, *LONG)
        slow, fast = 5.0, 0.0
        counts[send(router, asked, waits(slow, fast), float(n))] += 1
    assert counts[1] == 200


def test_cold_requests_do_not_go_to_the_one_that_drowns() -> None:
    """RO-01: it holds less, so it would evict less; and it has read nothing of what it was given before by others."""
    router = prefix_aware()
    for n in range(30):
        router.shadow.store(1, block_keys(NS, blocks(*range(1000 * n, 1000 * n + 30))), 0.0)
    drowning, idling = Candidate(0, 50, 50, 30.0, as_of=0.0), Candidate(1, 0, 0, 0.0, as_of=0.0)
    chosen = [router.choose(ticket(50_000 + n), [drowning, idling], n / 100) for n in range(20)]
    assert Counter(chosen)[1] == 20


def test_one_that_tells_of_no_wait_and_ends_nothing_does_not_get_everything() -> None:
    router, counts, now = prefix_aware(), Counter[int](), 0.0
    for n in range(300):
        now = n / 10
        asked = ticket(1000 + n, *LONG)
        replica = router.choose(asked, waits(0.0, 5.0, 5.0, 5.0), now)
        counts[replica] += 1
        if replica:
            router.finished(asked, replica, asked.tokens, now)
    assert counts[0] < 1.5 * 75


def test_a_reply_is_part_of_the_next_turn_s_prefix() -> None:
    router = prefix_aware()
    first = ticket(*LONG)
    replica = router.choose(first, idle(0, 1), 0.0)
    whole = stored(first, 77, 78)
    router.finished(first, replica, whole, 1.0)
    [offer] = router.offers(Ticket(NS, np.concatenate([whole, blocks(5)])), idle(replica), 2.0)
    assert offer.prefill == pytest.approx(0.064)
    assert offer.continues


def test_what_was_cut_short_is_counted_as_far_as_it_was_computed() -> None:
    router = prefix_aware()
    asked = ticket(*LONG)
    router.choose(asked, idle(0), 0.0)
    router.finished(asked, 0, asked.tokens[: 3 * BLOCK_TOKENS], 1.0)
    assert router.shadow.held(0) == 3


def test_a_failed_request_leaves_nothing_but_what_was_there() -> None:
    router = warmed(0)
    asked = ticket(*LONG, 99)
    router.choose(asked, idle(0), 0.0)
    assert router.shadow.matched(router.shadow.look(block_keys(NS, asked.tokens)), 0) == 11
    router.failed(asked, 0, 1.0)
    assert router.shadow.held(0) == 10
    router.shadow.check()


def test_a_restarted_replica_has_no_credit() -> None:
    """RO-07: told of it, the router forgets all; what is in flight there ends for nothing."""
    router = warmed(1)
    late = ticket(*LONG, 5)
    router.choose(late, idle(1), 0.0)
    router.left(1)
    router.finished(late, 1, late.tokens, 1.0, reused=640)
    assert router.shadow.held(1) == len(router.shadow) == 0


def test_a_restart_that_nobody_told_of_shows_in_the_first_answer() -> None:
    router = prefix_aware()
    for n in range(5):
        send(router, ticket(*LONG, 50 + n), idle(1))
    assert router.shadow.held(1) == 15
    asked = ticket(*LONG, 50)
    router.choose(asked, idle(1), 1.0)
    router.finished(asked, 1, asked.tokens, 2.0, reused=0)
    assert router.shadow.held(1) == 11  # only what has just been stored


def test_less_reuse_than_expected_is_no_reproach_where_the_prefix_was_only_on_its_way() -> None:
    router = prefix_aware()
    first, second = ticket(*LONG), ticket(*LONG, 99)
    router.choose(first, idle(0), 0.0)
    router.choose(second, idle(0), 0.0)
    router.finished(second, 0, second.tokens, 1.0, reused=0)
    router.finished(first, 0, first.tokens, 1.0, reused=0)
    [offer] = router.offers(ticket(*LONG, 99), idle(0), 2.0)
    assert offer.prefill == pytest.approx(0.010)


def test_a_replica_that_never_has_what_it_was_given_loses_to_any_wait() -> None:
    router = prefix_aware()
    for _ in range(30):
        asked = ticket(*LONG)
        router.choose(asked, idle(0), 0.0)
        router.finished(asked, 0, asked.tokens, 0.0, reused=0)
    [offer] = router.offers(ticket(*LONG), idle(0), 0.0)
    assert offer.prefill > 0.5


def forgotten(router: PrefixAware, replica: int, turn: int) -> None:
    """By an lru cache of twelve blocks: something else as large has come."""
    send(router, ticket(*range(100 * turn, 100 * turn + 12), own=0), idle(replica))


@pytest.mark.parametrize(("found", "replica"), [(True, 1), (False, 0)])
def test_what_seems_to_be_given_up_counts_as_far_as_it_was_found_before(found: bool, replica: int) -> None:
    """A policy other than lru keeps what the shadow has dropped: 12.1 instead of 15.7 % of Mooncake's hour."""
    router = prefix_aware(12 * BLOCK_TOKENS)
    for turn in range(1, 10):
        asked = ticket(*LONG, own=0)
        assert send(router, asked, idle(1), reused=8 * BLOCK_TOKENS * (found and turn > 1)) == 1
        forgotten(router, 1, turn)
    [offer] = router.offers(ticket(*LONG, own=0), idle(1), 0.0)
    cold = len(LONG) * BLOCK_TOKENS / 1000
    assert offer.prefill < 0.4 * cold if found else offer.prefill > 0.9 * cold
    forgotten(router, 0, 10)
    assert send(router, ticket(*LONG, own=0), waits(0.0, 0.1), now=3600.0) == replica


def test_what_another_request_brought_says_nothing_of_what_was_given_up() -> None:
    """Two at once: the second reuses what the first has just computed, and nothing of it was found."""
    router = prefix_aware(12 * BLOCK_TOKENS)
    for turn in range(1, 12):
        first, second = ticket(*LONG, own=0), ticket(*LONG, own=0)
        for asked in (first, second):
            router.choose(asked, idle(1), float(turn))
        for asked, reused in ((first, 0), (second, 8 * BLOCK_TOKENS)):
            router.finished(asked, 1, asked.tokens, float(turn), reused)
        forgotten(router, 1, turn)
    [offer] = router.offers(ticket(*LONG, own=0), idle(1), 20.0)
    assert offer.prefill > 0.9 * len(LONG) * BLOCK_TOKENS / 1000


@pytest.mark.parametrize("again", [True, False])
def test_what_was_dropped_for_sure_is_expected_no_more(again: bool) -> None:
    router, keys = prefix_aware(12 * BLOCK_TOKENS), block_keys(NS, blocks(*LONG))
    send(router, ticket(*LONG, own=0), idle(1))
    forgotten(router, 1, 1)
    assert router.shadow.once(keys, router.shadow.look(keys), 1) == 8
    if again:
        send(router, ticket(*LONG, own=0), idle(1))
    router.shadow.drop(1, keys)
    assert router.shadow.once(keys, router.shadow.look(keys), 1) == 0


def test_cache_events_tell_the_shadow_what_nobody_asked_for() -> None:
    """RO-08 and RO-10: a fleet that was warm before the router came, and a flush."""
    router, keys = prefix_aware(), block_keys(NS, blocks(*LONG))
    router.shadow.store(2, keys, 0.0)
    asked = ticket(*LONG, 99)
    assert router.choose(asked, idle(0, 1, 2), 0.0) == 2
    router.failed(asked, 2, 0.0)
    router.shadow.drop(2, keys[4:5])
    [offer] = router.offers(ticket(*LONG, 99), idle(2), 0.0)
    assert offer.prefill == pytest.approx((7 * 64 + 10) / 1000)
    router.shadow.forget(2)
    [offer] = router.offers(ticket(*LONG, 99), idle(2), 0.0)
    assert offer.prefill == pytest.approx(0.714)


@pytest.mark.parametrize("wrong", [[(1, 10)], [(2, 4), (6, 9)], [(9, 10)]])
def test_cache_events_that_were_wrong_cost_no_request_anything(wrong: list[tuple[int, int]]) -> None:
    """Told without what comes before: the keys of a prompt say what follows what, and events do not."""
    router, keys = prefix_aware(), block_keys(NS, blocks(*LONG))
    for replica in (0, 2):
        for first, last in wrong:
            router.shadow.store(replica, keys[first:last], 0.0)
    assert send(router, ticket(*LONG), idle(0, 1, 2), 1.0) == 0
    router.shadow.check()
    assert [matched_by(router, replica) for replica in (0, 1, 2)] == [10, 0, 0]


def matched_by(router: PrefixAware, replica: int) -> int:
    return router.shadow.matched(router.shadow.look(block_keys(NS, blocks(*LONG))), replica)


def test_a_replica_that_tells_how_much_it_holds_is_believed() -> None:
    router = prefix_aware()
    send(router, ticket(*LONG), [Candidate(0, 0, 0, 0.0, capacity_tokens=4 * BLOCK_TOKENS)])
    assert router.shadow.held(0) == 4


def test_nothing_is_left_of_requests_that_have_ended() -> None:
    router = prefix_aware(10 * BLOCK_TOKENS)
    flying = [
        (asked, router.choose(asked, idle(0, 1), 0.0)) for asked in (ticket(n, *LONG) for n in range(100))
    ]
    for n, (asked, replica) in enumerate(flying):
        if n % 2:
            router.failed(asked, replica, 1.0)
        else:
            router.finished(asked, replica, NOTHING, 1.0)
    router.shadow.check()
    assert len(router._in_flight) == len(router.shadow) == 0


def test_a_shadow_that_is_given_is_used_even_while_it_is_empty() -> None:
    shadow = Shadow(100_000)
    router = PrefixAware(100_000, millisecond_per_token, shadow)
    send(router, ticket(*LONG), idle(0))
    assert router.shadow is shadow
    assert shadow.held(0) == 10


def test_a_prompt_longer_than_the_pool_that_fails_takes_nothing_from_anybody() -> None:
    """An attack: one request too long to run, and the router forgot what a replica holds."""
    router = warmed(0, capacity_tokens=12 * BLOCK_TOKENS)
    giant = ticket(*range(100, 200), namespace=OTHER)
    router.choose(giant, idle(0), 0.0)
    [before] = router.offers(ticket(*LONG, 99), idle(0), 0.0)
    router.failed(giant, 0, 1.0)
    [after] = router.offers(ticket(*LONG, 99), idle(0), 0.0)
    assert before.prefill == after.prefill == pytest.approx(0.074)
    assert router.shadow.held(0) == 10
    router.shadow.check()


def test_one_of_eight_clients_hangs_up_and_the_document_is_still_on_its_way() -> None:
    router = prefix_aware()
    asked = [ticket(*LONG, 50 + n) for n in range(8)]
    for each in asked:
        assert router.choose(each, idle(1), 0.0) == 1
    router.failed(asked[0], 1, 0.5)
    [offer] = router.offers(ticket(*LONG, 99), idle(1), 1.0)
    assert offer.prefill == pytest.approx(0.074)


def test_a_stale_report_drops_nothing_that_was_stored_after_it_began() -> None:
    """Both found nothing, for the replica had restarted; the first to end has stored it since, for good."""
    router = warmed(0)
    first, second = ticket(*LONG), ticket(*LONG, 99)
    for each in (first, second):
        router.choose(each, idle(0), 0.0)
    router.finished(first, 0, first.tokens, 1.0, reused=0)
    assert router.shadow.held(0) == 10
    router.finished(second, 0, NOTHING, 2.0, reused=0)
    assert router.shadow.held(0) == 10


@pytest.mark.parametrize("page", [64, 256])
def test_whole_pages_are_no_reason_to_believe_a_replica_less(page: int) -> None:
    """It reuses whole pages, and never the last token."""
    router = prefix_aware()
    there = [Candidate(0, 0, 0, 0.0, page_tokens=page)]
    for _ in range(20):
        asked = ticket(*LONG, own=0)
        router.choose(asked, there, 0.0)
        router.finished(asked, 0, asked.tokens, 0.0, reused=(640 - 1) // page * page)
    [offer] = router.offers(ticket(*LONG, own=0), there, 0.0)
    assert offer.prefill == pytest.approx((640 - 639 // page * page) / 1000)
    assert router.shadow.held(0) == 10


@pytest.mark.parametrize(
    ("page", "reused", "held"), [(1, 577, 10), (1, 576, 9), (1, 575, 8), (256, 257, 10), (256, 256, 4)]
)
def test_a_shortfall_counts_from_a_page_or_a_block_on(page: int, reused: int, held: int) -> None:
    """640 tokens are sure, 512 of them in whole pages of 256."""
    router, there = warmed(0), [Candidate(0, 0, 0, 0.0, page_tokens=page)]
    asked = ticket(*LONG)
    router.choose(asked, there, 0.0)
    router.finished(asked, 0, NOTHING, 1.0, reused=reused)
    assert router.shadow.held(0) == held


def test_reuse_below_nothing_counts_as_nothing() -> None:
    router, asked = warmed(0), ticket(*LONG)
    router.choose(asked, idle(0), 0.0)
    router.finished(asked, 0, NOTHING, 1.0, reused=-1)
    assert router.shadow.held(0) == 0


def test_of_a_ticket_that_was_chosen_for_again_a_late_end_counts_where_it_was() -> None:
    router, asked = prefix_aware(), ticket(*LONG)
    for replica in (0, 1):
        router.choose(asked, idle(replica), 0.0)
    router.failed(asked, 0, 1.0)
    assert [offer.prefill < 0.1 for offer in router.offers(ticket(*LONG, 99), idle(0, 1), 1.0)] == [
        False,
        True,
    ]
    router.finished(asked, 1, asked.tokens, 2.0)
    router.finished(asked, 0, asked.tokens, 3.0)  # told twice: it has ended there
    assert (router.shadow.held(0), router.shadow.held(1)) == (0, 10)
    assert len(router._in_flight) == 0


def test_what_nobody_ended_expires() -> None:
    router, lost = prefix_aware(), ticket(*LONG)
    router.choose(lost, idle(0), 0.0)
    router.choose(ticket(1, 2), idle(0), 5.0)
    router.expire(5.0)
    assert len(router._in_flight) == 1
    assert len(router.shadow) == 2
    router.finished(lost, 0, lost.tokens, 6.0)
    assert router.shadow.held(0) == 0


def test_an_explanation_counts_with_what_a_candidate_tells_of_its_capacity() -> None:
    router = warmed(0)
    small = [Candidate(0, 0, 0, 0.0, capacity_tokens=4 * BLOCK_TOKENS)]
    for asked in (ticket(*LONG, 99), ticket(50, 51)):
        [offer] = router.offers(asked, small, 0.0)
        other = warmed(0)
        other.shadow.resize(0, 4 * BLOCK_TOKENS)
        [told] = other.offers(asked, idle(0), 0.0)
        assert (offer.prefill, offer.evicted) == (told.prefill, told.evicted)
    assert offer.evicted > 0.0
    assert router.shadow.held(0) == 10


def test_at_a_low_rate_a_hot_prompt_stays_where_it_is() -> None:
    """The bound on load is for fleets with load: fewer than eight requests of late are too many for nobody."""
    router = prefix_aware()
    minutely = [send(router, ticket(*LONG, n), idle(0, 1, 2, 3), 60.0 * n) for n in range(60)]
    assert set(minutely) == {0}
    secondly = Counter(send(router, ticket(*LONG, n), idle(0, 1, 2, 3), 3600.0 + n) for n in range(200))
    assert max(secondly.values()) <= 1.5 * 50


def test_a_chain_of_turns_is_bound_by_its_wait_alone() -> None:
    """However many they are; as soon as it waits longer than its history takes to read, it moves."""
    router, talk = prefix_aware(), LONG
    for n in range(50):
        talk = (*talk, 1000 + n)
        assert send(router, ticket(*talk), idle(1) if n == 0 else idle(0, 1, 2), n / 10) == 1
    assert send(router, ticket(*talk, 5), waits(0.0, 9.0, 0.0), 5.0) != 1


def test_prompts_that_lengthen_one_another_in_flight_are_no_turns() -> None:
    """A turn waits for the answer to the last; these would have gone to one replica without end."""
    router, talk, counts = prefix_aware(), LONG, Counter[int]()
    for n in range(60):
        talk = (*talk, 1000 + n)
        counts[router.choose(ticket(*talk), idle(0, 1, 2, 3), n / 10)] += 1
    assert max(counts.values()) <= 1.5 * 15
