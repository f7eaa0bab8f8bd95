"""OpenAI's prompt-cache fields of a body."""

from __future__ import annotations

from typing import Any

import pytest

from sapwood.chat.prompt_cache import Breakpoint, PromptCache, parse_prompt_cache
from sapwood.errors import RequestError


def message(*parts: dict[str, Any], role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": [{"type": "text", "text": "x", **part} for part in parts]}


POINT = {"prompt_cache_breakpoint": {"mode": "explicit"}}


def test_a_body_without_such_fields_asks_for_nothing() -> None:
    plain = {"role": "user", "content": "x"}
    for messages in ([], [plain], [message({})], [{"role": "assistant", "content": None}]):
        assert parse_prompt_cache({"messages": messages, "user": "u"}) == PromptCache()
    assert parse_prompt_cache({"prompt": "x", "prompt_cache_key": None}) == PromptCache()


def test_both_spellings_of_in_memory_are_one() -> None:
    for spelling in ("in_memory", "in-memory"):
        assert parse_prompt_cache({"prompt_cache_retention": spelling}).retention == "in_memory"
    assert parse_prompt_cache({"prompt_cache_retention": "24h"}).retention == "24h"


def test_options_and_breakpoints_say_who_sets_boundaries() -> None:
    assert parse_prompt_cache({"prompt_cache_options": {}}).mode == "implicit"
    assert parse_prompt_cache({"prompt_cache_options": {"mode": "explicit"}}).mode == "explicit"
    assert parse_prompt_cache({"messages": [message(POINT)]}).mode == "implicit"


def test_breakpoints_have_their_place_and_their_own_ttl() -> None:
    timed = {"prompt_cache_breakpoint": {"mode": "explicit", "ttl": "30m"}}
    messages = [message({}, POINT, role="system"), message(timed)]
    parsed = parse_prompt_cache({"messages": messages, "prompt_cache_options": {"ttl": "12h"}})
    assert parsed.breakpoints == (Breakpoint(0, 1, None), Breakpoint(1, 0, "30m"))
    assert parsed.ttl == "12h"


def test_a_breakpoint_that_is_null_is_none() -> None:
    assert parse_prompt_cache({"messages": [message({"prompt_cache_breakpoint": None})]}) == PromptCache()


def test_an_answer_cannot_have_one() -> None:
    with pytest.raises(RequestError, match="only input can have one") as caught:
        parse_prompt_cache({"messages": [message({}), message({}, POINT, role="assistant")]})
    assert caught.value.param == "messages[1].content[1].prompt_cache_breakpoint"
