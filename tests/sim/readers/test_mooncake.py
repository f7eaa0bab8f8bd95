"""Rows of block ids."""

from __future__ import annotations

from pathlib import Path

import pytest

from sapwood.errors import UsageError
from sapwood.sim.readers.mooncake import read_mooncake
from sapwood.sim.readers.source import Source
from sapwood.sim.trace import Trace
from sim.files import jsonl


def read(tmp_path: Path, *rows: object) -> Trace:
    return read_mooncake(Source(jsonl(tmp_path / "chat_trace.jsonl", rows)))  # type: ignore[arg-type]


def mooncake(at: float, tokens: int, ids: list[object], **others: object) -> dict[str, object]:
    return {"timestamp": at, "input_length": tokens, "output_length": 5, "hash_ids": ids, **others}


def test_equal_ids_are_equal_names_and_times_are_milliseconds(tmp_path: Path) -> None:
    trace = read(tmp_path, mooncake(0, 1300, [70, 7, 8]), mooncake(3052, 1900, [70, 7, 9, 10]))
    assert (trace.name, trace.unit_tokens, len(trace)) == ("chat", 512, 2)
    assert trace.arrivals.tolist() == [0.0, 3.052]
    assert trace[0].names.tolist() == [0, 1, 2]
    assert trace[1].names.tolist() == [0, 1, 3, 4]
    assert trace.prompt_tokens.tolist() == trace.known_tokens.tolist() == [1300, 1900]
    assert trace.output_tokens.tolist() == [5, 5]
    assert any("replies have no names" in note for note in trace.notes)


def test_that_times_are_taken_as_milliseconds_is_told(tmp_path: Path) -> None:
    told = "times are taken as milliseconds"
    assert any(told in note for note in read(tmp_path, mooncake(0, 600, [5, 6])).notes)
    chat = mooncake(0, 600, [5, 6], chat_id=1, parent_chat_id=-1, block_size=512)
    assert not any(told in note for note in read(tmp_path, chat).notes)


@pytest.mark.parametrize("first", [True, False])
def test_all_rows_have_times_or_none(first: bool, tmp_path: Path) -> None:
    rows = [mooncake(0, 600, [5, 6]), mooncake(9, 600, [5, 6])]
    del rows[0 if first else 1]["timestamp"]
    with pytest.raises(UsageError, match="line 2: all lines have a timestamp, or none"):
        read(tmp_path, *rows)


def test_rows_come_in_order_of_time(tmp_path: Path) -> None:
    trace = read(tmp_path, mooncake(2000, 600, [5, 6]), mooncake(1000, 700, [5, 7]))
    assert trace.prompt_tokens.tolist() == [700, 600]


def test_replies_with_names_go_on_behind_the_prompt(tmp_path: Path) -> None:
    rows = [
        mooncake(0, 40, [1, 2], output_length=30, output_hash_ids=[3, 4]),
        mooncake(9, 90, [1, 2, 3, 4, 5], output_length=3, output_hash_ids=[]),
    ]
    trace = read(tmp_path, *rows)
    assert trace.unit_tokens == 16
    assert (trace[0].names.tolist(), trace[0].known_tokens) == ([0, 1, 2, 3], 64)
    # 90 tokens are five blocks and a tail that has no id: it gets a name of its own.
    assert (trace[1].names.tolist()[:5], len(trace[1].names), trace[1].known_tokens) == (
        [0, 1, 2, 3, 4],
        6,
        90,
    )


def test_a_tail_without_an_id_is_like_no_other(tmp_path: Path) -> None:
    trace = read(tmp_path, *[mooncake(at, 1000, [1], block_size=512) for at in range(3)])
    assert trace.names.tolist() == [0, 1, 0, 2, 0, 3]


def test_bailian_says_which_chat_and_counts_in_seconds(tmp_path: Path) -> None:
    def said(chat: int, parent: int, at: float, tokens: int, ids: list[int]) -> dict[str, object]:
        chat_ids = {"chat_id": chat, "parent_chat_id": parent}
        return {**chat_ids, "timestamp": at, "input_length": tokens, "output_length": 9, "hash_ids": ids}

    turns = [said(159, -1, 61.1, 33, [11, 12, 13]), said(160, 159, 70.4, 58, [11, 12, 14, 15])]
    trace = read(tmp_path, *turns, said(161, -1, 71.0, 20, [11, 16]))
    assert trace.unit_tokens == 16
    assert trace.arrivals.tolist() == [61.1, 70.4, 71.0]
    first, second, third = trace.sessions.tolist()
    assert first == second != third


def test_ids_may_be_texts_and_times_may_be_left_out(tmp_path: Path) -> None:
    rows = [{"block_size": 64, "hash_ids": [id, "b"], "input_length": 128} for id in ("a1", "a2")]
    trace = read(tmp_path, *rows)
    assert (trace.unit_tokens, trace.names.tolist()) == (64, [0, 1, 2, 1])
    assert trace.arrivals.tolist() == [0.0, 1.0]
    assert any("no times" in note for note in trace.notes)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"input_length": 5, "hash_ids": [1], "timestamp": "x"}, "line 2: 'timestamp' is \"x\"; a number"),
        ({"timestamp": 5, "hash_ids": [1]}, "line 2 has no 'input_length'"),
        ({"timestamp": 5, "input_length": 0, "hash_ids": []}, "'input_length' is 0; a whole number of at least 1"),
        ({"timestamp": 5, "input_length": 600, "hash_ids": 7}, "'hash_ids' is 7; a list"),
        (mooncake(5, 6000, [1, 2]), "line 2 has 2 blocks for 6000 tokens"),
    ],
)  # fmt: skip
def test_a_row_that_is_none_is_told_by_its_line(row: object, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read(tmp_path, mooncake(0, 1300, [0, 7, 8]), row)
    assert said in str(caught.value)
    assert "chat_trace.jsonl" in str(caught.value)
