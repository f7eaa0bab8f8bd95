"""`/v1/responses` through the official SDK: whole and streamed, with tools and forms."""

from __future__ import annotations

import json
from typing import Any

import openai
import pydantic
import pytest

from server.conftest import Served
from server.response_calls import (
    CALL,
    CALLS,
    WEATHER,
    ask,
    events,
    final,
    part,
    prompt_of,
    refusal,
    said,
    tools_of,
)


def test_a_text_is_answered(served: Served) -> None:
    served.script(b"Blue.")
    response = ask(served, instructions="Be brief.")
    assert response.output_text == "Blue."
    assert (response.status, response.error, response.incomplete_details) == ("completed", None, None)
    (message,) = response.output
    assert (message.type, message.role, message.status) == ("message", "assistant", "completed")
    turns = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Colour of the sky?"},
    ]
    assert response.usage.input_tokens == prompt_of(served, turns)
    assert response.usage.output_tokens == len("Blue.") + 1
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens


def test_the_response_repeats_what_was_asked(served: Served) -> None:
    served.script(b"ok")
    response = ask(
        served,
        metadata={"team": "a"},
        temperature=0.5,
        top_p=0.9,
        max_output_tokens=7,
        prompt_cache_key="k",
        reasoning={"effort": "low"},
        tools=[WEATHER],
        store=False,
    )
    assert response.metadata == {"team": "a"}
    assert (response.temperature, response.top_p, response.max_output_tokens) == (0.5, 0.9, 7)
    assert (response.prompt_cache_key, response.reasoning.effort) == ("k", "low")
    assert (response.tools[0].name, response.tool_choice) == ("weather", "auto")
    assert (response.text.format.type, response.truncation) == ("text", "disabled")
    assert response.parallel_tool_calls is True


def test_a_string_and_a_message_of_one_part_are_the_same_prompt(served: Served) -> None:
    served.script(b"ok")
    ask(served, "a b c d")
    for item in ({"role": "user", "content": "a b c d"}, {"role": "user", "content": part("a b c d")}):
        usage = ask(served, [item]).usage
        assert usage.input_tokens_details.cached_tokens == usage.input_tokens - 1
        assert usage.input_tokens_details.cache_write_tokens == 0


def test_a_stream_has_every_event_in_order(served: Served) -> None:
    served.script(b"Blue")
    found = events(served, input="Colour?")
    assert [event["type"].removeprefix("response.") for event in found] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        *["output_text.delta"] * 4,
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    responses = [event["response"] for event in found if "response" in event]
    assert len({response["id"] for response in responses}) == 1
    assert [response["usage"] is not None for response in responses] == [False, False, True]
    assert len({event["item_id"] for event in found if "item_id" in event}) == 1
    assert "".join(event["delta"] for event in found if "delta" in event) == "Blue"


@pytest.mark.parametrize(
    "script", [b"Blue and wide.", CALLS.encode(), CALLS.partition("\n")[2].encode(), b""]
)
def test_the_sdk_collects_a_stream_to_what_the_whole_answer_is(served: Served, script: bytes) -> None:
    served.script(script)
    ask(served, tools=[WEATHER])  # So that both find the same in the cache.
    whole, streamed = ask(served, tools=[WEATHER]), final(served, tools=[WEATHER])
    assert streamed.usage == whole.usage
    assert whole.usage.input_tokens_details.cached_tokens > 0
    assert [said(item) for item in streamed.output] == [said(item) for item in whole.output]
    assert streamed.output_text == whole.output_text


def test_calls_are_items_of_their_own(served: Served) -> None:
    served.script(CALLS.encode())
    response = ask(served, tools=[WEATHER])
    assert [said(item) for item in response.output] == [
        ("message", "Let me look.", "completed"),
        ("function_call", "weather", {"city": "Oslo"}, "completed"),
        ("function_call", "weather", {"city": "Malmö"}, "completed"),
    ]
    assert len({item.id for item in response.output}) == 3
    assert len({item.call_id for item in response.output[1:]}) == 2


def test_a_streamed_call_is_told_part_by_part(served: Served) -> None:
    served.script(CALL.encode())
    found = events(served, input="?", tools=[WEATHER])
    kinds = [event["type"].removeprefix("response.") for event in found]
    assert list(dict.fromkeys(kinds)) == [
        "created",
        "in_progress",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    added, done = (found[kinds.index(f"output_item.{name}")]["item"] for name in ("added", "done"))
    assert (added["arguments"], added["status"]) == ("", "in_progress")
    assert {**added, "arguments": done["arguments"], "status": "completed"} == done
    deltas = "".join(event["delta"] for event in found if event["type"].endswith("arguments.delta"))
    assert json.loads(deltas) == {"city": "Oslo"}
    assert found[kinds.index("function_call_arguments.done")]["arguments"] == deltas == done["arguments"]


def test_without_leave_for_several_only_the_first_call_is_given(served: Served) -> None:
    served.script(CALLS.encode())
    output = ask(served, tools=[WEATHER], parallel_tool_calls=False).output
    assert [item.type for item in output] == ["message", "function_call"]


def test_calls_and_their_results_come_back_as_in_a_chat(served: Served) -> None:
    served.script(CALLS.encode())
    first = ask(served, "Weather?", tools=[WEATHER])
    calls = [item for item in first.output if item.type == "function_call"]
    results: list[Any] = [
        {"type": "function_call_output", "call_id": calls[0].call_id, "output": "-3"},
        {"type": "function_call_output", "call_id": calls[1].call_id, "output": part("4")},
    ]
    own: list[Any] = [{"role": "user", "content": "Weather?"}, *first.output, *results]
    counted = served.openai.responses.input_tokens.count(model="toy", input=own, tools=tools_of(WEATHER))
    function = {name: value for name, value in WEATHER.items() if name != "type"}
    turns = [
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": "Let me look.",
            "tool_calls": [
                {
                    "id": call.call_id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in calls
            ],
        },
        {"role": "tool", "tool_call_id": calls[0].call_id, "content": "-3"},
        {"role": "tool", "tool_call_id": calls[1].call_id, "content": "4"},
    ]
    tools = [{"type": "function", "function": function}]
    assert counted.input_tokens == prompt_of(served, turns, tools=tools)


class Pet(pydantic.BaseModel):
    name: str
    legs: int


def test_a_form_of_the_answer_is_obeyed_and_parsed(served: Served) -> None:
    served.script(b'{"name":"Rex","legs":4}')
    pet = served.openai.responses.parse(model="toy", input="A pet?", text_format=Pet).output_parsed
    assert pet == Pet(name="Rex", legs=4)
    assert final(served, text_format=Pet).output_parsed == pet


def test_a_schema_keeps_the_model_from_writing_what_it_would(served: Served) -> None:
    form = {
        "type": "json_schema",
        "name": "yes",
        "schema": {
            "type": "object",
            "properties": {"a": {"const": 1}},
            "required": ["a"],
            "additionalProperties": False,
        },
        "strict": True,
    }
    text = ask(served, text={"format": form}, max_output_tokens=100).output_text
    assert json.loads(text) == {"a": 1}


def test_a_forced_call_is_made(served: Served) -> None:
    output = ask(
        served, tools=[WEATHER], tool_choice="required", max_output_tokens=400, parallel_tool_calls=False
    )
    assert all(item.type != "function_call" or item.name == "weather" for item in output.output)


def test_an_answer_cut_by_its_limit_is_incomplete(served: Served) -> None:
    served.script(b"Blue and wide.")
    response = ask(served, max_output_tokens=4)
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert (response.output_text, response.output[0].status) == ("Blue", "incomplete")
    last = events(served, input="?", max_output_tokens=4)[-1]
    assert last["type"] == "response.incomplete"
    assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert last["response"]["usage"]["output_tokens"] == 4


def test_logprobs_are_given_for_the_text_alone(served: Served) -> None:
    served.script("Blå".encode())
    options: dict[str, Any] = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    whole = ask(served, **options).output[0].content[0].logprobs
    assert bytes(byte for entry in whole for byte in entry.bytes).decode() == "Blå"
    assert {len(entry.top_logprobs) for entry in whole} == {2}
    found = events(served, input="Colour of the sky?", **options)
    deltas = [
        each for event in found for each in event.get("logprobs", ()) if event["type"].endswith("delta")
    ]
    assert [each["logprob"] for each in deltas] == [entry.logprob for entry in whole]
    assert ask(served).output[0].content[0].logprobs == []


CODEX: dict[str, Any] = {
    "model": "toy",
    "instructions": "You are a coding agent.",
    "input": [
        {"type": "message", "role": "developer", "content": part("<permissions>none</permissions>")},
        {"type": "message", "role": "user", "content": part("<environment>/tmp</environment>")},
        {"type": "message", "role": "user", "content": part("List the files.")},
    ],
    "tools": [
        {"type": "local_shell"},
        {
            "type": "custom",
            "name": "patch",
            "format": {"type": "grammar", "syntax": "lark", "definition": "x"},
        },
        {"type": "web_search", "external_web_access": False},
        WEATHER,
    ],
    "tool_choice": "auto",
    "parallel_tool_calls": False,
    "reasoning": {"effort": "medium", "summary": "auto"},
    "store": False,
    "stream": True,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "0199-conversation",
    "text": {"verbosity": "medium"},
    "client_metadata": {"version": "1"},
}


def test_a_coding_agents_turns_are_served_and_reused(served: Served) -> None:
    served.script(CALLS.partition("\n")[2].encode())
    first = events(served, **CODEX)
    assert first[-1]["type"] == "response.completed"
    assert first[-1]["response"]["id"]
    done = [event["item"] for event in first if event["type"] == "response.output_item.done"]
    assert [item["type"] for item in done] == ["function_call"]
    result = {"type": "function_call_output", "call_id": done[0]["call_id"], "output": "a.txt"}
    served.script(b"One file.")
    second = events(served, **{**CODEX, "input": [*CODEX["input"], *done, result]})
    before, after = (each[-1]["response"]["usage"] for each in (first, second))
    assert after["input_tokens_details"]["cached_tokens"] >= before["input_tokens"]


def test_tools_that_only_a_provider_runs_are_left_out_and_named(served: Served) -> None:
    served.script(b"ok")
    answer = served.http.post("/v1/responses", json={**CODEX, "stream": False})
    assert answer.headers["x-sapwood-ignored"] == "tools.local_shell,tools.custom,tools.web_search"
    assert [tool["type"] for tool in answer.json()["tools"]] == ["function"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "input"),
        ({"input": []}, "input"),
        ({"input": 5}, "input"),
        ({"input": [5]}, "input[0]"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": []}]}, "input[0].content"),
        ({"input": [{"role": "king", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": ["user"], "content": "x"}]}, "input[0].role"),
        (
            {"input": [{"type": "message", "role": "user", "content": [{"type": "input_image"}]}]},
            "input[0].content[0].type",
        ),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
        ({"input": [{"type": {}}]}, "input[0].type"),
        (
            {"input": [{"type": "function_call", "call_id": "x", "name": "f", "arguments": {}}]},
            "input[0].arguments",
        ),
        ({"input": [{"type": "function_call_output", "call_id": "x", "output": None}]}, "input[0].output"),
        ({"input": [{"type": "reasoning", "content": "x"}]}, "input[0].content"),
        ({"input": "x\0y"}, "input"),
        ({"input": [{"role": "user", "content": "x\0y"}]}, "input[0].content"),
        ({"input": "x", "tools": [{"type": "function"}]}, "tools[0].name"),
        (
            {"input": "x", "tools": [{"type": "web_search"}, {"type": "function", "name": "a b"}]},
            "tools[1].name",
        ),
        (
            {"input": "x", "tools": [WEATHER], "tool_choice": {"type": "function", "name": "g"}},
            "tool_choice.name",
        ),
        ({"input": "x", "tools": [WEATHER], "tool_choice": {"type": "web_search"}}, "tool_choice"),
        ({"input": "x", "text": {"format": {"type": "yaml"}}}, "text.format.type"),
        ({"input": "x", "text": {"format": {"type": "json_schema", "name": "a b"}}}, "text.format.name"),
        ({"input": "x", "max_output_tokens": 0}, "max_output_tokens"),
        ({"input": "x", "max_output_tokens": 10**30}, "max_output_tokens"),
        ({"input": "x", "top_logprobs": 21}, "top_logprobs"),
        ({"input": "x", "background": True}, "background"),
        ({"input": "x", "conversation": "conv_1"}, "conversation"),
        ({"input": "x", "metadata": {"k": "v" * 513}}, "metadata.k"),
        ({"input": "x", "metadata": {f"{i}": "" for i in range(17)}}, "metadata"),
        ({"input": "x", "truncation": "some"}, "truncation"),
        ({"input": "x", "previous_response_id": "resp-1"}, "previous_response_id"),
        ({"input": "x" * 5000}, "input"),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(served: Served, body: dict[str, Any], param: str) -> None:
    assert refusal(served, **body)["param"] == param


def test_a_variable_that_the_template_does_not_read_is_named(served: Served) -> None:
    body = {"model": "toy", "input": "a", "chat_template_kwargs": {"shout": False, "whisper": True}}
    for stream in (False, True):
        answer = served.http.post("/v1/responses", json={**body, "stream": stream})
        assert answer.headers["x-sapwood-ignored"] == "chat_template_kwargs.whisper"


def test_a_deeply_nested_body_is_refused(served: Served) -> None:
    deep = '{"a":' * 900 + "1" + "}" * 900
    for field in ("text", "reasoning", "tool_choice", "metadata", "input", "tools"):
        answer = served.http.post("/v1/responses", content=f'{{"model":"toy","input":"x","{field}":{deep}}}')
        assert answer.status_code == 400, (field, answer.text)


def test_another_model_is_not_found(served: Served) -> None:
    with pytest.raises(openai.NotFoundError):
        ask(served, model="other")


def test_a_prompt_that_is_too_long_says_so_by_its_code(served: Served) -> None:
    assert refusal(served, input="x" * 5000)["code"] == "context_length_exceeded"


def test_an_answer_that_asks_for_too_much_ends_where_the_context_does(served: Served) -> None:
    served.script(b"ok")
    assert ask(served, max_output_tokens=1_000_000).output_text == "ok"
