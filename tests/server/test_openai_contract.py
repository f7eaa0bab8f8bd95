"""OpenAI's cache numbers under `--ledger contract`, through the official SDK; the clock is stepped by hand."""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import Any

import openai
import pytest

from sapwood.chat import Conversation, Message
from sapwood.chat.messages import Role
from sapwood.chat.spots import Spot
from sapwood.server.openai_contract import message_ends
from server.conftest import Clock, Served, serving


def letters(count: int, start: int = 0) -> str:
    """A text of so many tokens."""
    return "".join(string.ascii_lowercase[(start + i) % 26] for i in range(count))


def complete(served: Served, prompt: Any, **extra: Any) -> Any:
    """The usage of a completion."""
    return served.openai.completions.create(model="toy", prompt=prompt, max_tokens=1, extra_body=extra).usage


def chat(served: Served, messages: list[Any], **options: Any) -> Any:
    """The usage of a chat."""
    return served.openai.chat.completions.create(
        model="toy", messages=messages, max_tokens=1, extra_body=options
    ).usage


def cached(usage: Any) -> int:
    """Its cached tokens, once it is seen that all fields agree."""
    read = usage.prompt_tokens_details.cached_tokens
    assert usage.prompt_cache_hit_tokens == read
    assert usage.prompt_cache_hit_tokens + usage.prompt_cache_miss_tokens == usage.prompt_tokens
    assert isinstance(read, int)
    return read


def written(usage: Any) -> int:
    count = usage.prompt_tokens_details.cache_write_tokens
    assert isinstance(count, int)
    return count


@pytest.mark.parametrize(("tokens", "read"), [(1500, 1408), (1100, 1024), (1023, 0)])
def test_a_repeated_prompt_reads_whole_steps_from_1024_on(fresh: Served, tokens: int, read: int) -> None:
    first, second = complete(fresh, letters(tokens)), complete(fresh, letters(tokens))
    assert (cached(first), cached(second)) == (0, read)
    assert (written(first), written(second)) == (0, 0)


def test_the_last_step_is_not_read_where_its_last_token_was_computed_again(fresh: Served) -> None:
    complete(fresh, letters(1024))
    assert cached(complete(fresh, letters(1024))) == 0


def test_a_stream_tells_the_same(fresh: Served) -> None:
    complete(fresh, letters(1500))
    chunks = list(
        fresh.openai.completions.create(
            model="toy",
            prompt=letters(1500),
            max_tokens=1,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert [cached(chunk.usage) for chunk in chunks if chunk.usage] == [1408]


def test_a_chat_reads_what_it_shares_with_another(fresh: Served) -> None:
    system = {"role": "system", "content": letters(1500)}
    first = chat(fresh, [system, {"role": "user", "content": "one"}])
    second = chat(fresh, [system, {"role": "user", "content": "two"}])
    assert (cached(first), cached(second)) == (0, 1408)


def test_many_prompts_are_told_together(fresh: Served) -> None:
    prompts = [letters(1500), letters(1500, start=3)]
    assert cached(complete(fresh, prompts)) == 0
    assert cached(complete(fresh, prompts)) == 2 * 1408


@pytest.mark.parametrize("field", ["prompt_cache_key", "cache_salt"])
def test_another_key_or_salt_reads_nothing(fresh: Served, field: str) -> None:
    for value, read in (("one", 0), ("two", 0), ("one", 1408)):
        assert cached(complete(fresh, letters(1500), **{field: value})) == read
    assert cached(complete(fresh, letters(1500))) == 0


def test_a_prefix_is_dropped_after_ten_idle_minutes(fresh: Served, clock: Clock) -> None:
    complete(fresh, letters(1500))
    clock.now += 599
    assert cached(complete(fresh, letters(1500))) == 1408
    clock.now += 600
    assert cached(complete(fresh, letters(1500))) == 0


@pytest.mark.parametrize(("retention", "read"), [("24h", 1408), ("in_memory", 0), ("in-memory", 0)])
def test_retention_is_taken_in_both_spellings(fresh: Served, clock: Clock, retention: str, read: int) -> None:
    complete(fresh, letters(1500), prompt_cache_retention=retention)
    clock.now += 23 * 3600
    assert cached(complete(fresh, letters(1500))) == read


def test_what_was_evicted_is_not_told_as_read(fresh: Served) -> None:
    complete(fresh, letters(1500))
    fresh.http.post("/flush_cache")
    assert cached(complete(fresh, letters(1500))) == 0
    assert cached(complete(fresh, letters(1500))) == 1408


def marked(text: str, **more: str) -> dict[str, Any]:
    return {"type": "text", "text": text, "prompt_cache_breakpoint": {"mode": "explicit", **more}}


def asked(*parts: Any) -> list[Any]:
    content = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
    return [{"role": "user", "content": content}]


EXPLICIT = {"prompt_cache_options": {"mode": "explicit"}}
START = len("user\n") + 1
"""Tokens before a first user message."""


def test_an_explicit_breakpoint_is_written_and_read_exactly(fresh: Served) -> None:
    first = chat(fresh, asked(marked(letters(1234)), "one"), **EXPLICIT)
    second = chat(fresh, asked(marked(letters(1234)), "two"), **EXPLICIT)
    assert (cached(first), written(first)) == (0, START + 1234)
    assert (cached(second), written(second)) == (START + 1234, 0)


def test_in_explicit_mode_without_breakpoints_nothing_is_cached(fresh: Served) -> None:
    for _ in range(2):
        usage = chat(fresh, asked(letters(1234)), **EXPLICIT)
        assert (cached(usage), written(usage)) == (0, 0)


def test_in_implicit_mode_the_last_user_message_is_a_boundary(fresh: Served) -> None:
    options: dict[str, Any] = {"prompt_cache_options": {}}
    turns = [{"role": "system", "content": letters(1100)}, {"role": "user", "content": "one"}]
    first = chat(fresh, turns, **options)
    assert cached(first) == 0
    more = [{"role": "assistant", "content": "ok"}, {"role": "user", "content": "two"}]
    second = chat(fresh, [*turns, *more], **options)
    assert cached(second) == written(first) > 1100
    assert written(second) > 0


def test_text_that_is_shared_up_to_no_boundary_is_not_read(fresh: Served) -> None:
    for tail in ("one", "two"):
        message = [{"role": "user", "content": letters(1300) + tail}]
        assert cached(chat(fresh, message, prompt_cache_options={"mode": "implicit"})) == 0


@pytest.mark.parametrize(
    "change", [{"reasoning_effort": "low"}, {"verbosity": "low"}, {"prompt_cache_key": "other"}]
)
def test_a_changed_setting_of_the_prefix_reads_nothing(fresh: Served, change: dict[str, Any]) -> None:
    chat(fresh, asked(marked(letters(1234)), "one"), **EXPLICIT)
    assert cached(chat(fresh, asked(marked(letters(1234)), "one"), **EXPLICIT, **change)) == 0


def test_a_breakpoint_lives_half_an_hour_from_its_last_use(fresh: Served, clock: Clock) -> None:
    messages = asked(marked(letters(1234), ttl="30m"), "one")
    chat(fresh, messages, **EXPLICIT)
    clock.now += 1799
    assert cached(chat(fresh, messages, **EXPLICIT)) == START + 1234
    clock.now += 1800
    assert cached(chat(fresh, messages, **EXPLICIT)) == 0


def test_implicit_boundaries_end_user_messages_groups_of_results_and_the_opening() -> None:
    roles: list[Role] = ["developer", "system", "user", "assistant", "tool", "tool", "user", "system", "tool"]
    messages = tuple(Message(role, ("one", "two")) for role in roles)
    assert message_ends(Conversation(messages)) == [Spot("part", i, 1) for i in (1, 2, 5, 6, 8)]


def test_a_message_without_text_is_no_boundary() -> None:
    assert message_ends(Conversation((Message("user", ()),))) == []


@pytest.mark.parametrize("ledger", ["auto", "contract"])
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt_cache_key": 7}, "prompt_cache_key"),
        ({"prompt_cache_retention": "2h"}, "prompt_cache_retention"),
        ({"prompt_cache_options": []}, "prompt_cache_options"),
        ({"prompt_cache_options": {"mode": "none"}}, "prompt_cache_options.mode"),
        ({"prompt_cache_options": {"ttl": "12h"}}, "prompt_cache_options.ttl"),
    ],
)
def test_wrong_cache_fields_are_refused_under_any_ledger(
    fresh: Served, served: Served, ledger: str, fields: dict[str, Any], param: str
) -> None:
    where = fresh if ledger == "contract" else served
    for ask in (lambda: complete(where, "x", **fields), lambda: chat(where, asked("x"), **fields)):
        assert refused(ask) == param


def refused(ask: Callable[[], object]) -> str | None:
    """The field that a 400 names."""
    with pytest.raises(openai.BadRequestError) as caught:
        ask()
    return caught.value.param


@pytest.mark.parametrize(
    ("role", "point", "param"),
    [
        ("assistant", {"mode": "explicit"}, ""),
        ("user", {"mode": "implicit"}, ""),
        ("user", "explicit", ""),
        ("user", {"mode": "explicit", "ttl": 30}, ".ttl"),
        ("user", {"mode": "explicit", "ttl": "31m"}, ".ttl"),
    ],
)
def test_wrong_breakpoints_are_refused(served: Served, role: str, point: Any, param: str) -> None:
    part = {"type": "text", "text": "x", "prompt_cache_breakpoint": point}
    messages = [{"role": role, "content": [part]}]
    assert refused(lambda: chat(served, messages)) == f"messages[0].content[0].prompt_cache_breakpoint{param}"


def test_by_default_openais_numbers_are_physical_and_the_cache_fields_change_nothing(served: Served) -> None:
    served.script(b"ok")
    fields = {"prompt_cache_key": "k", "prompt_cache_retention": "in-memory"}
    assert [cached(complete(served, letters(100), **fields)) for _ in range(2)] == [0, 99]
    other = {**fields, "prompt_cache_key": "another"}
    assert cached(complete(served, letters(100), **other)) == 99


@pytest.mark.parametrize(
    ("ledger", "openais", "others"),
    [("auto", "physical", "contract"), ("contract", "contract", "contract"), ("physical", *["physical"] * 2)],
)
def test_the_server_tells_which_ledger_each_dialect_shows(ledger: str, openais: str, others: str) -> None:
    with serving(ledger=ledger) as served:
        told = served.http.get("/v1/server").json()
    assert told["ledger"] == ledger
    assert told["ledgers"] == {"openai": openais, "anthropic": others, "gemini": others}
