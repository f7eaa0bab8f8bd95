"""Answers within a grammar, through the official SDK. The fake model draws at random from what is allowed."""

from __future__ import annotations

import json
import re
from typing import Any

import openai
import pytest

from server.conftest import Served
from server.test_served import serving_default_model
from server.test_tools import ASK, WEATHER

PET = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "legs": {"type": "integer", "minimum": 0, "maximum": 8},
    },
    "required": ["name", "legs"],
    "additionalProperties": False,
}
PET_FORMAT: Any = {"type": "json_schema", "json_schema": {"name": "pet", "schema": PET, "strict": True}}


def chat(served: Served, **options: Any) -> Any:
    return served.openai.chat.completions.create(
        **{"model": "toy", "messages": ASK, "max_tokens": 600, "seed": 4, **options}
    )


def check_pet(text: str) -> None:
    pet = json.loads(text)
    assert pet.keys() == {"name", "legs"}
    assert isinstance(pet["name"], str)
    assert len(pet["name"]) <= 6
    assert type(pet["legs"]) is int
    assert 0 <= pet["legs"] <= 8


@pytest.mark.parametrize("seed", range(3))
def test_every_sample_is_of_the_schema_and_ends_by_itself(served: Served, seed: int) -> None:
    choices = chat(served, response_format=PET_FORMAT, n=3, seed=seed).choices
    assert len({choice.message.content for choice in choices}) > 1
    for choice in choices:
        assert choice.finish_reason == "stop"
        check_pet(choice.message.content)


def test_a_cold_and_a_warm_answer_are_the_same_and_both_obey(served: Served) -> None:
    cold = chat(served, response_format=PET_FORMAT)
    warm = chat(served, response_format=PET_FORMAT)
    assert cold.usage.prompt_tokens_details.cached_tokens == 0
    assert warm.usage.prompt_tokens_details.cached_tokens == warm.usage.prompt_tokens - 1
    assert warm.choices[0].message.content == cold.choices[0].message.content
    check_pet(warm.choices[0].message.content)


def test_the_first_token_after_a_hit_of_a_free_answer_obeys(served: Served) -> None:
    """Nothing of how an answer is drawn is part of what is cached."""
    free = chat(served, max_tokens=8)
    held = chat(served, response_format=PET_FORMAT)
    again = chat(served, max_tokens=8)
    assert held.usage.prompt_tokens_details.cached_tokens > 0
    check_pet(held.choices[0].message.content)
    assert again.choices[0].message.content == free.choices[0].message.content


def test_a_stream_is_of_the_schema_too(served: Served) -> None:
    chunks = list(chat(served, response_format=PET_FORMAT, stream=True))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == chat(served, response_format=PET_FORMAT).choices[0].message.content
    check_pet(text)


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ({"structured_outputs": {"regex": "[ab]{3}-[0-9]+x"}}, "[ab]{3}-[0-9]+x"),
        ({"guided_choice": ["yes", "no"]}, "yes|no"),
        ({"guided_grammar": 'start: "a" ("b" | "c"){2}'}, "a[bc]{2}"),
        ({"guided_json": {"enum": [1, 22]}}, "1|22"),
    ],
)
def test_other_servers_names_are_obeyed(served: Served, options: dict[str, Any], shape: str) -> None:
    text = chat(served, extra_body=options).choices[0].message.content
    assert re.fullmatch(shape, text)


def test_completions_obey_too(served: Served) -> None:
    answer = served.openai.completions.create(
        model="toy", prompt="Pet:", max_tokens=600, seed=1, extra_body={"response_format": PET_FORMAT}
    )
    check_pet(answer.choices[0].text)


@pytest.mark.parametrize("options", [{"min_tokens": 200}, {"ignore_eos": True}])
def test_a_complete_answer_ends_whatever_else_is_asked(served: Served, options: dict[str, Any]) -> None:
    choice = chat(served, response_format=PET_FORMAT, extra_body=options).choices[0]
    assert choice.finish_reason == "stop"
    check_pet(choice.message.content)


def test_penalties_biases_and_cuts_choose_only_from_what_is_allowed(served: Served) -> None:
    choice = chat(
        served,
        response_format=PET_FORMAT,
        frequency_penalty=1.5,
        logit_bias={str(ord("z")): 100},
        top_p=0.1,
        temperature=0.5,
    ).choices[0]
    check_pet(choice.message.content)


@pytest.mark.parametrize("stream", [True, False])
def test_an_unusable_schema_is_refused_with_its_path(served: Served, stream: bool) -> None:
    bad: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "objekt"}}}
    with pytest.raises(openai.BadRequestError, match="objekt") as caught:
        chat(served, response_format=bad, stream=stream)
    assert caught.value.param == "response_format.json_schema.schema"


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
def test_a_forced_call_is_made(served: Served, choice: Any) -> None:
    tool = {**WEATHER, "function": {**WEATHER["function"], "parameters": PET}}
    answer = chat(served, tools=[tool], tool_choice=choice, max_tokens=3000).choices[0]
    assert answer.finish_reason == "tool_calls"
    assert answer.message.content is None
    assert {call.function.name for call in answer.message.tool_calls} == {"weather"}
    for call in answer.message.tool_calls:
        check_pet(call.function.arguments)


def test_the_default_model_answers_in_the_schema_cold_and_warm_and_calls_tools() -> None:
    with (
        serving_default_model("--kv-memory", "64MiB") as (_, url),
        openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=120) as client,
    ):
        model = client.models.list().data[0].id
        ask: Any = [{"role": "user", "content": "Make up a pet. Answer in JSON with name and legs."}]
        answers = [
            client.chat.completions.create(
                model=model, messages=ask, response_format=PET_FORMAT, max_tokens=80, seed=2
            )
            for _ in range(2)
        ]
        for answer in answers:
            check_pet(answer.choices[0].message.content or "")
        assert answers[0].choices[0].message.content == answers[1].choices[0].message.content
        details = answers[1].usage.prompt_tokens_details if answers[1].usage else None
        assert details is not None
        assert details.cached_tokens
        called = client.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": "What is the weather in Oslo?"}],
            tools=[WEATHER],
            tool_choice="required",
            parallel_tool_calls=False,
            max_tokens=120,
            temperature=0,
        ).choices[0]
        assert called.finish_reason == "tool_calls"
        assert called.message.tool_calls is not None
        (call,) = called.message.tool_calls
        assert call.type == "function"
        assert json.loads(call.function.arguments).keys() == {"city"}
