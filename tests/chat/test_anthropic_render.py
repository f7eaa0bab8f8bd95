"""Engine events → an Anthropic message."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapwood.chat.anthropic_render import (
    Counters,
    MessageAnswer,
    MessageShape,
    MessageStream,
    Settled,
    usage_json,
)
from sapwood.chat.tool_answer import ToolReading, whole_arguments
from sapwood.types import Delta, Event, FinishReason, Started, Usage
from server.fakes import EOS, byte_tokenizer

TOKENIZER = byte_tokenizer()
DONE = Usage(10, 4, {"never_seen": 6}, completion_tokens=5)


def settle(usage: Usage) -> Settled:
    return Settled(Counters(usage.prompt_tokens - usage.reused, usage.reused))


def shape(**options: Any) -> MessageShape:
    return MessageShape(**{"id": "msg_01-a", "model": "toy", "max_tokens": 5, "settle": settle, **options})


def delta(text: str, tokens: bytes | None = None, finish: FinishReason | None = None) -> Delta:
    ids = tuple(text.encode() if tokens is None else tokens)
    return Delta("r", 0, text, ids + ((EOS,) if finish == "stop" and tokens is None else ()), (), finish)


def whole(shape: MessageShape, *deltas: Delta) -> Any:
    answer = MessageAnswer(shape, TOKENIZER)
    events: list[Event] = [Started("r", DONE), *deltas]
    for event in events:
        assert answer.feed(0, event) == []
    (message,) = answer.end([DONE])
    return message


def streamed(shape: MessageShape, *deltas: Delta) -> list[Any]:
    stream = MessageStream(shape, TOKENIZER)
    events: list[Event] = [Started("r", DONE), *deltas]
    return [*(each for event in events for each in stream.feed(0, event)), *stream.end([DONE])]


def test_counters_are_always_there_and_sum_up() -> None:
    usage = usage_json(Counters(1, 2, 3, 4), 5)
    assert usage["cache_creation_input_tokens"] == 7
    assert usage["cache_creation"] == {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 4}
    assert (usage["input_tokens"], usage["cache_read_input_tokens"], usage["output_tokens"]) == (1, 2, 5)


@pytest.mark.parametrize(
    ("last", "reason", "sequence"),
    [
        (delta("b", finish="stop"), "end_turn", None),
        (delta("", b"bXY", "stop"), "stop_sequence", "XY"),
        (delta("", b"b..Z", "stop"), "stop_sequence", "b..Z"),
        (delta("b", finish="length"), "max_tokens", None),
    ],
)
def test_why_an_answer_ended(last: Delta, reason: str, sequence: str | None) -> None:
    message = whole(shape(stops=("XY", "b..Z", ".Z", "X?")), delta("a"), last)
    assert (message["stop_reason"], message["stop_sequence"]) == (reason, sequence)


def test_a_stop_sequence_is_recognised_over_many_deltas_and_halves_of_characters() -> None:
    deltas = [delta("Gr"), delta("", "ü".encode()[:1]), delta("ü", "ü".encode()[1:]), delta("", b"S")]
    message = whole(shape(stops=("ST", "üST")), *deltas, delta("", b"T", "stop"))
    assert message["stop_sequence"] == "üST"


def test_an_answer_cut_before_its_own_limit_met_the_contexts() -> None:
    message = whole(shape(max_tokens=6), delta("abcde", finish="length"))
    assert message["stop_reason"] == "model_context_window_exceeded"


def test_text_and_calls_are_blocks_in_their_order() -> None:
    reading = ToolReading.of(TOKENIZER, "hermes", frozenset({"f"}))
    call = '<tool_call>{"name": "f", "arguments": {"b": 1, "a": "x"}}</tool_call>'
    pieces = [
        delta("one "),
        delta("two" + call[:20]),
        delta(call[20:] + "three" + call),
        delta("", finish="stop"),
    ]
    message = whole(shape(reading=reading), *pieces)
    events = streamed(shape(reading=reading), *pieces)
    assert [block["type"] for block in message["content"]] == ["text", "tool_use", "text", "tool_use"]
    assert message["content"][0]["text"] == "one two"
    assert message["content"][1]["input"] == {"b": 1, "a": "x"}
    assert message["stop_reason"] == "tool_use"
    assert len({block["id"] for block in message["content"] if block["type"] == "tool_use"}) == 2
    starts = [event for event in events if event["type"] == "content_block_start"]
    stops = [event["index"] for event in events if event["type"] == "content_block_stop"]
    assert [event["index"] for event in starts] == stops == [0, 1, 2, 3]
    assert starts[1]["content_block"] == {**message["content"][1], "input": {}}
    (json_delta, _) = [e["delta"] for e in events if e.get("delta", {}).get("type") == "input_json_delta"]
    assert json_delta["partial_json"] == '{"b": 1, "a": "x"}'


def test_no_block_is_open_while_another_begins() -> None:
    reading = ToolReading.of(TOKENIZER, "hermes", frozenset({"f"}))
    call = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    events = streamed(shape(reading=reading), delta("a" + call + "b", finish="stop"))
    depth = 0
    for event in events:
        depth += {"content_block_start": 1, "content_block_stop": -1}.get(event["type"], 0)
        assert depth in (0, 1)
    assert depth == 0


PARTS = st.sampled_from(
    [
        "<think>",
        "</think>",
        '<tool_call>{"name": "f", "arguments": ',
        '{"a": [1, "é"]}',
        "}</tool_call>",
        " ",
        "b",
        "<",
    ]
)


@settings(max_examples=200, derandomize=True)
@given(parts=st.lists(PARTS, max_size=8), step=st.integers(1, 9), parallel=st.booleans())
def test_the_events_add_up_to_the_whole_message_wherever_it_is_cut(
    parts: list[str], step: int, parallel: bool
) -> None:
    text = "".join(parts)
    reading = ToolReading("hermes", frozenset({"f"}), {}, thinks=True, parallel=parallel)
    asked = shape(reading=reading)
    pieces = [delta(text[at : at + step], b"a") for at in range(0, len(text), step)]
    message = whole(asked, *pieces, delta("", b"", "stop"))
    assert message == whole(asked, delta(text, b"a"), delta("", b"", "stop"))
    blocks: list[dict[str, Any]] = []
    for event in streamed(asked, *pieces, delta("", b"", "stop")):
        match event:
            case {"type": "content_block_start", "content_block": block}:
                blocks.append({**block, "json": ""})
            case {"type": "content_block_delta", "delta": {"type": kind, **added}}:
                assert kind.startswith(("text", "thinking", "signature", "input_json"))
                for name, piece in added.items():
                    key = "json" if name == "partial_json" else name
                    blocks[event["index"]][key] += piece
    for block in blocks:
        arguments = block.pop("json")
        if block["type"] == "tool_use":
            block["input"] = json.loads(whole_arguments(arguments))
    assert blocks == message["content"]
