"""Which boundaries are written and looked up, by each provider's rules."""

from __future__ import annotations

import pytest

from sapwood.contract import ANTHROPIC, DEEPSEEK, OPENAI, OPENAI_BREAKPOINTS, Block
from sapwood.contract.breakpoints import Boundaries, boundaries_of
from sapwood.errors import RequestError

FIVE, HOUR = 300.0, 3600.0


def turns(count: int, marked: dict[int, float] | None = None) -> list[Block]:
    """Blocks of 100 tokens each, some of them marked."""
    return [Block(100 * (i + 1), "messages", (marked or {}).get(i)) for i in range(count)]


def written(found: Boundaries) -> list[int]:
    return [write.boundary.end for write in found.writes]


def looked_up(found: Boundaries) -> list[int]:
    return [boundary.end for boundary in found.lookups]


def test_only_marked_blocks_are_written() -> None:
    found = boundaries_of(ANTHROPIC, turns(6, {1: HOUR, 4: FIVE}), 650)
    assert [(write.boundary.end, write.ttl) for write in found.writes] == [(200, HOUR), (500, FIVE)]


def test_a_marker_looks_at_twenty_blocks_its_own_included() -> None:
    assert looked_up(boundaries_of(ANTHROPIC, turns(30, {29: FIVE}), 3000)) == list(range(1100, 3001, 100))


def test_a_second_marker_opens_a_second_window() -> None:
    found = boundaries_of(ANTHROPIC, turns(30, {4: FIVE, 29: FIVE}), 3000)
    assert looked_up(found) == [*range(100, 501, 100), *range(1100, 3001, 100)]


def test_without_markers_nothing_is_written_or_looked_up() -> None:
    assert boundaries_of(ANTHROPIC, turns(3), 300) == Boundaries((), ())


def test_a_fifth_marker_is_refused() -> None:
    assert len(boundaries_of(ANTHROPIC, turns(5, dict.fromkeys(range(4), FIVE)), 500).writes) == 4
    with pytest.raises(RequestError, match="5 blocks carry 'cache_control'; at most 4 may") as caught:
        boundaries_of(ANTHROPIC, turns(5, dict.fromkeys(range(5), FIVE)), 500)
    assert caught.value.param == "cache_control"


def test_a_longer_ttl_after_a_shorter_one_is_refused() -> None:
    with pytest.raises(RequestError, match="the longer must come first"):
        boundaries_of(ANTHROPIC, turns(3, {0: FIVE, 2: HOUR}), 300)


def test_steps_begin_at_the_minimum_and_end_within_the_prompt() -> None:
    assert looked_up(boundaries_of(OPENAI, [], 1023)) == []
    assert looked_up(boundaries_of(OPENAI, [], 1024)) == [1024]
    assert written(boundaries_of(OPENAI, [], 1500)) == [1024, 1152, 1280, 1408]
    assert looked_up(boundaries_of(DEEPSEEK, [], 200)) == [64, 128, 192]


def test_the_life_of_steps_is_idle_time_and_an_end_or_the_retention_asked_for() -> None:
    (usual,) = boundaries_of(OPENAI, [], 1024).writes
    (longer,) = boundaries_of(OPENAI, [Block(1024, "messages", 86400.0)], 1024).writes
    assert (usual.ttl, usual.longest) == (600.0, 3600.0)
    assert (longer.ttl, longer.longest) == (86400.0, 86400.0)


def test_explicit_breakpoints_write_the_latest_four_and_look_up_the_first_two_and_latest_eighty() -> None:
    found = boundaries_of(OPENAI_BREAKPOINTS, turns(100, dict.fromkeys(range(100), 1800.0)), 10_000)
    assert written(found) == [9700, 9800, 9900, 10_000]
    assert looked_up(found) == [100, 200, *range(2100, 10_001, 100)]


def test_without_explicit_breakpoints_caching_is_off_for_a_request() -> None:
    assert boundaries_of(OPENAI_BREAKPOINTS, turns(3), 300) == Boundaries((), ())


def test_implicit_mode_writes_the_last_message_end_and_three_breakpoints() -> None:
    blocks = turns(10, dict.fromkeys([0, 1, 2, 3, 4], 1800.0))
    blocks[7:] = [Block(block.end, block.level, 1800.0, automatic=True) for block in blocks[7:]]
    assert written(boundaries_of(OPENAI_BREAKPOINTS, blocks, 1000)) == [300, 400, 500, 1000]


def test_implicit_mode_looks_up_twenty_earlier_message_ends_and_the_end_of_the_opening() -> None:
    ends = [Block(block.end, block.level, 1800.0, automatic=True) for block in turns(40)]
    ends[:2] = [Block(block.end, "system", 1800.0, automatic=True) for block in ends[:2]]
    assert looked_up(boundaries_of(OPENAI_BREAKPOINTS, ends, 4000)) == [200, *range(2000, 4001, 100)]


@pytest.mark.parametrize("ends", [[300, 200], [300, 900], [-1, 200]])
def test_blocks_out_of_order_or_beyond_the_prompt_are_the_callers_fault(ends: list[int]) -> None:
    with pytest.raises(ValueError, match="prompt order"):
        boundaries_of(ANTHROPIC, [Block(end, "messages") for end in ends], 800)


def test_a_level_that_does_not_exist_is_the_callers_fault() -> None:
    with pytest.raises(ValueError, match="tools, system, messages"):
        Block(1, "prompt")


@pytest.mark.parametrize("ttls", [(1800.0, 43200.0), (43200.0, 1800.0)])
def test_where_two_boundaries_are_one_the_longer_ttl_holds(ttls: tuple[float, float]) -> None:
    blocks = [Block(1500, "messages", ttl) for ttl in ttls]
    (write,) = boundaries_of(OPENAI_BREAKPOINTS, blocks, 1600).writes
    assert (write.boundary.end, write.ttl) == (1500, 43200.0)
