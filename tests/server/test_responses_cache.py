"""What a response is told of the cache under `--ledger contract`, and why it missed; the clock is stepped by hand."""

from __future__ import annotations

import string
from typing import Any

import openai
import pytest

from server.conftest import Clock, Served


def letters(count: int) -> str:
    """A text of so many tokens."""
    return "".join(string.ascii_lowercase[i % 26] for i in range(count))


def ask(served: Served, input: Any, **options: Any) -> Any:
    return served.openai.responses.create(**{"model": "toy", "input": input, **options})


def cached(response: Any) -> int:
    """Its cached tokens, once it is seen that the numbers add up."""
    usage = response.usage
    details = usage.input_tokens_details
    split = details.cache_write_tokens_details
    assert details.cache_write_tokens == split.ttl_30m_tokens + split.ttl_12h_tokens
    assert 0 <= details.cached_tokens + details.cache_write_tokens <= usage.input_tokens
    assert isinstance(details.cached_tokens, int)
    return details.cached_tokens


def written(response: Any) -> tuple[int, int]:
    """Tokens written for half an hour, and for twelve."""
    split = response.usage.input_tokens_details.cache_write_tokens_details
    return (split.ttl_30m_tokens, split.ttl_12h_tokens)


def marked(text: str, **more: str) -> dict[str, Any]:
    return {"type": "input_text", "text": text, "prompt_cache_breakpoint": {"mode": "explicit", **more}}


def user(*parts: Any) -> list[Any]:
    content = [{"type": "input_text", "text": part} if isinstance(part, str) else part for part in parts]
    return [{"role": "user", "content": content}]


EXPLICIT: dict[str, Any] = {"prompt_cache_options": {"mode": "explicit"}}
START = len("user\n") + 1
"""Tokens before a first user message."""


@pytest.mark.parametrize(("tokens", "read"), [(1500, 1408), (1200, 1152), (900, 0)])
def test_a_repeated_prompt_reads_whole_steps_from_1024_on(fresh: Served, tokens: int, read: int) -> None:
    first, second = (ask(fresh, letters(tokens)) for _ in range(2))
    assert (cached(first), cached(second)) == (0, read)
    assert written(first) == written(second) == (0, 0)


def test_a_stream_tells_the_same_in_its_last_event_alone(fresh: Served) -> None:
    ask(fresh, letters(1500))
    whole = ask(fresh, letters(1500))
    with fresh.openai.responses.stream(model="toy", input=letters(1500)) as stream:
        usages = [event.response.usage for event in stream if hasattr(event, "response")]
    assert usages == [None, None, whole.usage]


def test_a_chat_and_a_response_share_what_both_begin_with(fresh: Served) -> None:
    ask(fresh, letters(1500))
    messages: Any = [{"role": "user", "content": letters(1500)}]
    usage = fresh.openai.chat.completions.create(model="toy", messages=messages).usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.cached_tokens == 1408


@pytest.mark.parametrize("options", [{}, EXPLICIT])
def test_another_key_reads_nothing(fresh: Served, options: dict[str, Any]) -> None:
    for key, hit in (("one", False), ("two", False), ("one", True)):
        response = ask(fresh, user(marked(letters(1400)), "x"), prompt_cache_key=key, **options)
        assert (cached(response) > 0) is hit


def test_an_explicit_breakpoint_is_written_and_read_exactly(fresh: Served) -> None:
    first = ask(fresh, user(marked(letters(1234)), "one"), **EXPLICIT)
    second = ask(fresh, user(marked(letters(1234)), "two"), **EXPLICIT)
    assert (cached(first), written(first)) == (0, (START + 1234, 0))
    assert (cached(second), written(second)) == (START + 1234, (0, 0))
    assert (first.prompt_cache_options.mode, first.prompt_cache_options.ttl) == ("explicit", "30m")


def test_a_result_of_a_call_may_carry_a_breakpoint(fresh: Served) -> None:
    turns: list[Any] = [
        {"role": "user", "content": "look"},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": [marked(letters(1234))]},
    ]
    first, second = (ask(fresh, turns, **EXPLICIT) for _ in range(2))
    assert cached(second) == written(first)[0] > 1234


def test_twelve_hours_may_be_asked_for_on_this_route(fresh: Served, clock: Clock) -> None:
    options = {"prompt_cache_options": {"mode": "explicit", "ttl": "12h"}}
    first = ask(fresh, user(marked(letters(1234)), "one"), **options)
    assert written(first) == (0, START + 1234)
    assert first.prompt_cache_options.ttl == "12h"
    clock.now += 11 * 3600
    assert cached(ask(fresh, user(marked(letters(1234)), "one"), **options)) == START + 1234
    clock.now += 12 * 3600
    assert cached(ask(fresh, user(marked(letters(1234)), "one"), **options)) == 0


def test_one_breakpoint_may_live_longer_than_another(fresh: Served) -> None:
    response = ask(fresh, user(marked(letters(1100), ttl="12h"), marked("more"), "x"), **EXPLICIT)
    assert written(response) == (len("\nmore"), START + 1100)


@pytest.mark.parametrize("ttl", ["1h", "", "30M"])
def test_other_lives_are_refused(fresh: Served, ttl: str) -> None:
    for input, options in (("x", {"ttl": ttl}), (user(marked("x", ttl=ttl)), {})):
        with pytest.raises(openai.BadRequestError, match="must be '30m' or '12h'"):
            ask(fresh, input, prompt_cache_options=options)


def test_an_answer_cannot_carry_a_breakpoint(fresh: Served) -> None:
    answer = {"role": "assistant", "content": [{**marked("x"), "type": "output_text"}]}
    with pytest.raises(openai.BadRequestError, match="only input can have one"):
        ask(fresh, [answer, {"role": "user", "content": "x"}])


def test_a_conversation_that_goes_on_reads_its_implicit_boundary(fresh: Served) -> None:
    options: dict[str, Any] = {"prompt_cache_options": {"mode": "implicit"}}
    first = ask(fresh, letters(1100), **options)
    second = ask(fresh, "and?", previous_response_id=first.id, **options)
    assert cached(first) == 0
    assert cached(second) == written(first)[0] == START + 1100
    assert written(second)[0] > 0


def test_a_prewarmed_prompt_says_nothing_and_is_read_by_the_next(fresh: Served) -> None:
    prompt = user(marked(letters(1300)), "x")
    warm = {"prompt_cache_options": {"mode": "explicit", "prewarm": True}}
    first = ask(fresh, prompt, **warm)
    assert (first.status, first.output, first.usage.output_tokens) == ("completed", [], 0)
    assert written(first) == (START + 1300, 0)
    assert cached(ask(fresh, prompt, **EXPLICIT)) == START + 1300


def test_a_prewarming_stream_has_no_items(fresh: Served) -> None:
    options: Any = {"mode": "explicit", "prewarm": True}
    with fresh.openai.responses.stream(model="toy", input="x", prompt_cache_options=options) as stream:
        kinds = [event.type for event in stream]
    assert kinds == ["response.created", "response.in_progress", "response.completed"]


def test_a_forced_call_does_not_keep_a_prompt_from_being_prewarmed(fresh: Served) -> None:
    tool = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
    response = ask(fresh, "x", tools=[tool], tool_choice="required", prompt_cache_options={"prewarm": True})
    assert response.output == []


def compared(served: Served, before: Any, input: Any, **options: Any) -> Any:
    """What a response is told of its misses, against an earlier one."""
    cache = {**EXPLICIT["prompt_cache_options"], "comparison_response_id": before.id}
    return ask(served, input, **{**options, "prompt_cache_options": cache}).prompt_cache_diagnostics


def test_a_hit_is_told_as_one(fresh: Served) -> None:
    prompt = user(marked(letters(1300)), "x")
    before = ask(fresh, prompt, **EXPLICIT)
    assert before.prompt_cache_diagnostics is None
    assert compared(fresh, before, prompt).type == "cache_hit"


TOOL = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"prompt_cache_key": "other"}, "prompt_cache_key_changed"),
        ({"tools": [TOOL]}, "tools_changed"),
        ({"parallel_tool_calls": False}, "tools_changed"),
        ({"text": {"format": {"type": "json_object"}}, "max_output_tokens": 2}, "text_format_changed"),
        ({"reasoning": {"effort": "low"}}, "reasoning_effort_changed"),
        ({"text": {"verbosity": "low"}}, "verbosity_changed"),
        ({"instructions": "Be brief."}, "input_changed"),
    ],
)
def test_a_miss_is_told_with_its_reason(fresh: Served, change: dict[str, Any], reason: str) -> None:
    prompt = user(marked(letters(1300)), "x")
    before = ask(fresh, prompt, **EXPLICIT)
    fresh.script(b"{}")
    found = compared(fresh, before, prompt, **change)
    assert (found.type, found.reason) == ("cache_miss", reason)
    assert found.cache_missed_tokens == found.comparison_reusable_tokens == START + 1300


def test_what_expired_cannot_be_explained(fresh: Served, clock: Clock) -> None:
    prompt = user(marked(letters(1300)), "x")
    before = ask(fresh, prompt, **EXPLICIT)
    clock.now += 1801
    assert compared(fresh, before, prompt).type == "unavailable"


def test_a_response_that_is_not_known_cannot_be_compared_with(fresh: Served) -> None:
    options = {"comparison_response_id": "resp-nothing"}
    response = ask(fresh, "x", prompt_cache_options=options)
    assert response.prompt_cache_diagnostics.type == "comparison_response_not_found"
    assert response.prompt_cache_options.comparison_response_id == "resp-nothing"


def test_a_stream_tells_of_misses_in_its_last_event_alone(fresh: Served) -> None:
    before = ask(fresh, user(marked(letters(1300))), **EXPLICIT)
    cache: Any = {"mode": "explicit", "comparison_response_id": before.id}
    with fresh.openai.responses.stream(model="toy", input="else", prompt_cache_options=cache) as stream:
        found = [event.response.prompt_cache_diagnostics for event in stream if hasattr(event, "response")]
    assert found[:-1] == [None, None]
    assert getattr(found[-1], "reason", None) == "input_changed"


def test_the_physical_ledger_explains_its_misses_too(served: Served) -> None:
    served.script(b"ok")
    before = ask(served, letters(300))
    for input, kind in ((letters(300), "cache_hit"), (letters(300)[::-1], "cache_miss")):
        cache = {"comparison_response_id": before.id}
        response = ask(served, input, prompt_cache_options=cache)
        assert response.prompt_cache_diagnostics.type == kind
