"""Traces in Mooncake's format: those that come along, and files that are none."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from bench.errors import BenchError
from bench.traces import BUNDLED, load_trace


def line(at: int, tokens: int, blocks: list[int]) -> str:
    return json.dumps({"timestamp": at, "input_length": tokens, "output_length": 1, "hash_ids": blocks})


def test_the_bundled_traces_are_what_their_readme_says() -> None:
    conversation, synthetic = (load_trace(file) for file in BUNDLED)
    assert (conversation.name, synthetic.name) == ("conversation", "synthetic")
    assert (len(conversation.requests), len(synthetic.requests)) == (12_031, 3_993)
    assert sum(len(request.blocks) for request in conversation.requests) == 288_500
    assert len({block for request in conversation.requests for block in request.blocks.tolist()}) == 182_790
    assert conversation.prompt_tokens == 144_793_823
    assert conversation.requests[-1].at < 3600


def test_requests_are_put_in_order_of_time_and_their_blocks_numbered_anew(tmp_path: Path) -> None:
    file = tmp_path / "mine_trace.jsonl"
    file.write_text("\n".join([line(2000, 600, [2**40, 7]), "", line(500, 1025, [2**40, 7, 9])]))
    trace = load_trace(file)
    assert (trace.name, [request.at for request in trace.requests]) == ("mine", [0.5, 2.0])
    assert [request.blocks.tolist() for request in trace.requests] == [[0, 1, 2], [0, 1]]
    assert [trace.requests[0].tokens_in(blocks) for blocks in range(4)] == [0, 512, 1024, 1025]
    assert trace.first(1).prompt_tokens == 1025


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("{", "line 2 is no request"),
        (json.dumps({"timestamp": 0, "input_length": 5}), "line 2 is no request: KeyError"),
        (line(0, 513, [1]), "line 2 has 1 blocks for 513 tokens; expected 2"),
        (line(0, 0, []), "line 2 has 0 blocks for 0 tokens"),
        (line(0, 5, [1]).replace("[1]", "[[1]]"), "line 2 is no request"),
    ],
)
def test_a_line_that_is_no_request_is_named(tmp_path: Path, bad: str, said: str) -> None:
    file = tmp_path / "x.jsonl"
    file.write_text(f"{line(0, 5, [1])}\n{bad}\n")
    with pytest.raises(BenchError, match=rf"x\.jsonl, {said}".replace("[", r"\[")):
        load_trace(file)


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=r"none\.jsonl cannot be read"):
        load_trace(tmp_path / "none.jsonl")
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(gzip.compress((line(0, 5, [1]) * 9).encode())[:-12])
    with pytest.raises(BenchError, match=r"cut\.jsonl\.gz cannot be read"):
        load_trace(cut)
    empty = tmp_path / "empty.jsonl"
    empty.write_text("\n")
    with pytest.raises(BenchError, match="has no requests"):
        load_trace(empty)
