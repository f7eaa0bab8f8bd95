"""Streamed and whole, an answer is the same, wherever its deltas are cut."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk

from sapwood.chat import ChatAnswer, ChatStream, Head, ToolReading
from sapwood.types import Delta, Event, FinishReason, Started, Usage
from server.fakes import byte_tokenizer

TOKENIZER = byte_tokenizer()
HEAD = Head("chatcmpl-1", 1, "toy", "fp")
USAGE = Usage(5, 1, {"never_seen": 4}, completion_tokens=9)
READING = ToolReading("hermes", frozenset({"f"}), {}, thinks=True)
CALL = '<tool_call>{"name": "f", "arguments": {"a": "é", "b": [1]}}</tool_call>'

PARTS = st.sampled_from(
    ["<think>", "</think>", CALL, CALL[:48], " ", "a", '{"name": "f", "arguments": ', "}", "<"]
)


def events(text: str, step: int, finish: FinishReason) -> list[Event]:
    pieces = [text[at : at + step] for at in range(0, len(text), step)]
    deltas = [Delta("r", 0, piece, (1,)) for piece in pieces]
    return [Started("r", USAGE), *deltas, Delta("r", 0, "", (2,), finish=finish)]


def whole(fed: list[Event]) -> Any:
    answer = ChatAnswer(HEAD, TOKENIZER, n=1, logprobs=False, tools=READING)
    assert [chunk for event in fed for chunk in answer.feed(0, event)] == []
    (completion,) = answer.end([USAGE])
    return completion


@settings(max_examples=200, derandomize=True)
@given(parts=st.lists(PARTS, max_size=6), step=st.integers(1, 9), finish=st.sampled_from(["stop", "length"]))
def test_chunks_add_up_to_the_whole_answer_wherever_it_is_cut(
    parts: list[str], step: int, finish: FinishReason
) -> None:
    text = "".join(parts)
    told = whole(events(text, step, finish))
    assert told["choices"] == whole(events(text, len(text) + 1, finish))["choices"]
    stream = ChatStream(HEAD, TOKENIZER, n=1, logprobs=False, include_usage=True, tools=READING)
    chunks = [chunk for event in events(text, step, finish) for chunk in stream.feed(0, event)]
    state = ChatCompletionStreamState()
    for chunk in [*chunks, *stream.end([USAGE])]:
        state.handle_chunk(ChatCompletionChunk.model_validate(chunk))
    streamed = state.current_completion_snapshot.model_dump(mode="json")
    (choice,), (expected,) = streamed["choices"], told["choices"]
    assert choice["finish_reason"] == expected["finish_reason"]
    message, wanted = choice["message"], expected["message"]
    assert message["content"] == (wanted["content"] or "")
    assert message.get("reasoning_content") == wanted.get("reasoning_content")
    calls = [
        (call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in message["tool_calls"] or ()
    ]
    assert calls == [
        (call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in wanted.get("tool_calls", ())
    ]
    assert streamed["usage"]["completion_tokens_details"] is not None
