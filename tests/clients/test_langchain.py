"""LangChain's models of OpenAI and of Anthropic, unmodified: what they tell of usage, and the calls they make."""

from __future__ import annotations

from typing import Any

import pytest

from clients.conftest import Theatre, Told

VERSIONS = "1.7.4 1.7.10"
START = len("\0user\n")


@pytest.fixture(scope="module")
def told(theatre: Theatre) -> Told:
    played = theatre.play("langchain_calls", "frameworks")
    assert played.version == VERSIONS
    return played


def counts(usage: Any) -> tuple[int, int]:
    """Tokens read and written, whichever of its two ways LangChain tells the written ones in."""
    assert usage["input_tokens"] + usage["output_tokens"] == usage["total_tokens"]
    details = usage["input_token_details"]
    lives = [details.get(f"ephemeral_{life}_input_tokens", 0) for life in ("5m", "1h")]
    assert not details["cache_creation"] or not sum(lives)
    return details["cache_read"], details["cache_creation"] + sum(lives)


@pytest.mark.parametrize("route", ["chats", "responses"])
def test_openais_cached_tokens_are_told_streamed_or_not(told: Told, route: str) -> None:
    scene = told[f"through_{route}"]
    assert [counts(usage) for usage in scene["usages"]] == [(0, 0), (1408, 0), (1408, 0)]
    assert scene["usages"][1] == scene["usages"][2]
    assert {usage["input_tokens"] for usage in scene["usages"]} == {1518}
    assert scene["text"] == "ok"


def test_openais_written_tokens_are_told_where_its_rules_have_them(told: Told) -> None:
    first, second = map(counts, told["written_by_openai"])
    written = START + 1500
    assert first == (0, written)
    assert second == (written, len("\0\0assistant\nok\0\0user\nMore"))


def test_anthropics_tokens_are_added_up_streamed_or_not(told: Told) -> None:
    scene = told["through_messages"]
    marked = len("\0system\n") + 1500
    assert [counts(usage) for usage in scene["usages"]] == [(0, marked), (marked, 0), (marked, 0)]
    whole = marked + len("\0\0user\nHi\0\0assistant\n")
    assert {usage["input_tokens"] for usage in scene["usages"]} == {whole}
    assert scene["text"] == "ok"


def test_anthropics_two_lives_are_told_apart(told: Told) -> None:
    first, second = told["two_lives"]
    hour, minutes = START + 1500, 1 + 300
    assert first["input_token_details"] == {
        "cache_read": 0,
        "cache_creation": 0,
        "ephemeral_1h_input_tokens": hour,
        "ephemeral_5m_input_tokens": minutes,
    }
    assert first["input_tokens"] == hour + minutes + len("\0\0assistant\n")
    assert counts(second) == (hour + minutes, len("\0\0assistant\nok\0\0user\n") + 20)


def test_forms_are_obeyed_and_parsed(told: Told) -> None:
    assert told["formed"] == [{"name": "Oslo", "people": 700_000}] * 3


@pytest.mark.parametrize("route", ["chats", "responses", "messages"])
def test_a_call_is_made_and_its_result_answered(told: Told, route: str) -> None:
    scene = told[f"through_{route}"]["calls"]
    assert scene["calls"] == [["weather", {"city": "Malmö"}]] * 2
    assert (scene["text"], scene["after"]) == ("Let me look.", "Yes.")
