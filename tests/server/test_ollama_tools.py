"""Tools, forms and log probabilities through Ollama's own Python client; the model says what the test wants."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any

import ollama
import pytest
from pydantic import BaseModel, ConfigDict, Field

from server.conftest import Served
from server.test_tools import CALLS, prompt_of

ASK = [{"role": "user", "content": "Is it cold?"}]


def weather(city: str) -> str:
    """
    The weather of a city.

    Args:
      city: its name

    Returns:
      str: some words
    """
    return city


class Pet(BaseModel):
    model_config = ConfigDict(extra="forbid")

    legs: Annotated[int, Field(ge=0, le=8)]
    tame: bool


@pytest.fixture
def client(served: Served) -> Iterator[ollama.Client]:
    with ollama.Client(host=served.url, timeout=30) as client:
        yield client


def calls_of(message: ollama.Message) -> list[tuple[str, dict[str, Any]]]:
    return [(call.function.name, dict(call.function.arguments)) for call in message.tool_calls or ()]


BOTH = [("weather", {"city": "Oslo"}), ("weather", {"city": "Malmö"})]


def test_a_python_function_is_called(served: Served, client: ollama.Client) -> None:
    served.script(CALLS.encode())
    answer = client.chat("toy", messages=ASK, tools=[weather])
    assert answer.message.content == "Let me look."
    assert calls_of(answer.message) == BOTH
    assert answer.done_reason == "stop"


def test_a_stream_has_each_call_whole_and_the_last_line_none(served: Served, client: ollama.Client) -> None:
    served.script(CALLS.encode())
    lines = list(client.chat("toy", messages=ASK, tools=[weather], stream=True))
    assert "".join(line.message.content or "" for line in lines) == "Let me look."
    assert [call for line in lines for call in calls_of(line.message)] == BOTH
    assert lines[-1].done
    assert lines[-1].message.tool_calls is None
    assert not any(line.done for line in lines[:-1])


def test_half_of_a_surrogate_pair_in_a_call_breaks_nothing(served: Served, client: ollama.Client) -> None:
    served.script(b'<tool_call>{"name": "weather", "arguments": {"city": "a\\ud83d"}}</tool_call>')
    answer = client.chat("toy", messages=ASK, tools=[weather])
    assert [name for name, _ in calls_of(answer.message)] == ["weather"]
    assert len(list(client.chat("toy", messages=ASK, tools=[weather], stream=True))) > 1


def test_without_tools_a_call_is_text(served: Served, client: ollama.Client) -> None:
    served.script(CALLS.encode())
    answer = client.chat("toy", messages=ASK)
    assert answer.message.content == CALLS
    assert answer.message.tool_calls is None


def test_calls_and_results_that_come_back_make_the_prompt_that_openais_route_makes(
    served: Served, client: ollama.Client
) -> None:
    served.script(CALLS.encode())
    first = client.chat("toy", messages=ASK, tools=[weather])
    results = [{"role": "tool", "content": city, "tool_name": "weather"} for city in ("-3", "2")]
    second = client.chat("toy", messages=[*ASK, first.message, *results], tools=[weather])
    calls = [
        {"id": f"c{i}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for i, (name, arguments) in enumerate(BOTH)
    ]
    theirs = [
        *ASK,
        {"role": "assistant", "content": "Let me look.", "tool_calls": calls},
        *({"role": "tool", "content": each["content"], "tool_call_id": "c"} for each in results),
    ]
    tool = ollama._utils.convert_function_to_tool(weather).model_dump(exclude_none=True)
    prompt = prompt_of(served, messages=theirs, tools=[tool])
    assert second.prompt_eval_count == len(
        served.http.post("/tokenize", json={"prompt": prompt}).json()["tokens"]
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_is_of_the_schema(client: ollama.Client, seed: int, stream: bool) -> None:
    options = {"seed": seed, "num_predict": 400}
    schema = Pet.model_json_schema()
    if stream:
        chat = client.chat("toy", messages=ASK, format=schema, options=options, stream=True)
        text = "".join(line.message.content or "" for line in chat)
    else:
        text = client.generate("toy", "x", format=schema, options=options).response or ""
    Pet.model_validate_json(text)


def test_json_is_any_object(client: ollama.Client) -> None:
    options = {"seed": 1, "num_predict": 3000}
    answer = client.chat("toy", messages=ASK, format="json", options=options)
    assert answer.done_reason == "stop"
    assert isinstance(json.loads(answer.message.content or ""), dict)


def test_with_a_form_and_tools_the_answer_is_one_or_the_other(client: ollama.Client) -> None:
    options = {"seed": 5, "num_predict": 2000}
    answer = client.chat(
        "toy", messages=ASK, format=Pet.model_json_schema(), tools=[weather], options=options
    )
    if answer.message.tool_calls:
        assert {name for name, _ in calls_of(answer.message)} == {"weather"}
    else:
        Pet.model_validate_json(answer.message.content or "")


def test_probabilities_are_told_of_each_token(client: ollama.Client) -> None:
    options = {"temperature": 0, "num_predict": 5}
    asked: Any = {"messages": ASK, "options": options, "logprobs": True, "top_logprobs": 2}
    whole = client.chat("toy", **asked)
    assert whole.logprobs is not None
    assert len(whole.logprobs) == whole.eval_count
    for entry in whole.logprobs:
        assert entry.top_logprobs is not None
        assert entry.top_logprobs[0].logprob == entry.logprob
    streamed = [entry for line in client.chat("toy", stream=True, **asked) for entry in line.logprobs or ()]
    assert streamed == whole.logprobs
    assert client.chat("toy", messages=ASK, options=options).logprobs is None
