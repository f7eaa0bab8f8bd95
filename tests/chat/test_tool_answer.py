from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from sapwood.chat import (
    AnswerReader,
    ChatTemplate,
    Conversation,
    Message,
    NumberedCall,
    Tokenizer,
    ToolReading,
)
from sapwood.chat.found_calls import FoundCall
from sapwood.chat.tool_answer import CallEnd, CallPart, CallStart, Fragment, FragmentReader, Thought
from sapwood.chat.tools import ToolUse
from sapwood.types import Delta, FinishReason

TAG, THINK, ANSWER = 300, 301, 302
READING = ToolReading("mistral", frozenset({"f"}), {TAG: "[TOOL_CALLS]"})


def delta(text: str, *tokens: int, finish: FinishReason | None = None) -> Delta:
    return Delta("r", 0, text, tokens, finish=finish)


def read(reader: AnswerReader, *deltas: Delta) -> list[str | Thought | NumberedCall]:
    return [piece for each in deltas for piece in reader.read(each)]


def test_a_marker_that_is_a_control_token_leaves_no_text_and_still_opens_a_call() -> None:
    reader = READING.reader("a")
    pieces = read(
        reader,
        delta("Well.", 1),
        delta("", TAG),
        delta('[{"name": "f", "arguments": {"a": 1}}]', 2),
        delta("", 3, finish="stop"),
    )
    assert pieces[0] == "Well."
    assert isinstance(pieces[1], NumberedCall)
    assert (pieces[1].index, pieces[1].call) == (0, FoundCall("f", '{"a": 1}'))
    assert reader.reason("stop") == "tool_calls"
    assert reader.reason("length") == "length"


def test_what_is_held_back_comes_with_the_last_delta() -> None:
    reader = READING.reader("a")
    assert read(reader, delta("", TAG), delta(" [", 1)) == []
    assert read(reader, delta("x", 2, finish="length")) == ["[TOOL_CALLS]", " [x"]
    assert reader.reason("stop") == "stop"


def test_every_call_has_an_id_of_its_own_that_every_template_takes() -> None:
    two = '[TOOL_CALLS][{"name": "f"}, {"name": "f"}]'
    calls = [*read(READING.reader("a-0"), delta(two)), *read(READING.reader("a-1"), delta(two))]
    ids = [call.id for call in calls if isinstance(call, NumberedCall)]
    assert len(set(ids)) == 4
    assert all(re.fullmatch("[0-9a-zA-Z]{9}", id) for id in ids)


THINKING = ToolReading(
    "hermes", frozenset({"f"}), {THINK: "<think>", ANSWER: "</think>"}, thinks=True, thought_open=False
)
CALL = '<tool_call>{"name": "f", "arguments": {"a": "x"}}</tool_call>'


def fragments(reader: FragmentReader, *deltas: Delta) -> list[Fragment]:
    return [piece for each in deltas for piece in reader.read(each)]


def test_a_call_comes_in_fragments_with_one_id() -> None:
    reader = READING.fragments("a")
    pieces = fragments(
        reader, delta("[TOOL_CALLS]f[ARGS]"), delta('{"a": '), delta("1}"), delta(" ", finish="stop")
    )
    start = pieces[0]
    assert isinstance(start, CallStart)
    assert (start.index, start.name) == (0, "f")
    assert pieces[1:] == [CallPart(0, '{"a": '), CallPart(0, "1}"), CallEnd(0)]


def test_a_call_cut_short_ends_with_the_arguments_that_there_were_and_collects_to_none() -> None:
    deltas = [delta('[TOOL_CALLS]f{"a": "x'), delta("", finish="length")]
    reader = READING.fragments("a")
    assert fragments(reader, *deltas)[1:] == [CallPart(0, '{"a": "x'), CallEnd(0)]
    assert reader.reason("length") == "length"
    (call,) = read(READING.reader("a"), *deltas)
    assert isinstance(call, NumberedCall)
    assert call.call == FoundCall("f", "{}")


def test_thoughts_text_and_calls_are_told_apart_and_thought_is_counted() -> None:
    reader = THINKING.fragments("a")
    pieces = fragments(
        reader,
        delta("", THINK),
        delta("Hm.", 1),
        delta(" Call f: <tool_call>", 2),
        delta("", ANSWER),
        delta("Well.", 3),
        delta(CALL, 4, finish="stop"),
    )
    assert pieces[:3] == [Thought("Hm."), Thought(" Call f: <tool_call>"), "Well."]
    assert isinstance(pieces[3], CallStart)
    assert (reader.calls, reader.reasoning_tokens) == (1, 4)


def test_tokens_of_a_tag_that_is_text_are_thought_too() -> None:
    reader = THINKING.fragments("a")
    fragments(reader, delta("<", 1), delta("think>", 2), delta("a", 3), delta("</", 4), delta("think>b", 5))
    assert reader.reasoning_tokens == 5
    plain = THINKING.fragments("a")
    fragments(plain, delta("<", 1), delta("b>", 2), delta("</think>", 3))
    assert plain.reasoning_tokens == 0


def test_a_prompt_that_opens_the_thought_makes_the_answer_begin_in_it() -> None:
    opened = ToolReading("hermes", frozenset(), {}, thinks=True, thought_open=True).fragments("a")
    assert fragments(opened, delta("a", 1), delta("</think>b", 2, finish="stop")) == [Thought("a"), "b"]
    assert opened.reasoning_tokens == 2


@settings(max_examples=200, derandomize=True)
@given(
    parts=st.lists(st.sampled_from(["<think>", "</think>", CALL, '"', "}", " ", "a", "<"]), max_size=8),
    step=st.integers(1, 9),
    opened=st.booleans(),
)
def test_where_an_answer_is_cut_makes_no_difference(parts: list[str], step: int, opened: bool) -> None:
    text = "".join(parts)
    reading = ToolReading("hermes", frozenset({"f"}), {}, thinks=True, thought_open=opened)

    def joined(*deltas: str) -> list[Fragment]:
        pieces: list[Fragment] = []
        for piece in fragments(
            reading.fragments("a"), *(delta(each) for each in deltas), delta("", finish="stop")
        ):
            last = pieces[-1] if pieces else None
            match last, piece:
                case str(), str():
                    pieces[-1] = last + piece
                case Thought(), Thought():
                    pieces[-1] = Thought(last.text + piece.text)
                case CallPart(), CallPart():
                    pieces[-1] = CallPart(piece.index, last.text + piece.text)
                case _:
                    pieces.append(piece)
        return pieces

    whole = joined(text)
    assert joined(*(text[at : at + step] for at in range(0, len(text), step))) == whole
    assert joined(*text) == whole


def test_nothing_is_read_for_a_model_that_neither_thinks_nor_may_call(small: Tokenizer) -> None:
    asked = Conversation((Message("user", ("a",)),))
    plain = ChatTemplate.for_tokenizer("{{ messages[0].content }}", small)
    thinks = ChatTemplate.for_tokenizer("{{ messages[0].content }}</think>", small)
    assert ToolReading.after(small, plain, asked, (1,), None) is None
    found = ToolReading.after(small, thinks, asked, (1,), None)
    assert found is not None
    assert (found.thinks, found.names) == (True, frozenset())
    calls = ToolReading.after(small, plain, asked, (1,), ToolUse(frozenset({"f"})))
    assert calls is not None
    assert (calls.thinks, calls.names) == (False, frozenset({"f"}))
