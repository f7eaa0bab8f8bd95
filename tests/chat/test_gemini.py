"""Gemini-shaped bodies → calls in the engine's own words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sapwood.chat.gemini import GenerateCall, parse_count, parse_generate
from sapwood.chat.gemini_cached import Lifetime, parse_create, parse_update
from sapwood.errors import RequestError
from sapwood.types import SamplingDefaults

HI: Any = [{"role": "user", "parts": [{"text": "hi"}]}]


def parsed(config: Any = None, **fields: Any) -> GenerateCall:
    body = {"contents": HI, "generationConfig": config, **fields}
    return parse_generate(body, vocab_size=100, defaults=SamplingDefaults(temperature=0.5))


def refusal(config: Any = None, **fields: Any) -> str:
    with pytest.raises(RequestError) as caught:
        parsed(config, **fields)
    assert caught.value.param
    return caught.value.message


def test_what_is_left_out_takes_the_models_own() -> None:
    call = parsed()
    assert call.params.temperature == 0.5
    assert call.params.max_tokens is None
    assert (call.params.n, call.params.seed, call.params.logprobs, call.params.constraint) == (
        1,
        None,
        None,
        None,
    )
    assert (call.logprobs, call.thoughts, call.ignored) == (False, False, ())
    assert call.prompt.conversation.add_generation_prompt


def test_every_setting_is_taken_in_either_spelling() -> None:
    camel = {
        "temperature": 1,
        "topP": 0.5,
        "topK": 1000.0,
        "candidateCount": 2,
        "maxOutputTokens": 7,
        "stopSequences": ["a", "b"],
        "seed": -1,
        "presencePenalty": 1,
        "frequencyPenalty": -1.5,
        "responseLogprobs": True,
        "logprobs": 3,
        "thinkingConfig": {"includeThoughts": True, "thinkingBudget": -1},
    }
    snake = {
        "temperature": 1,
        "top_p": 0.5,
        "top_k": 1000,
        "candidate_count": 2,
        "max_output_tokens": 7,
        "stop_sequences": ["a", "b"],
        "seed": -1,
        "presence_penalty": 1,
        "frequency_penalty": -1.5,
        "response_logprobs": True,
        "logprobs": 3,
        "thinking_config": {"include_thoughts": True, "thinking_budget": -1},
    }
    call = parsed(camel)
    assert call == parse_generate(
        {"contents": HI, "generation_config": snake}, vocab_size=100, defaults=SamplingDefaults()
    )
    params = call.params
    assert (params.temperature, params.top_p, params.top_k, params.n) == (1, 0.5, 100, 2)
    assert (params.max_tokens, params.stop, params.seed) == (7, ("a", "b"), 2**64 - 1)
    assert (params.presence_penalty, params.frequency_penalty, params.logprobs) == (1, -1.5, 3)
    assert call.thoughts


def test_logprobs_without_alternatives_are_the_chosen_ones_alone() -> None:
    assert parsed({"responseLogprobs": True}).params.logprobs == 0
    assert "needs 'responseLogprobs'" in refusal({"logprobs": 1, "responseLogprobs": False})


@pytest.mark.parametrize(
    ("config", "kind", "text"),
    [
        (
            {"responseMimeType": "application/json", "responseSchema": {"type": "INTEGER", "nullable": True}},
            "json_schema",
            {"type": ["integer", "null"]},
        ),
        (
            {"responseMimeType": "application/json", "responseJsonSchema": {"type": "integer", "a_b": 1}},
            "json_schema",
            {"type": "integer", "a_b": 1},
        ),
        ({"responseMimeType": "application/json"}, "json_schema", {"type": ["object", "array"]}),
        (
            {"responseMimeType": "text/x.enum", "responseSchema": {"type": "STRING", "enum": ["a", 'b"']}},
            "grammar",
            'start: "a" | "b\\""',
        ),
    ],
)
def test_the_form_of_an_answer(config: Any, kind: str, text: Any) -> None:
    constraint = parsed(config).params.constraint
    assert constraint is not None
    assert constraint.kind == kind
    if isinstance(text, dict):
        assert json.loads(constraint.text) == {**text, "x-guidance": {"lenient": True}}
    else:
        assert constraint.text == text


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"responseMimeType": "application/json", "responseSchema": 7}, "responseSchema"),
        ({"responseMimeType": "application/json", "responseSchema": {"type": 7}}, "responseSchema.type"),
        ({"responseMimeType": "application/json", "responseJsonSchema": 7}, "responseJsonSchema"),
        ({"responseMimeType": "text/x.enum"}, "responseSchema"),
        ({"responseMimeType": "text/x.enum", "responseSchema": {"enum": [1]}}, "responseSchema.enum"),
        ({"responseMimeType": "text/plain", "responseJsonSchema": {}}, "with a schema it must be"),
        (
            {"responseMimeType": "application/json", "responseSchema": {}, "responseJsonSchema": {}},
            "exclude each other",
        ),
    ],
)
def test_a_form_that_is_none_is_refused(config: Any, said: str) -> None:
    assert said in refusal(config)


def test_what_would_change_the_answer_is_refused_and_the_rest_is_listed() -> None:
    assert "not supported" in refusal({"speechConfig": {"a": 1}})
    assert "responseModalities" in refusal({"response_modalities": ["IMAGE"]})
    call = parsed(
        {"response_modalities": ["TEXT"], "mediaResolution": "LOW", "other": 1}, labels={}, store=True, x=1
    )
    assert call.ignored == ("generationConfig.other", "x")
    call = parsed({"thinkingConfig": {"thinking_level": "HIGH", "thinkingBudget": 8}})
    assert call.ignored == ("generationConfig.thinkingConfig.thinkingLevel",)


def test_an_open_call_cannot_be_gone_on_with() -> None:
    contents = [*HI, {"role": "model", "parts": [{"functionCall": {"name": "f"}}]}]
    with pytest.raises(RequestError, match="functionResponse must follow"):
        _ = parsed(contents=contents).prompt.conversation


def test_the_name_of_an_object_is_its_id() -> None:
    assert parsed(cachedContent="cachedContents/a1").prompt.cached == "a1"
    assert parsed(cached_content="a1", tools=[]).prompt.cached == "a1"
    assert "'toolConfig' cannot" in refusal(cachedContent="a1", tool_config={"functionCallingConfig": {}})


def test_a_count_takes_contents_or_a_whole_request() -> None:
    request = {"contents": HI, "system_instruction": {"parts": [{"text": "Be brief."}]}}
    assert parse_count({"contents": HI}, vocab_size=100).prompt.system == ()
    assert (
        parse_count({"generateContentRequest": request}, vocab_size=100).prompt.system[0].text == "Be brief."
    )
    with pytest.raises(RequestError, match="exclude each other"):
        parse_count({"contents": HI, "generate_content_request": request}, vocab_size=100)
    with pytest.raises(RequestError, match="'contents' is empty"):
        parse_count({"generateContentRequest": {}}, vocab_size=100)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("1970-01-01T00:01:00Z", 60.0),
        ("1970-01-01T01:01:00+01:00", 60.0),
        ("1970-01-01T00:00:00.123456789Z", 0.123456),
    ],
)
def test_a_moment_is_read_in_its_zone(text: str, moment: float) -> None:
    assert parse_update({"expireTime": text}) == Lifetime(moment=moment)


@pytest.mark.parametrize(("text", "seconds"), [("300s", 300.0), ("3.5s", 3.5), ("0.000001s", 1e-6)])
def test_a_ttl_is_seconds_with_decimals(text: str, seconds: float) -> None:
    assert parse_update({"ttl": text}) == Lifetime(seconds=seconds)


def test_an_object_may_be_made_of_any_of_its_three() -> None:
    system = {"parts": [{"text": "Be brief."}]}
    tools = [{"functionDeclarations": [{"name": "f"}]}]
    for given in ({"contents": HI}, {"systemInstruction": system}, {"tools": tools}):
        call = parse_create({"model": "models/a/b:c", **given})
        assert (call.model, call.display_name, call.lifetime) == ("a/b:c", "", None)
    both = parse_create(
        {"model": "toy", "contents": HI, "tool_config": None, "ttl": "5s", "displayName": "d"}
    )
    assert (both.display_name, both.lifetime) == ("d", Lifetime(seconds=5.0))
