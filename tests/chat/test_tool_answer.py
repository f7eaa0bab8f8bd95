from __future__ import annotations

import re

from sapwood.chat import AnswerReader, NumberedCall, ToolReading
from sapwood.chat.tool_calls import FoundCall
from sapwood.types import Delta, FinishReason

TAG = 300
READING = ToolReading("mistral", frozenset({"f"}), {TAG: "[TOOL_CALLS]"})


def delta(text: str, *tokens: int, finish: FinishReason | None = None) -> Delta:
    return Delta("r", 0, text, tokens, finish=finish)


def read(reader: AnswerReader, *deltas: Delta) -> list[str | NumberedCall]:
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
