"""Contents of a Gemini-shaped body → the neutral messages."""

from __future__ import annotations

from typing import Any

import pytest

from sapwood.chat.gemini_turns import parse_contents, parse_system
from sapwood.chat.messages import Message, ToolCall
from sapwood.errors import RequestError


def content(role: str | None, *parts: Any) -> Any:
    told = {"parts": [{"text": part} if isinstance(part, str) else part for part in parts]}
    return told if role is None else {"role": role, **told}


def test_texts_of_a_user_stay_apart_and_those_of_the_model_are_one() -> None:
    messages = parse_contents(
        [content(None, "a", "b"), content("user", "c"), content("model", "d", "e"), content("model", "f")]
    )
    assert messages == (Message("user", ("a", "b", "c")), Message("assistant", ("def",)))


def test_one_object_may_stand_where_a_list_may() -> None:
    assert parse_contents({"parts": {"text": "a"}}) == (Message("user", ("a",)),)
    assert parse_system({"parts": {"text": "a"}}) == (Message("system", ("a",)),)
    assert parse_system(None) == parse_system({"parts": []}) == ()


def test_a_thought_is_no_text_and_a_signature_alone_is_nothing() -> None:
    messages = parse_contents(
        [
            content("user", "a"),
            content("model", {"text": "hm ", "thought": True}, {"thoughtSignature": "x"}, "b"),
        ]
    )
    assert messages[1] == Message("assistant", ("b",), reasoning="hm ")


def test_calls_and_results_are_paired_by_id_or_else_by_name() -> None:
    messages = parse_contents(
        [
            content("user", "a"),
            content(
                "model",
                {"functionCall": {"name": "f", "args": {"b_c": 1, "a": "ü"}}},
                {"functionCall": {"name": "g", "id": "own"}},
                {"function_call": {"name": "f"}},
            ),
            content(
                "function",
                {"functionResponse": {"name": "g", "id": "own", "response": {"x_y": 1}}},
                {"function_response": {"name": "f", "response": {"n": 1}}},
                {"functionResponse": {"name": "f"}},
            ),
        ]
    )
    assert messages[1].tool_calls == (
        ToolCall("c00000001", "f", '{"b_c": 1, "a": "ü"}'),
        ToolCall("own", "g", "{}"),
        ToolCall("c00000003", "f", "{}"),
    )
    assert messages[2:] == (
        Message("tool", ('{"x_y": 1}',), name="g", tool_call_id="own"),
        Message("tool", ('{"n": 1}',), name="f", tool_call_id="c00000001"),
        Message("tool", ("{}",), name="f", tool_call_id="c00000003"),
    )


def test_a_call_that_was_answered_by_its_id_is_not_answered_again_by_its_name() -> None:
    called = content("model", {"functionCall": {"name": "f", "id": "a"}}, {"functionCall": {"name": "f"}})
    results = ({"functionResponse": {"name": "f", **id}} for id in ({"id": "a"}, {}, {}))
    messages = parse_contents([called, content("user", *results)])
    assert [each.tool_call_id for each in messages[1:]] == ["a", "c00000002", "c00000003"]


def test_a_result_without_a_call_has_an_id_of_its_own() -> None:
    (message,) = parse_contents([content("user", {"functionResponse": {"name": "f"}})])
    assert message.tool_call_id == "c00000001"


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"text": "a", "functionCall": {"name": "f"}}, "has text and functionCall"),
        ({"text": None}, "has none of them"),
        ({"fileData": {}}, "not supported"),
        ({"functionCall": {"name": "1f"}}, "functionCall.name"),
        ({"functionCall": {"name": "f", "args": []}}, "functionCall.args"),
        ({"functionCall": {"name": "f", "id": 7}}, "functionCall.id"),
        ({"functionResponse": {"name": "f"}}, "the user's to send"),
    ],
)
def test_a_part_that_is_none_is_refused(part: Any, said: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_contents([content("model", part)])
    assert said in caught.value.message


def test_a_result_with_files_is_refused() -> None:
    response = {"name": "f", "response": {}, "parts": [{"inlineData": {}}]}
    with pytest.raises(RequestError, match="not supported"):
        parse_contents([content("user", {"functionResponse": response})])
