"""What a request is billed for, with a clock stepped by hand."""

from __future__ import annotations

import pytest

from contract.prompts import Desk, Piece, Prompt, prompt
from sapwood.contract import ANTHROPIC, OPENAI, OPENAI_BREAKPOINTS, Billing, Ledger, Limits, Markers, Written

FIVE, HOUR, MINUTE = 300.0, 3600.0, 60.0


@pytest.fixture
def desk() -> Desk:
    return Desk(Ledger(ANTHROPIC))


def conversation(*said: str, tools: str = "tools", system: str = "system", ttl: float = FIVE) -> Prompt:
    """Markers on tools, system and the last message, as agents set them."""
    return prompt(
        [
            Piece(tools, 1100, "tools", ttl),
            Piece(system, 1200, "system", ttl),
            *(Piece(name, 100) for name in said[:-1]),
            Piece(said[-1], 100, ttl=ttl),
        ]
    )


def test_the_first_turn_writes_and_the_second_reads_it_and_writes_what_is_new(desk: Desk) -> None:
    assert desk.ask(conversation("a")) == Billing(0, (Written(FIVE, 2400),), 10)
    assert desk.ask(conversation("a", "b", "c")) == Billing(2400, (Written(FIVE, 200),), 10)


@pytest.mark.parametrize(
    ("level", "survives"), [("tools", 0), ("system", 1100), ("messages", 2300)], ids=lambda value: str(value)
)
def test_a_changed_setting_costs_its_own_level_and_those_after_it(
    desk: Desk, level: str, survives: int
) -> None:
    desk.ask(conversation("a"), {level: "before"})
    assert desk.ask(conversation("a"), {level: "after"}).read == survives
    assert desk.ask(conversation("a"), {level: "before"}).read == 2400


def test_changed_text_costs_its_own_level_and_those_after_it(desk: Desk) -> None:
    desk.ask(conversation("a"))
    assert desk.ask(conversation("a", tools="other")).read == 0
    assert desk.ask(conversation("a", system="other")).read == 1100
    assert desk.ask(conversation("other")).read == 2300


def test_namespaces_share_nothing(desk: Desk) -> None:
    desk.ask(conversation("a"))
    desk.namespace = "theirs"
    assert desk.ask(conversation("a")).read == 0


def test_settings_that_would_join_to_the_same_text_are_different(desk: Desk) -> None:
    desk.ask(conversation("a"), {"tools": "ab", "system": "c"})
    assert desk.ask(conversation("a"), {"tools": "a", "system": "bc"}).read == 0


def test_an_unknown_level_of_settings_is_the_callers_fault(desk: Desk) -> None:
    with pytest.raises(ValueError, match="tools, system, messages"):
        desk.ask(conversation("a"), {"tool_choice": "x"})


def far_apart(middle: float | None) -> Prompt:
    """25 blocks after the first one, of which the last is marked, and maybe one in the middle."""
    added = [Piece(f"b{i}", 50, ttl={12: middle, 24: FIVE}.get(i)) for i in range(25)]
    return prompt([Piece("a", 1500), *added])


def test_25_unmarked_blocks_after_the_last_marker_are_a_miss_unless_one_is_marked_between(desk: Desk) -> None:
    desk.ask(prompt([Piece("a", 1500, ttl=FIVE)]))
    assert desk.ask(far_apart(None)).read == 0
    again = Desk(Ledger(ANTHROPIC))
    again.ask(prompt([Piece("a", 1500, ttl=FIVE)]))
    assert again.ask(far_apart(FIVE)).read == 1500


@pytest.mark.parametrize(("between", "read"), [(18, 1500), (19, 0)])
def test_the_lookback_counts_the_marked_block_itself(desk: Desk, between: int, read: int) -> None:
    desk.ask(prompt([Piece("a", 1500, ttl=FIVE)]))
    added = [Piece(f"b{i}", 50) for i in range(between)]
    assert desk.ask(prompt([Piece("a", 1500), *added, Piece("last", 50, ttl=FIVE)])).read == read


def test_content_that_never_ended_at_a_marker_is_not_found(desk: Desk) -> None:
    desk.ask(prompt([Piece("a", 1500), Piece("b", 500, ttl=FIVE)]))
    assert desk.ask(prompt([Piece("a", 1500), Piece("c", 500, ttl=FIVE)])).read == 0


@pytest.mark.parametrize(("tokens", "counted"), [(1023, 0), (1024, 1024)])
def test_below_the_minimum_nothing_is_cached_and_nothing_is_said(
    desk: Desk, tokens: int, counted: int
) -> None:
    short = prompt([Piece("a", tokens, ttl=FIVE)])
    assert desk.ask(short).written_tokens == counted
    assert desk.ask(short).read == counted


def test_the_minimum_is_the_profiles() -> None:
    desk = Desk(Ledger(Markers(minimum=512)))
    desk.ask(prompt([Piece("a", 512, ttl=FIVE)]))
    assert desk.ask(prompt([Piece("a", 512, ttl=FIVE)])).read == 512


def test_mixed_ttls_are_billed_read_then_an_hour_then_five_minutes(desk: Desk) -> None:
    desk.ask(prompt([Piece("a", 1500, ttl=HOUR)]))
    mixed = prompt([Piece("a", 1500), Piece("b", 300, ttl=HOUR), Piece("c", 200, ttl=FIVE), Piece("d", 70)])
    billing = desk.ask(mixed)
    assert billing == Billing(1500, (Written(HOUR, 300), Written(FIVE, 200)), 80)
    assert (billing.written_at(HOUR), billing.written_at(FIVE), billing.written_at(1.0)) == (300, 200, 0)


@pytest.mark.parametrize("ttl", [FIVE, HOUR])
def test_an_entry_is_gone_after_its_ttl(desk: Desk, ttl: float) -> None:
    desk.ask(conversation("a", ttl=ttl))
    desk.now = ttl
    assert desk.ask(conversation("a", ttl=ttl)).read == 0


@pytest.mark.parametrize("ttl", [FIVE, HOUR])
def test_a_read_starts_the_ttl_again(desk: Desk, ttl: float) -> None:
    desk.ask(conversation("a", ttl=ttl))
    desk.now = ttl - MINUTE
    assert desk.ask(conversation("a", ttl=ttl)) == Billing(2400, (), 10)
    desk.now = 2 * ttl - MINUTE - 1
    assert desk.ask(conversation("a", ttl=ttl)).read == 2400
    desk.now += ttl
    assert desk.ask(conversation("a", ttl=ttl)).read == 0


def test_a_read_keeps_the_marked_prefixes_before_it_too(desk: Desk) -> None:
    desk.ask(conversation("a"))
    desk.now = FIVE - MINUTE
    assert desk.ask(conversation("a")).read == 2400
    desk.now += FIVE - MINUTE
    assert desk.ask(conversation("other")).read == 2300


def test_of_an_hours_entry_and_one_of_five_minutes_the_hours_one_stays(desk: Desk) -> None:
    mixed = prompt([Piece("a", 1500, ttl=HOUR), Piece("b", 300, ttl=FIVE)])
    desk.ask(mixed)
    desk.now = 10 * MINUTE
    assert desk.ask(mixed) == Billing(1500, (Written(FIVE, 300),), 10)


def test_the_ttl_starts_with_the_request_not_with_its_answer(desk: Desk) -> None:
    plan = desk.plan(conversation("a"))
    desk.ledger.settle(plan, 0, 200.0)
    desk.now = FIVE
    assert desk.ask(conversation("a")).read == 0


def test_of_requests_that_start_together_all_miss(desk: Desk) -> None:
    plans = [desk.plan(conversation("a")) for _ in range(3)]
    assert [desk.ledger.settle(plan, 2400, 1.0).read for plan in plans] == [0, 0, 0]
    assert desk.ask(conversation("a")).read == 2400


def test_what_was_live_when_the_request_started_is_read_though_it_waited(desk: Desk) -> None:
    desk.ask(conversation("a"))
    desk.now = FIVE - 1
    plan = desk.plan(conversation("a"))
    desk.now = FIVE + 1
    desk.ask(conversation("b", tools="x", system="y"))  # sweeps what has expired
    assert desk.ledger.settle(plan, 2409, desk.now).read == 2400
    desk.now = 2 * FIVE - 2
    assert desk.ask(conversation("a")).read == 2400


def test_what_was_evicted_is_a_miss_and_written_anew(desk: Desk) -> None:
    desk.ask(conversation("a"))
    assert desk.ask(conversation("a"), reused=2399) == Billing(2300, (Written(FIVE, 100),), 10)
    assert desk.ask(conversation("a"), reused=0) == Billing(0, (Written(FIVE, 2400),), 10)
    assert desk.ask(conversation("a")).read == 2400


def test_a_plan_that_is_never_settled_leaves_nothing(desk: Desk) -> None:
    desk.plan(conversation("a"))
    assert len(desk.ledger) == 0
    assert desk.ask(conversation("a")).read == 0


def test_no_marker_no_numbers_whatever_is_there(desk: Desk) -> None:
    plain = prompt([Piece("a", 2000)])
    desk.ask(plain)
    assert desk.ask(plain) == Billing(0, (), 2010)


def test_with_pages_of_several_tokens_a_read_is_told_without_the_tail_of_its_last_page() -> None:
    desk = Desk(Ledger(ANTHROPIC, page_size=16))
    desk.ask(prompt([Piece("a", 1500, ttl=FIVE)]))
    again = prompt([Piece("a", 1500, ttl=FIVE)])
    assert desk.ask(again, reused=1488) == Billing(1488, (Written(FIVE, 12),), 10)
    assert desk.ask(again, reused=1472) == Billing(0, (Written(FIVE, 1500),), 10)


def test_a_read_told_without_its_pages_tail_is_never_below_the_minimum() -> None:
    desk = Desk(Ledger(ANTHROPIC, page_size=100))
    desk.ask(prompt([Piece("a", 1050, ttl=FIVE)]))
    assert desk.ask(prompt([Piece("a", 1050, ttl=FIVE)]), reused=1000).read == 0


def test_steps_of_128_from_1024_on() -> None:
    desk = Desk(Ledger(OPENAI))
    assert desk.ask(prompt([Piece("a", 1500)], tail=0)) == Billing(0, (), 1500)
    assert desk.ask(prompt([Piece("a", 1500)], tail=0)) == Billing(1408, (), 92)
    assert desk.ask(prompt([Piece("a", 1200), Piece("b", 5000)])).read == 1152
    assert desk.ask(prompt([Piece("a", 1023)], tail=0)).read == 0


def test_a_step_read_is_a_whole_step_that_is_really_there() -> None:
    desk = Desk(Ledger(OPENAI, page_size=16))
    desk.ask(prompt([Piece("a", 1500)]))
    assert desk.ask(prompt([Piece("a", 1500)]), reused=1300).read == 1280
    assert desk.ask(prompt([Piece("a", 1500)]), reused=1023).read == 0


def test_another_cache_key_shares_no_steps() -> None:
    desk = Desk(Ledger(OPENAI))
    desk.ask(prompt([Piece("a", 1500)]), {"tools": "key-1"})
    assert desk.ask(prompt([Piece("a", 1500)]), {"tools": "key-2"}).read == 0
    assert desk.ask(prompt([Piece("a", 1500)]), {"tools": "key-1"}).read == 1408


def test_steps_live_ten_minutes_idle_and_an_hour_at_most() -> None:
    desk, wanted = Desk(Ledger(OPENAI)), prompt([Piece("a", 1500)])
    desk.ask(wanted)
    for minute in range(9, 60, 9):
        desk.now = minute * MINUTE
        assert desk.ask(wanted).read == 1408
    desk.now = HOUR
    assert desk.ask(wanted).read == 0
    desk.now += 10 * MINUTE
    assert desk.ask(wanted).read == 0


def test_steps_that_are_there_live_longer_for_whoever_asks() -> None:
    desk, usual = Desk(Ledger(OPENAI)), prompt([Piece("a", 1500)], tail=0)
    desk.ask(usual)
    desk.now = 9 * MINUTE
    assert desk.ask(prompt([Piece("a", 1500, ttl=24 * HOUR)], tail=0)).read == 1408
    desk.now = 23 * HOUR
    assert desk.ask(usual).read == 1408
    desk.now = 24 * HOUR + 9 * MINUTE
    assert desk.ask(usual).read == 0


def test_breakpoints_are_exact_and_text_shared_without_one_is_not_found() -> None:
    desk = Desk(Ledger(OPENAI_BREAKPOINTS))
    manual = Piece("manual", 1234, ttl=1800.0)
    assert desk.ask(prompt([manual, Piece("q1", 50)])) == Billing(0, (Written(1800.0, 1234),), 60)
    assert desk.ask(prompt([manual, Piece("q2", 50)])) == Billing(1234, (), 60)
    unmarked = [Piece("manual", 1234), Piece("q3", 50, ttl=1800.0)]
    assert desk.ask(prompt(unmarked)).read == 0


def test_one_namespace_cannot_push_out_another() -> None:
    desk = Desk(Ledger(Markers(minimum=1), Limits(entries=10, per_namespace=8)))
    desk.namespace = "quiet"
    desk.ask(prompt([Piece("mine", 50, ttl=FIVE)]))
    desk.namespace = "loud"
    for i in range(100):
        desk.now += 1
        desk.ask(prompt([Piece(f"p{i}", 50, ttl=FIVE)]))
        assert len(desk.ledger) <= 9
    desk.namespace = "quiet"
    assert desk.ask(prompt([Piece("mine", 50, ttl=FIVE)])).read == 50


def test_the_whole_is_bounded_over_many_namespaces_and_who_has_most_gives() -> None:
    desk = Desk(Ledger(Markers(minimum=1), Limits(entries=10, per_namespace=8)))
    for i in range(8):
        desk.ask(prompt([Piece(f"p{i}", 50, ttl=FIVE)]))
    for i in range(5):
        desk.namespace = f"other {i}"
        desk.ask(prompt([Piece("x", 50, ttl=FIVE)]))
        assert len(desk.ledger) <= 10
    for i in range(5):
        desk.namespace = f"other {i}"
        assert desk.ask(prompt([Piece("x", 50, ttl=FIVE)])).read == 50


def test_short_of_room_the_longer_prefix_goes_first() -> None:
    desk = Desk(Ledger(OPENAI, Limits(entries=4, per_namespace=4)))
    desk.ask(prompt([Piece("a", 2000)]))
    assert desk.ask(prompt([Piece("a", 2000)])).read == 1024 + 3 * 128


def test_expired_entries_make_room_before_live_ones_go() -> None:
    desk = Desk(Ledger(Markers(minimum=1), Limits(entries=4, per_namespace=4)))
    desk.ask(prompt([Piece("kept", 50, ttl=HOUR)]))
    for i in range(3):
        desk.ask(prompt([Piece(f"p{i}", 50, ttl=FIVE)]))
    desk.now = 10 * MINUTE
    for i in range(3):
        desk.ask(prompt([Piece(f"q{i}", 50, ttl=HOUR)]))
    assert desk.ask(prompt([Piece("kept", 50, ttl=HOUR)])).read == 50


def test_short_of_room_what_expires_first_goes_first() -> None:
    desk = Desk(Ledger(Markers(minimum=1), Limits(entries=4, per_namespace=4)))
    for i, ttl in enumerate([HOUR, HOUR, FIVE, FIVE, HOUR]):
        desk.ask(prompt([Piece(f"p{i}", 50, ttl=ttl)]))
    later = [prompt([Piece(f"p{i}", 50), Piece("x", 9, ttl=FIVE)]) for i in (0, 1, 2)]
    assert [desk.ask(each).read for each in later] == [50, 50, 0]


def test_short_of_room_what_was_used_lately_stays() -> None:
    desk = Desk(Ledger(Markers(minimum=1), Limits(entries=3, per_namespace=3)))
    for i in range(3):
        desk.ask(prompt([Piece(f"p{i}", 50, ttl=FIVE)]))
    assert desk.ask(prompt([Piece("p0", 50, ttl=FIVE)])).read == 50
    desk.ask(prompt([Piece("p3", 50, ttl=FIVE)]))
    assert desk.ask(prompt([Piece("p0", 50, ttl=FIVE)])).read == 50
    assert desk.ask(prompt([Piece("p1", 50, ttl=FIVE)])).read == 0


def test_what_has_expired_takes_no_room(desk: Desk) -> None:
    desk.ask(conversation("a"))
    assert len(desk.ledger) == 3
    desk.now = FIVE
    desk.ask(prompt([Piece("b", 1500, ttl=FIVE)]))
    assert len(desk.ledger) == 1


def test_a_read_from_a_marker_further_on_starts_the_ttl_again_too(desk: Desk) -> None:
    desk.ask(prompt([Piece("a", 1500, ttl=FIVE)]))
    for minute in (4, 8, 12):
        desk.now = minute * MINUTE
        again = prompt([Piece("a", 1500), Piece(f"q{minute}", 50, ttl=FIVE)])
        assert desk.ask(again).read == 1500


def test_a_reads_ttl_starts_with_the_request_not_with_its_answer(desk: Desk) -> None:
    desk.ask(conversation("a"))
    desk.now = 100.0
    plan = desk.plan(conversation("a"))
    assert desk.ledger.settle(plan, 2400, 250.0).read == 2400
    desk.now = 100.0 + FIVE
    assert desk.ask(conversation("a")).read == 0


def test_of_two_lives_promised_to_a_prefix_the_longer_holds(desk: Desk) -> None:
    desk.ask(prompt([Piece("a", 1500, ttl=HOUR)]))
    short = prompt([Piece("a", 1500, ttl=FIVE)])
    assert desk.ask(short, reused=0) == Billing(0, (Written(FIVE, 1500),), 10)
    desk.now = HOUR - 1
    assert desk.ask(short).read == 1500
    desk.now += HOUR - 1
    assert desk.ask(short).read == 1500


def test_steps_written_anew_live_an_hour_anew() -> None:
    desk, wanted = Desk(Ledger(OPENAI)), prompt([Piece("a", 1500)])
    desk.ask(wanted)
    desk.now = 8 * MINUTE
    desk.ask(wanted, reused=0)
    for minute in range(17, 68, 9):
        desk.now = minute * MINUTE
        assert desk.ask(wanted).read == 1408
    desk.now = 68 * MINUTE
    assert desk.ask(wanted).read == 0


def test_where_a_template_writes_the_system_text_first_its_settings_count_from_there_on(desk: Desk) -> None:
    turned = prompt([Piece("system", 1200, "system"), Piece("tools", 1100, "tools", FIVE)])
    desk.ask(turned, {"system": "before"})
    assert desk.ask(turned, {"system": "after"}).read == 0
    assert desk.ask(turned, {"system": "before"}).read == 2300
