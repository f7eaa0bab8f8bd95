"""OpenAI's SDK, this release and an older one, unmodified: caching by both of its rules, streams, tools, errors."""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any

import pytest

from clients.conftest import Environment, Theatre, Told

VERSIONS: dict[Environment, str] = {"new": "3.57.0", "old": "2.8.1"}
CALLED = [["weather", '{"city": "Oslo"}'], ["weather", '{"city": "Malmö"}']]


@pytest.fixture(scope="module", params=list(VERSIONS))
def told(theatre: Theatre, request: pytest.FixtureRequest) -> Told:
    played = theatre.play("openai_calls", request.param)
    assert played.version == VERSIONS[request.param]
    return played


def read(usage: Any) -> int:
    """Cached tokens of a chat's or a response's usage, once it is seen that the sums are right."""
    prompt, details = usage.get("prompt_tokens"), usage.get("prompt_tokens_details")
    if prompt is None:
        prompt, details = usage["input_tokens"], usage["input_tokens_details"]
        assert prompt + usage["output_tokens"] == usage["total_tokens"]
    else:
        assert usage["prompt_cache_hit_tokens"] + usage["prompt_cache_miss_tokens"] == prompt
        assert usage["prompt_cache_hit_tokens"] == details["cached_tokens"]
        assert prompt + usage["completion_tokens"] == usage["total_tokens"]
    assert 0 <= details["cached_tokens"] + details["cache_write_tokens"] < prompt
    assert isinstance(details["cached_tokens"], int)
    return details["cached_tokens"]


@pytest.mark.parametrize("scene", ["repeated_chats", "repeated_responses"])
def test_a_repeated_prompt_reads_whole_steps_of_its_own_tenant_and_key(told: Told, scene: str) -> None:
    usages = told[scene]
    assert (usages["first"].get("prompt_tokens") or usages["first"]["input_tokens"]) == 1500
    assert read(usages.pop("first")) == 0
    assert read(usages.pop("second")) == 1408
    assert [read(each) for each in usages.pop("short")] == [0, 0]
    assert {name: read(each) for name, each in usages.items()} == dict.fromkeys(usages, 0)
    assert usages


def test_a_streamed_chat_tells_the_same_usage_in_one_last_chunk(told: Told) -> None:
    scene = told["streamed_chat"]
    *before, last = scene["usages"]
    assert last == scene["whole"]
    assert read(last) == 1408
    assert set(before) == {None}
    assert scene["text"] == "ok"


def test_a_streamed_response_tells_the_same_usage_in_its_last_event(told: Told) -> None:
    scene = told["streamed_response"]
    assert scene["last"] == scene["whole"]
    assert read(scene["last"]) == 1408
    assert scene["text"] == "ok"
    assert in_turn(scene["kinds"]) == [
        "response.created",
        "response.in_progress",
        *ITEM_OF_TEXT,
        "response.completed",
    ]


ITEM_OF_TEXT = [
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
]
ITEM_OF_A_CALL = [
    "response.output_item.added",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "response.output_item.done",
]


def in_turn(kinds: list[str]) -> list[str]:
    """Kinds of events, what comes several times in a row once."""
    return [kind for kind, _ in groupby(kinds)]


def test_calls_of_two_streamed_choices_are_collected_as_the_whole_answers_have_them(told: Told) -> None:
    scene = told["called_in_chat"]
    assert scene["choices"] == [{"text": "Let me look.", "calls": CALLED, "why": "tool_calls"}] * 2
    assert scene["whole"] == scene["choices"]
    assert scene["parsed"] == [json.loads(arguments) for _, arguments in CALLED]
    kinds = scene["kinds"]
    assert kinds.count("tool_calls.function.arguments.done") == 4
    assert kinds.count("content.done") == 2
    assert kinds.count("tool_calls.function.arguments.delta") > 4
    together, whole, single = scene["prompt_tokens"]
    assert together == whole == single


def test_a_streamed_response_calls_and_is_gone_on_from(told: Told) -> None:
    scene = told["called_in_response"]
    assert scene["text"] == "Let me look."
    assert scene["calls"] == [[name, arguments, json.loads(arguments)] for name, arguments in CALLED]
    assert in_turn(scene["kinds"]) == [
        "response.created",
        "response.in_progress",
        *ITEM_OF_TEXT,
        *ITEM_OF_A_CALL * 2,
        "response.completed",
    ]
    assert scene["kept"]
    assert scene["after"] == "Yes."
    before, after = scene["tokens"]
    assert after > before


def test_a_form_is_obeyed_and_parsed(told: Told) -> None:
    assert told["formed"] == [{"name": "Oslo", "people": 700_000}] * 2


def test_many_streams_at_once_are_whole(told: Told) -> None:
    assert told["in_parallel"] == ["ok"] * 8


def test_a_breakpoint_is_written_and_read_to_the_token_for_half_an_hour(told: Told) -> None:
    usages = told["breakpoints"]
    end = len("\0user\n") + 1100
    for route in ("chats", "responses"):
        first, second = usages[route]
        details = [
            usage.get("prompt_tokens_details") or usage["input_tokens_details"] for usage in (first, second)
        ]
        assert [each["cache_write_tokens"] for each in details] == [end, 0]
        assert [read(first), read(second)] == [0, end]
    (later,) = usages["later"]
    assert read(later) == 0
    assert later["prompt_tokens_details"]["cache_write_tokens"] == end


def test_markers_of_anthropics_in_parts_are_taken_and_change_nothing(told: Told) -> None:
    marked, plain = told["anthropics_markers"]
    assert marked["prompt_tokens"] == plain["prompt_tokens"] == 1500
    assert [read(marked), read(plain)] == [0, 1408]


def test_a_prefix_lives_ten_idle_minutes_or_the_day_that_is_asked_for(told: Told) -> None:
    assert [read(usage) for usage in told["by_the_clock"]] == [0, 1408, 1408, 0, 1408]


def test_models_many_prompts_and_errors(told: Told) -> None:
    scene = told["others"]
    assert (scene["models"], scene["model"]) == (["toy"], "toy")
    assert scene["completions"] == [[index, "ok"] for index in range(4)]
    assert scene["errors"] == [
        ["NotFoundError", "model_not_found", "model", True],
        ["AuthenticationError", "invalid_api_key", None, True],
        ["BadRequestError", "invalid_value", "temperature", True],
        ["BadRequestError", "previous_response_not_found", "previous_response_id", True],
        ["BadRequestError", "context_length_exceeded", "messages", True],
    ]
