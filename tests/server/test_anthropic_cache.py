"""Anthropic's prompt-cache contract end to end: the official SDK, a served fake model, and a clock of our own."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import anthropic
import pytest

from server.conftest import Clock, Served, serving

MARK = {"cache_control": {"type": "ephemeral"}}
HOUR = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
TOOL = {"name": "f", "description": "d" * 1030, "input_schema": {"type": "object", "properties": {}}}
SYSTEM = "s" * 1100
SYSTEM_END = 1 + len("system\n") + len(SYSTEM)
"""Tokens up to the end of the system text: each byte is one, and `<|start|>` is."""


@dataclass
class Rig:
    """A server, a client for it and the clock of its ledgers."""

    served: Served
    client: anthropic.Anthropic
    clock: Clock

    def ask(self, *turns: Any, **options: Any) -> anthropic.types.Message:
        answer: anthropic.types.Message = self.client.messages.create(
            **{"model": "toy", "max_tokens": 4, "messages": messages(*turns), **options}
        )
        return answer

    def refusal(self, *turns: Any, **options: Any) -> str:
        with pytest.raises(anthropic.BadRequestError) as refused:
            self.ask(*turns, **options)
        error = refused.value.body["error"]  # type: ignore[index]
        assert error["type"] == "invalid_request_error"
        return str(error["message"])


@pytest.fixture(scope="module")
def shared() -> Iterator[Rig]:
    clock = Clock()
    with (
        serving(clock=clock) as served,
        anthropic.Anthropic(base_url=served.url, api_key="none", max_retries=0, timeout=30) as client,
    ):
        yield Rig(served, client, clock)


@pytest.fixture
def rig(shared: Rig) -> Rig:
    """Nothing is cached, and all that was promised has expired."""
    shared.served.script(b"ok")
    assert shared.served.http.post("/flush_cache").status_code == 200
    shared.clock.now += 10 * 3600
    return shared


def messages(*turns: Any) -> list[Any]:
    """Turns by turns of user and assistant; the first of each is the user's."""
    return [{"role": ("user", "assistant")[i % 2], "content": turn} for i, turn in enumerate(turns)]


def text(content: str, **marker: Any) -> dict[str, Any]:
    return {"type": "text", "text": content, **marker}


def told(message: anthropic.types.Message) -> tuple[int, int]:
    """Tokens read and written; the two lifetimes written must sum up, and all must be the prompt."""
    usage = message.usage
    assert usage.cache_creation is not None
    parts = usage.cache_creation
    assert usage.cache_creation_input_tokens is not None
    assert usage.cache_creation_input_tokens == (
        parts.ephemeral_5m_input_tokens + parts.ephemeral_1h_input_tokens
    )
    assert usage.cache_read_input_tokens is not None
    return usage.cache_read_input_tokens, usage.cache_creation_input_tokens


SYSTEM_MARKED: Any = [text(SYSTEM, **MARK)]


def test_a_marked_document_is_written_and_read_again(rig: Rig) -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "m" * 1200}
    manual = {"type": "document", "title": "Fuses", "source": source, **MARK}
    read, written = told(rig.ask([manual, text("F7?")]))
    assert (read, written) == (0, 1 + len("user\ntitle: Fuses\n") + 1200)
    assert told(rig.ask([manual, text("F8?")])) == (written, 0)


def test_the_first_writes_and_the_second_reads(rig: Rig) -> None:
    first = rig.ask("one", system=SYSTEM_MARKED)
    second = rig.ask("another", system=SYSTEM_MARKED)
    assert told(first) == (0, SYSTEM_END)
    assert told(second) == (SYSTEM_END, 0)
    total = rig.client.messages.count_tokens(
        model="toy", system=SYSTEM_MARKED, messages=messages("another")
    ).input_tokens
    assert second.usage.input_tokens == total - SYSTEM_END


def test_each_turn_reads_what_the_turn_before_wrote(rig: Rig) -> None:
    first = rig.ask([text("u" * 40, **MARK)], system=SYSTEM_MARKED, tools=[{**TOOL, **MARK}])
    turns = [[text("u" * 40)], "ok", [text("v" * 30, **MARK)]]
    second = rig.ask(*turns, system=SYSTEM_MARKED, tools=[{**TOOL, **MARK}])
    written = first.usage.cache_creation_input_tokens
    assert told(first)[0] == 0
    assert written is not None
    assert told(second) == (written, len("\0\0assistant\nok\0\0user\n") + 30)


def test_a_changed_tool_choice_keeps_tools_and_system(rig: Rig) -> None:
    options: Any = {"system": SYSTEM_MARKED, "tools": [{**TOOL, **MARK}]}
    first = rig.ask([text("u" * 40, **MARK)], **options)
    changed = rig.ask([text("u" * 40, **MARK)], tool_choice={"type": "none"}, **options)
    same = rig.ask([text("u" * 40, **MARK)], tool_choice={"type": "auto"}, **options)
    written = first.usage.cache_creation_input_tokens
    assert written is not None
    read, rewritten = told(changed)
    assert read == written - rewritten
    assert 0 < rewritten < 400
    assert told(same) == (written, 0)


def test_a_changed_tool_loses_everything(rig: Rig) -> None:
    first = rig.ask("u", system=SYSTEM_MARKED, tools=[{**TOOL, **MARK}])
    other = {**TOOL, "input_schema": {"type": "object", "properties": {}, "additionalProperties": False}}
    changed = rig.ask("u", system=SYSTEM_MARKED, tools=[{**other, **MARK}])
    assert told(first)[1] > 2000
    assert told(changed)[0] == 0


def test_past_twenty_blocks_nothing_is_found_without_a_marker_between(rig: Rig) -> None:
    def turn(count: int, *marked: int) -> list[Any]:
        return [text(f"block {i}", **(MARK if i in marked else {})) for i in range(count)]

    rig.ask([text("u" * 1100, **MARK)])
    start = text("u" * 1100)
    near = rig.ask([start, *turn(19, 18)])
    assert told(near)[0] == 1 + len("user\n") + 1100
    rig.clock.now += 3600
    rig.ask([text("u" * 1100, **MARK)])
    far = rig.ask([start, *turn(25, 24)])
    assert told(far)[0] == 0
    rig.clock.now += 3600
    rig.ask([text("u" * 1100, **MARK)])
    between = rig.ask([start, *turn(25, 10, 24)])
    assert told(between)[0] == 1 + len("user\n") + 1100


def test_a_fifth_marker_is_refused_and_its_place_named(rig: Rig) -> None:
    tools, turn = [{**TOOL, **MARK}], [text("a", **MARK), text("b", **MARK)]
    assert told(rig.ask(turn, system=SYSTEM_MARKED, tools=tools))[1] > 2000
    said = rig.refusal([*turn, text("c", **MARK)], system=SYSTEM_MARKED, tools=tools)
    assert "found 5" in said
    assert "messages[0].content[2]" in said
    assert "tools[0]" in said


def test_markers_on_a_turn_with_three_results_count_as_sent(rig: Rig) -> None:
    calls = [{"type": "tool_use", "id": f"t{i}", "name": "f", "input": {}} for i in range(3)]
    results: list[Any] = [
        {"type": "tool_result", "tool_use_id": f"t{i}", "content": "r" * 100} for i in range(3)
    ]
    results[-1].update(MARK)
    options: Any = {"tools": [{**TOOL, **MARK}], "system": SYSTEM_MARKED}
    first, again = (rig.ask("u", calls, results, **options) for _ in range(2))
    assert told(again) == (told(first)[1], 0)
    said = rig.refusal("u", calls, [{**each, **MARK} for each in results], **options)
    assert "found 5" in said
    assert "messages[2].content[2]" in said


def test_the_longer_lifetime_must_come_first(rig: Rig) -> None:
    said = rig.refusal([text("u", **HOUR)], system=SYSTEM_MARKED)
    assert "messages[0].content[0]" in said
    mixed = rig.ask([text("u" * 100, **MARK)], system=[text(SYSTEM, **HOUR)])
    assert mixed.usage.cache_creation is not None
    assert mixed.usage.cache_creation.ephemeral_1h_input_tokens == SYSTEM_END
    assert mixed.usage.cache_creation.ephemeral_5m_input_tokens == 1 + 1 + len("user\n") + 100


@pytest.mark.parametrize(
    "block",
    [
        text("", **MARK),
        {"type": "thinking", "thinking": "t", "signature": "s", **MARK},
        {"type": "redacted_thinking", "data": "d", **MARK},
        {**text("a"), "citations": [{"type": "char_location", **MARK}]},
    ],
)
def test_a_marker_where_none_may_be_is_refused(rig: Rig, block: dict[str, Any]) -> None:
    said = rig.refusal("u", [block], "v")
    assert "messages[1].content[0]" in said


def test_below_the_minimum_nothing_is_cached_and_nothing_is_wrong(rig: Rig) -> None:
    for _ in range(2):
        assert told(rig.ask([text("u" * 900, **MARK)])) == (0, 0)


def test_a_prompt_without_markers_is_plain_though_it_was_reused(rig: Rig) -> None:
    rig.ask("u" * 1100)
    raw = rig.client.messages.with_raw_response.create(
        model="toy", max_tokens=4, messages=messages("u" * 1100)
    )
    assert told(raw.parse()) == (0, 0)
    assert not raw.headers["x-sapwood-cache"].startswith("reused=0;")


def test_a_pre_warm_writes_what_the_next_call_reads(rig: Rig) -> None:
    warm = rig.ask("warm", system=SYSTEM_MARKED, max_tokens=0)
    assert (warm.content, warm.stop_reason, warm.usage.output_tokens) == ([], "max_tokens", 0)
    assert told(warm) == (0, SYSTEM_END)
    assert told(rig.ask("real", system=SYSTEM_MARKED)) == (SYSTEM_END, 0)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"stream": True}, "stream"),
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, "thinking"),
        ({"tools": [TOOL], "tool_choice": {"type": "any"}}, "tool_choice"),
        ({"output_config": {"format": {"type": "json_schema", "schema": {}}}}, "output_config"),
    ],
)
def test_a_pre_warm_that_asks_for_more_is_refused(rig: Rig, wrong: dict[str, Any], told: str) -> None:
    body = {"model": "toy", "max_tokens": 0, "messages": messages("u"), **wrong}
    answer = rig.served.http.post("/v1/messages", json=body)
    assert answer.status_code == 400
    assert told in answer.json()["error"]["message"]


def test_five_minutes_after_the_last_use_it_is_gone(rig: Rig) -> None:
    rig.ask("u", system=SYSTEM_MARKED)
    rig.clock.now += 4 * 60
    assert told(rig.ask("u", system=SYSTEM_MARKED))[0] == SYSTEM_END
    rig.clock.now += 4 * 60 + 59
    assert told(rig.ask("u", system=SYSTEM_MARKED))[0] == SYSTEM_END
    rig.clock.now += 5 * 60
    assert told(rig.ask("u", system=SYSTEM_MARKED)) == (0, SYSTEM_END)


def test_an_hour_lasts_an_hour(rig: Rig) -> None:
    system: Any = [text(SYSTEM, **HOUR)]
    rig.ask("u", system=system)
    rig.clock.now += 59 * 60
    assert told(rig.ask("u", system=system))[0] == SYSTEM_END
    rig.clock.now += 60 * 60
    assert told(rig.ask("u", system=system)) == (0, SYSTEM_END)


def test_what_was_flushed_is_never_told_as_read(rig: Rig) -> None:
    rig.ask("u", system=SYSTEM_MARKED)
    assert rig.served.http.post("/flush_cache").status_code == 200
    assert told(rig.ask("u", system=SYSTEM_MARKED)) == (0, SYSTEM_END)


def test_a_stream_tells_the_counters_in_its_first_event(rig: Rig) -> None:
    rig.ask("u", system=SYSTEM_MARKED)
    options: Any = {"model": "toy", "max_tokens": 4, "messages": messages("u"), "system": SYSTEM_MARKED}
    with rig.client.messages.create(stream=True, **options) as stream:
        seen = list(stream)
    start, delta = seen[0], seen[-2]
    assert start.type == "message_start"
    assert told(start.message) == (SYSTEM_END, 0)
    assert delta.type == "message_delta"
    assert delta.usage.cache_read_input_tokens == SYSTEM_END
    assert delta.usage.input_tokens == start.message.usage.input_tokens


def test_the_automatic_marker_moves_with_the_conversation(rig: Rig) -> None:
    auto: Any = {"type": "ephemeral"}
    first = rig.ask("u" * 1100, cache_control=auto)
    turns = ["u" * 1100, "ok", "next"]
    second = rig.ask(*turns, cache_control=auto)
    written = 1 + len("user\n") + 1100
    assert told(first) == (0, written)
    assert told(second)[0] == written
    thinking = [{"type": "thinking", "thinking": "t", "signature": "s"}]
    assert told(rig.ask("u" * 1100, thinking, cache_control=auto)) == (written, 0)


def test_an_automatic_marker_takes_one_of_the_four_places(rig: Rig) -> None:
    auto: Any = {"type": "ephemeral"}
    four = [text("a", **MARK) for _ in range(4)]
    assert "found 5" in rig.refusal([*four, text("b")], cache_control=auto)
    assert told(rig.ask(four, system=SYSTEM, cache_control=auto))[1] > SYSTEM_END
    other: Any = {"type": "ephemeral", "ttl": "1h"}
    assert "another ttl" in rig.refusal(four, system=SYSTEM, cache_control=other)


def test_claude_codes_billing_line_is_no_part_of_the_prompt(rig: Rig) -> None:
    for i, expected in enumerate([(0, SYSTEM_END), (SYSTEM_END, 0)]):
        line = text(f"x-anthropic-billing-header: cc_version=2.1; cch={i}")
        assert told(rig.ask("u", system=[line, *SYSTEM_MARKED])) == expected
    as_text = rig.ask("u", system=f"x-anthropic-billing-header: cch=3;\n{SYSTEM}")
    assert as_text.usage.input_tokens == SYSTEM_END + rig.ask("u").usage.input_tokens + 1


def test_a_miss_is_explained_by_what_changed(rig: Rig) -> None:
    def next_after(message: anthropic.types.Message | None, **options: Any) -> Any:
        previous = {"previous_message_id": None if message is None else message.id}
        return rig.ask("u", extra_body={"diagnostics": previous}, **{"system": SYSTEM_MARKED, **options})

    first = next_after(None)
    same = next_after(first)
    assert (first.diagnostics, same.diagnostics) == (None, None)
    changed = next_after(same, system=[text("t" * 1100, **MARK)])
    reason = changed.diagnostics.cache_miss_reason
    assert (reason.type, reason.cache_missed_input_tokens) == ("system_changed", SYSTEM_END)
    unknown = next_after(first.model_copy(update={"id": "msg_unknown"}))
    assert unknown.diagnostics.cache_miss_reason.type == "previous_message_not_found"


def test_the_physical_ledger_shows_what_was_not_computed() -> None:
    with (
        serving(ledger="physical") as served,
        anthropic.Anthropic(base_url=served.url, api_key="none", max_retries=0, timeout=30) as client,
    ):
        served.script(b"ok")
        options: Any = {"model": "toy", "max_tokens": 4, "messages": messages("short")}
        first, second = (client.messages.create(**options) for _ in range(2))
        total = first.usage.input_tokens
    assert told(first) == (0, 0)
    assert told(second) == (total - 1, 0)
    assert second.usage.input_tokens == 1


def test_whatever_is_asked_the_counters_sum_up_and_no_more_is_read_than_was_there(rig: Rig) -> None:
    draw = random.Random(13)
    openings, texts = ["a" * 1100, "b" * 1100], ["c" * 30, "d", "e"]
    reads = 0
    for _ in range(60):
        rig.clock.now += draw.choice([1, 100, 400])
        marks = [draw.random() < 0.4 for _ in range(3)]
        said = [draw.choice(openings), draw.choice(texts), draw.choice(texts)]
        blocks = [text(each, **(MARK if mark else {})) for each, mark in zip(said, marks, strict=True)]
        cut = draw.randrange(3)
        body = {"model": "toy", "max_tokens": 1, "system": blocks[:cut], "messages": messages(blocks[cut:])}
        answer = rig.served.http.post("/v1/messages", json=body).json()
        message = anthropic.types.Message.model_validate(answer)
        read, written = told(message)
        was = rig.served.http.get(f"/v1/requests/{message.id}/cache").json()
        assert read + written + message.usage.input_tokens == was["prompt_tokens"]
        assert read <= sum(was["reused"].values())
        reads += read > 0
    assert 5 < reads < 55
