"""Ollama's tool calls: ids that they do not have there, and what stands in their place."""

from __future__ import annotations

from typing import Any

import pytest

from sapwood.chat import Conversation
from sapwood.chat.found_calls import FoundCall
from sapwood.chat.ollama import OllamaCall, parse_ollama_chat
from sapwood.chat.ollama_tools import call_json
from sapwood.errors import RequestError
from sapwood.types import SamplingDefaults


def parse(*messages: Any, **fields: Any) -> OllamaCall:
    return parse_ollama_chat(
        {"messages": list(messages), **fields}, vocab_size=100, defaults=SamplingDefaults()
    )


def conversation(*messages: Any, **fields: Any) -> Conversation:
    prompt = parse(*messages, **fields).prompt
    assert isinstance(prompt, Conversation)
    return prompt


def calls(*names: str, **more: Any) -> dict[str, Any]:
    return {
        "role": "assistant",
        "tool_calls": [{"function": {"name": name, "arguments": {"b": 1, "a": 2}}, **more} for name in names],
    }


def result(name: str | None = None, **more: Any) -> dict[str, Any]:
    return {"role": "tool", "content": "x", **({} if name is None else {"tool_name": name}), **more}


def test_calls_get_ids_that_any_template_takes_and_keep_the_order_of_their_keys() -> None:
    made = conversation(calls("f", "g"), calls("f")).messages
    ids = [call.id for message in made for call in message.tool_calls]
    assert len(set(ids)) == 3
    assert all(len(id) == 9 and id.isalnum() for id in ids)
    assert made[0].tool_calls[0].arguments == '{"b": 1, "a": 2}'
    assert made[0].parts == ()


@pytest.mark.parametrize(
    ("results", "answered"),
    [
        ([result("g"), result("f")], [1, 0]),
        ([result(), result()], [0, 1]),
        ([result("f"), result("f")], [0, None]),
        ([result("other")], [None]),
        ([result(), result(), result()], [0, 1, None]),
    ],
)
def test_a_result_answers_the_first_call_of_its_name_that_has_none(
    results: list[Any], answered: list[int | None]
) -> None:
    first, *rest = conversation(calls("f", "g"), *results).messages
    ids = [call.id for call in first.tool_calls]
    assert [message.tool_call_id for message in rest] == [None if i is None else ids[i] for i in answered]
    assert [message.name for message in rest] == [each.get("tool_name") for each in results]


def test_ids_that_a_client_has_are_kept() -> None:
    made, answer = conversation(calls("f", id="mine"), result("f", tool_call_id="mine")).messages
    assert made.tool_calls[0].id == answer.tool_call_id == "mine"


def test_after_calls_the_assistant_does_not_go_on_with_its_turn() -> None:
    assert conversation(calls("f")).add_generation_prompt
    assert conversation({"role": "assistant", "content": "a"}).continue_final_message


def test_thoughts_come_back_as_such() -> None:
    (message,) = conversation({"role": "assistant", "content": "a", "thinking": "b"}).messages
    assert message.reasoning == "b"


def test_how_much_to_think_is_told_to_the_template() -> None:
    user = {"role": "user", "content": "a"}
    assert conversation(user, think="low").template_kwargs == {"reasoning_effort": "low"}
    assert conversation(user, think=True).template_kwargs == {}
    assert parse(user, think=False).think is False


@pytest.mark.parametrize("format", [None, ""])
def test_no_format_is_no_constraint(format: str | None) -> None:
    assert parse(format=format).params.constraint is None


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"format": [1]}, "format"),
        ({"think": 1}, "think"),
        ({"think": []}, "think"),
        ({"tools": [1]}, "tools[0]"),
        ({"tools": [{}] * 2000}, "tools"),
        ({"messages": [calls(*["f"] * 2000)]}, "messages[0].tool_calls"),
        ({"messages": [calls("f", id=3)]}, "messages[0].tool_calls[0].id"),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as error:
        parse(*fields.pop("messages", ()), **fields)
    assert error.value.param == param


def test_arguments_too_deep_are_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100):
        deep = {"a": deep}
    with pytest.raises(RequestError, match="nested"):
        parse({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": deep}}]})


def test_a_call_of_an_answer_has_its_arguments_as_an_object() -> None:
    told = call_json(FoundCall("f", '{"b": "x", "a": [1.5, null]}'))
    assert told == {"function": {"name": "f", "arguments": {"b": "x", "a": [1.5, None]}}}
    assert list(told["function"]["arguments"]) == ["b", "a"]
