"""Calls of agents, with their texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from sapwood.errors import UsageError
from sapwood.sim.readers.lmcache import read_lmcache
from sapwood.sim.readers.source import Source
from sapwood.sim.readers.tokenize import text_bytes
from sim.files import jsonl

ROWS = [
    {"timestamp": 2_500_000, "input": "You are.\nhi\nYo\nmore", "output": "é", "session_id": "s1"},
    {"timestamp": 1_000_000, "input": "You are.\nhi", "output": "\nYo", "session_id": "s1"},
    {"timestamp": 1_500_000, "input": "", "output": "x", "session_id": "s2"},
    {"timestamp": 9_000_000, "input": "You", "output": "", "session_id": "s2"},
]


def test_bytes_are_tokens_where_somebody_says_so(tmp_path: Path) -> None:
    trace = read_lmcache(Source(jsonl(tmp_path / "agent.jsonl.xz", ROWS)), tokenize=text_bytes)
    assert trace.arrivals.tolist() == [0.0, 1.5, 8.0]
    assert bytes(trace[0].names.tolist()) == b"You are.\nhi\nYo"
    assert (trace[0].prompt_tokens, trace[0].output_tokens, trace[0].known_tokens) == (11, 3, 14)
    # The turn that follows begins with all of the one before, its reply included.
    assert trace[1].names[:14].tolist() == trace[0].names.tolist()
    assert (trace[1].output_tokens, trace[2].output_tokens) == (2, 0)
    first, second, third = trace.sessions.tolist()
    assert first == second != third
    assert any("a token is a byte" in note for note in trace.assumed)
    assert any("1 calls with an empty prompt are left out" in note for note in trace.notes)


def test_prompt_and_reply_are_cut_into_tokens_apart(tmp_path: Path) -> None:
    cut = []

    def words(text: str) -> list[int]:
        cut.append(text)
        return [len(word) for word in text.split()]

    trace = read_lmcache(Source(jsonl(tmp_path / "agent.jsonl", ROWS[1:2])), tokenize=words)
    assert cut == ["You are.\nhi", "\nYo"]
    assert trace.names.tolist() == [3, 4, 2, 2]
    assert not any("byte" in note for note in trace.assumed)


def test_only_empty_prompts_are_no_trace(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no request that can be replayed"):
        read_lmcache(Source(jsonl(tmp_path / "agent.jsonl", ROWS[2:3])))
