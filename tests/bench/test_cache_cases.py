"""Each case at a size at which its counts can be foreseen."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from bench.cache import bookkeeping, hot_and_cold, memory, operations, starved_chat
from bench.cache.conversations import ChatShape, make_chats
from bench.cache.hot_and_cold import Stream
from bench.cache.starved_chat import BASELINE, Policies
from bench.cache.suite import chosen_cases
from bench.command import main
from bench.errors import BenchUsageError

from sapwood.cache import PrefixCache
from sapwood.config import SchedulerConfig


def test_chats_are_the_same_for_the_same_seed_and_each_turn_continues_the_last() -> None:
    shape = ChatShape(conversations=6, groups=2)
    chats, again, other = make_chats(shape, 1), make_chats(shape, 1), make_chats(shape, 2)
    assert all(
        np.array_equal(a.prompt, b.prompt) and a.at == b.at
        for a, b in zip(chats.arrivals, again.arrivals, strict=True)
    )
    assert chats.tokens == again.tokens != other.tokens
    first = [turn for turn in chats.arrivals if turn.after is None]
    assert len(first) == 6
    assert len({turn.prompt[0] for turn in first}) == 2  # a system prompt for each group
    for turn in chats.arrivals:
        if turn.after is not None:
            before = chats.arrivals[turn.after]
            said = np.concatenate([before.prompt, before.answer])
            assert np.array_equal(turn.prompt[: len(said)], said)
            assert turn.at > before.at


def test_the_tokens_of_chats_are_counted_once_for_each_system_prompt() -> None:
    chats = make_chats(ChatShape(conversations=6, groups=2), 1)
    prefixes = {
        turn.prompt[:end].tobytes() for turn in chats.arrivals for end in range(1, len(turn.prompt) + 1)
    }
    last = {turn.after for turn in chats.arrivals}
    ends = [turn for number, turn in enumerate(chats.arrivals) if number not in last]
    assert chats.tokens == len(prefixes) + sum(len(turn.answer) for turn in ends)


def test_with_room_for_all_a_chat_computes_nothing_twice() -> None:
    chats = make_chats(starved_chat._QUICK, 1)
    roomy = replace(chats, longest=10 * chats.tokens)
    report = starved_chat.run(roomy, BASELINE)
    answers = sum(len(turn.answer) - 1 for turn in chats.arrivals)
    last = {turn.after for turn in chats.arrivals}
    ends = sum(number not in last for number in range(len(chats.arrivals)))
    # Of each conversation the last token drawn is never computed.
    assert report.computed == chats.tokens - ends
    assert report.decoded == answers


def test_the_default_order_computes_less_than_fcfs_when_memory_is_short() -> None:
    shape = ChatShape(conversations=10, groups=5, fewest_turns=4, most_turns=5, start_span=20.0)
    chats = make_chats(shape, 3)
    base, ours = (starved_chat.run(chats, policies) for policies in (BASELINE, Policies("default", "lru")))
    assert ours.decoded == base.decoded
    assert ours.prefilled < base.prefilled


def test_cold_requests_starve_under_lpm_and_not_by_default() -> None:
    stream = Stream(load=1.2, hot=400, cold=3, prefix=100, own=10, answer=2)
    config = SchedulerConfig(max_running=4, patience_tokens=256, chunk_tokens=64)
    most = hot_and_cold.bound(config, stream.longest)
    assert most == 256 + 64 + 4 * 112
    assert max(hot_and_cold.cold_waits(stream, config)) <= most
    assert max(hot_and_cold.cold_waits(stream, replace(config, schedule_policy="lpm"))) > most


def test_ours_touches_one_node_and_the_classic_cache_all_of_them() -> None:
    rows = [row.json() for row in operations.rows("quick")]
    [small, large] = [row for row in rows if row["measure"] == "touched"]
    assert (small["ours"], large["ours"]) == (1.0, 1.0)
    assert (small["peer"], large["peer"]) == (21.0, 41.0)  # leaves, and the root
    timed = [row for row in rows if row["measure"] == "time"]
    assert all(row["against"] == "classic" and row["peer"] > 0 for row in timed)
    assert {row["scenario"].split(", ")[-1] for row in timed} == set(operations.our_configs())


def test_memory_per_token_is_within_its_goal() -> None:
    rows = [row.json() for row in memory.rows("quick")]
    assert [row["goal"]["met"] for row in rows] == [True] * len(operations.our_configs())
    assert all(8 <= row["ours"] < row["peer"] for row in rows)  # a token id and a page id at least


def test_bookkeeping_is_timed_over_steps_in_which_all_decode() -> None:
    cache = PrefixCache(bookkeeping._pages(5))
    times = bookkeeping.decode_steps(bookkeeping.NoModel(), cache, running=8, steps=5)
    assert len(times) == 5
    assert all(step.books == step.schedule + step.apply > 0 for step in times)
    cache.check()
    # Eight are still running: the shared prefix, and a tail for each.
    assert cache.books().leased >= bookkeeping.SHARED + 8 * bookkeeping.OWN


def test_cases_are_chosen_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(chosen_cases("trace_replay, memory", [])) == ["memory", "trace_replay"]
    with pytest.raises(BenchUsageError, match="no case is called memori; there are operations"):
        chosen_cases("memori", [])
    assert main(["cache", "--quick", "--json", "--cases", "memory"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["regime"]["cases"] == ["memory"]
    assert all("leaves" in row["scenario"] for row in told["rows"])


def test_a_trace_of_ones_own_is_replayed(capsys: pytest.CaptureFixture[str], tmp_path: object) -> None:
    file = f"{tmp_path}/mine.jsonl"
    with open(file, "w") as out:
        for at in range(3):
            out.write(json.dumps({"timestamp": at, "input_length": 600, "hash_ids": [4, 5]}) + "\n")
    assert main(["cache", "--quick", "--json", "--cases", "trace_replay", "--trace", file]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["regime"]["traces"] == ["mine.jsonl"]
    optimum = told["rows"][-1]
    rate = round(2 * 599 / 1800, 5)  # the last token of a prompt is computed in any case
    assert (optimum["scenario"], optimum["ours"]) == ("mine trace, 0.25M tokens, optimum", rate)
