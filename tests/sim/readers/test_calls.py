"""From what a log tells to a trace."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from sapwood.errors import UsageError
from sapwood.sim.rates import found_unbounded
from sapwood.sim.readers.builder import TraceBuilder
from sapwood.sim.readers.call import Call
from sapwood.sim.readers.calls import trace_of
from sapwood.sim.readers.usage import Usage
from sapwood.sim.trace import Names, Trace


def read(calls: Sequence[Call], output_tokens: int | None = None) -> Trace:
    return trace_of(TraceBuilder("log", 1), calls, output_tokens=output_tokens)


def ids(*tokens: int) -> Names:
    return np.array(tokens, np.int32)


def test_prompts_have_the_tokens_that_usage_tells_and_share_equal_bytes() -> None:
    """5 bytes a token: the system's 50 bytes are 10 tokens, and of turn 2 all of turn 1 is known."""
    system, answer = b"s" * 50, b"a" * 20
    trace = read(
        [
            Call(0.0, system + b"1" * 50, answer, Usage(20, 4)),
            Call(1.0, system + b"2" * 150, usage=Usage(40, 7)),
            Call(2.0, system + b"1" * 50 + answer + b"3" * 80, usage=Usage(40, 9)),
        ]
    )
    assert trace.prompt_tokens.tolist() == [20, 40, 40]
    assert trace.output_tokens.tolist() == [4, 7, 9]
    assert found_unbounded(trace).tolist() == [0, 10, 24]
    assert trace.assumed[0].startswith(
        "token counts are those of the log's usage, 5 bytes a token over all 3 prompts"
    )


def test_an_answer_is_as_long_as_was_counted_whatever_is_shown_of_it() -> None:
    """Thoughts are counted and not shown; what fits into fewer tokens is not known beyond them."""
    trace = read(
        [
            Call(0.0, b"p" * 40, b"r" * 20, Usage(10, 90)),
            Call(1.0, b"p" * 40, b"r" * 20, Usage(10, 2)),
            Call(2.0, b"p" * 40, b"r" * 20, Usage(10, None)),
        ]
    )
    assert trace.output_tokens.tolist() == [90, 2, 5]
    assert trace.known_tokens.tolist() == [15, 12, 15]


def test_an_answer_that_ends_in_the_last_token_of_its_prompt_is_one() -> None:
    trace = read([Call(0.0, b"p" * 41, b"r")])
    assert (trace.prompt_tokens[0], trace.output_tokens[0], trace.known_tokens[0]) == (11, 1, 11)


def test_a_text_is_never_taken_for_tokens() -> None:
    trace = read([Call(0.0, ids(7, 8), ids(9)), Call(1.0, b"abcd" * 3), Call(2.0, ids(7, 8), b"wxyz" * 2)])
    assert trace[0].names.tolist() == [7, 8, 9]
    assert trace[1].names.tolist() == [10, 10, 10]
    assert (trace[2].names.tolist(), trace[2].output_tokens) == ([7, 8], 2)


def test_what_was_assumed_is_told_apart_from_the_rest() -> None:
    builder = TraceBuilder("log", 1)
    builder.notes.append("one line was odd")
    calls = [Call(None, b"p" * 40), Call(7.0, b"q" * 40)]
    trace = trace_of(builder, calls, output_tokens=5)
    assert [note[:12] for note in trace.assumed] == ["token counts", "2 answers ar"]
    assert [note[:12] for note in trace.notes] == ["one line was", "sessions are", "1 requests h"]


def test_where_no_request_has_a_time_all_times_rest_on_that() -> None:
    assert (
        read([Call(None, b"p" * 40), Call(None, b"q" * 40)], 5)
        .assumed[-1]
        .startswith("2 requests have no time")
    )


def test_nothing_is_no_trace() -> None:
    builder = TraceBuilder("log", 1)
    builder.notes.append("3 lines without a prompt are left out")
    with pytest.raises(UsageError) as caught:
        trace_of(builder, [])
    assert caught.value.hint == "3 lines without a prompt are left out"


def test_the_text_of_an_answer_is_as_long_as_was_counted_whatever_its_prompt_is() -> None:
    reply, counted = b"r" * 200, Usage(None, 10)
    assert read([Call(0.0, ids(1, 2, 3), reply, counted)]).output_tokens.tolist() == [10]
    assert read([Call(0.0, b"p" * 40, reply, counted)]).output_tokens.tolist() == [10]


def test_of_tokens_more_may_be_counted_than_shown_whatever_the_prompt_is() -> None:
    reply, counted = ids(7, 8), Usage(None, 90)
    assert read([Call(0.0, ids(1, 2, 3), reply, counted)]).output_tokens.tolist() == [90]
    assert read([Call(0.0, b"p" * 40, reply, counted)]).output_tokens.tolist() == [90]
    assert read([Call(0.0, b"p" * 40, reply, Usage(None, 1))]).output_tokens.tolist() == [2]


def test_where_only_answers_are_texts_that_they_are_guessed_is_told() -> None:
    trace = read([Call(0.0, ids(1), b"r" * 40), Call(1.0, ids(2), b"r" * 40, Usage(None, 7))])
    assert trace.output_tokens.tolist() == [10, 7]
    assert trace.assumed[0].startswith(
        "1 answers that nobody counted are as long as their texts, 4 bytes a token, a guess"
    )
