"""Functions in the Gemini dialect end to end: the official SDK against a served fake model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from google import genai
from google.genai import types

from server.conftest import Served
from server.test_gemini import ask, post, talking

CALL = b'<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
WEATHER: Any = {
    "function_declarations": [
        {
            "name": "weather",
            "description": "Tells the weather.",
            "parameters": {
                "type": "OBJECT",
                "properties": {"city": {"type": "STRING"}},
                "required": ["city"],
            },
        }
    ]
}


@pytest.fixture
def client(served: Served) -> Iterator[genai.Client]:
    with talking(served) as client:
        yield client


def test_a_function_is_called_and_its_result_is_read(served: Served, client: genai.Client) -> None:
    served.script(b"I look. " + CALL)
    first = ask(client, "Weather?", tools=[WEATHER], max_output_tokens=200)
    assert first.candidates is not None
    assert first.candidates[0].finish_reason is types.FinishReason.STOP
    assert first.function_calls is not None
    (call,) = first.function_calls
    assert (call.name, call.args) == ("weather", {"city": "Oslo"})
    assert call.id
    turn = first.candidates[0].content
    assert turn is not None
    assert turn.parts is not None
    assert turn.parts[0].text == "I look."
    result = types.Part.from_function_response(name="weather", response={"result": "rain"})
    contents: Any = ["Weather?", turn, types.Content(role="user", parts=[result])]
    served.script(b"Rain.")
    assert ask(client, contents, tools=[WEATHER]).text == "Rain."
    shown = 'user\n<tool_response>\n{"result": "rain"}\n</tool_response>'
    sent = {
        "contents": [
            json.loads(types.Content.model_validate(each).model_dump_json(exclude_none=True))
            for each in (types.UserContent("Weather?"), turn, types.Content(role="user", parts=[result]))
        ],
        "tools": [WEATHER],
    }
    with_result = post(served, "countTokens", {"generateContentRequest": sent})["totalTokens"]
    sent["contents"] = sent["contents"][:2]
    sent["contents"].append({"role": "user", "parts": [{"text": "x"}]})
    without = post(served, "countTokens", {"generateContentRequest": sent})["totalTokens"]
    assert with_result - without == len(shown) - len("user\nx")


def test_a_call_streams_whole(served: Served, client: genai.Client) -> None:
    served.script(CALL)
    config: Any = {"tools": [WEATHER]}
    parts = list(client.models.generate_content_stream(model="toy", contents="Weather?", config=config))
    calls = [call for part in parts for call in part.function_calls or []]
    assert [(call.name, call.args) for call in calls] == [("weather", {"city": "Oslo"})]
    assert "".join(part.text or "" for part in parts) == ""


def test_functions_of_python_are_called_by_the_sdk_itself(served: Served, client: genai.Client) -> None:
    asked: list[str] = []

    def weather(city: str) -> str:
        """Tells the weather."""
        asked.append(city)
        served.script(b"Rain.")
        return "rain"

    served.script(CALL)
    assert ask(client, "Weather?", tools=[weather]).text == "Rain."
    assert asked == ["Oslo"]


def test_any_forces_a_call_of_one_that_is_allowed(client: genai.Client) -> None:
    tools: Any = [{"function_declarations": [*WEATHER["function_declarations"], {"name": "other"}]}]
    config: Any = {"function_calling_config": {"mode": "ANY", "allowed_function_names": ["other"]}}
    answer = ask(client, "Weather?", tools=tools, tool_config=config, max_output_tokens=400, temperature=0)
    assert answer.candidates is not None
    if answer.candidates[0].finish_reason is types.FinishReason.STOP:
        assert answer.function_calls
        assert {call.name for call in answer.function_calls} == {"other"}


def test_none_lets_no_call_be_found(served: Served, client: genai.Client) -> None:
    served.script(CALL)
    config: Any = {"function_calling_config": {"mode": "NONE"}}
    answer = ask(client, "Weather?", tools=[WEATHER], tool_config=config)
    assert answer.function_calls is None
    assert answer.text == CALL.decode()
