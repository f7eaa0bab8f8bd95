"""LiteLLM, unmodified, through three dialects; and what aider sends by it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clients.conftest import Theatre, Told

VERSION = "1.110.2"
SYSTEM = len("\0system\n") + 1500


@pytest.fixture(scope="module")
def told(theatre: Theatre) -> Told:
    played = theatre.play("litellm_calls", "frameworks")
    assert played.version == VERSION
    return played


def cached(usage: Any) -> int:
    """Cached tokens, once it is seen that what LiteLLM makes of them agrees with itself."""
    assert usage["prompt_tokens"] + usage["completion_tokens"] == usage["total_tokens"]
    count = usage["prompt_tokens_details"]["cached_tokens"] or 0
    for name in ("cache_read_input_tokens", "prompt_cache_hit_tokens"):
        assert (usage.get(name, count) or 0) == count
    return int(count)


@pytest.mark.parametrize(
    ("dialect", "read"), [("openai", 1408), ("anthropic", SYSTEM), ("gemini", 1500 + 18 - 1)]
)
def test_a_repeated_call_reads_the_cache_streamed_or_not(told: Told, dialect: str, read: int) -> None:
    scene = told[f"through_{dialect}"]
    assert [cached(usage) for usage in scene["usages"]] == [0, read, read]
    assert len({usage["prompt_tokens"] for usage in scene["usages"]}) == 1
    assert scene["text"] == "ok"


@pytest.mark.parametrize("dialect", ["openai", "anthropic", "gemini"])
def test_a_call_is_made_and_its_result_answered(told: Told, dialect: str) -> None:
    *called, after = told[f"through_{dialect}"]["calls"]
    for finish, ((name, arguments),) in called:
        assert (finish, name, json.loads(arguments)) == ("tool_calls", "weather", {"city": "Malmö"})
    assert len(called) == 2
    assert after == "Yes."


def test_markers_are_passed_on_and_what_they_write_is_told(told: Told) -> None:
    first = told["through_anthropic"]["usages"][0]
    assert (
        first["cache_creation_input_tokens"] == first["prompt_tokens_details"]["cache_write_tokens"] == SYSTEM
    )
    assert first["prompt_tokens"] == SYSTEM + len("\0\0user\nHi\0\0assistant\n")
    second, third = told["through_anthropic"]["turns"]
    turns = len("\0\0user\nHi\0\0assistant\nok\0\0user\nThen?")
    assert (cached(second), second["cache_creation_input_tokens"]) == (SYSTEM, turns)
    assert (cached(third), third["cache_creation_input_tokens"]) == (SYSTEM + turns, 0)


def test_a_cached_content_is_looked_for_created_and_used(told: Told) -> None:
    scene = told["a_named_cache"]
    (made,) = scene["objects"]
    size = made["usageMetadata"]["totalTokenCount"]
    assert size == len("\0user\n\0") + 1200 * len("pump ") - 1
    assert [cached(usage) for usage in scene["usages"]] == [size] * 3


def test_aiders_markers_in_parts_of_a_chat_are_taken_and_its_ping_keeps_the_prefix(told: Told) -> None:
    ping, after = told["as_aider"]
    assert ping["completion_tokens"] == 1
    assert (cached(ping), cached(after)) == (0, ping["prompt_tokens"] // 128 * 128)
    assert after["prompt_cache_hit_tokens"] + after["prompt_cache_miss_tokens"] == after["prompt_tokens"]


def test_errors_are_told_apart(told: Told) -> None:
    kinds = ["NotFoundError", "AuthenticationError", "BadRequestError"]
    expected = [[dialect, kind] for dialect in ("openai", "anthropic", "gemini") for kind in kinds]
    assert told["errors"] == expected
