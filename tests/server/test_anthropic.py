"""`/v1/messages` through the official SDK, over a real socket."""

from __future__ import annotations

import copy
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import anthropic
import pytest

from sapwood.plan import StepPlan
from sapwood.types import SeqId
from server.conftest import Served
from server.fakes import FakeFacts
from server.test_served import serving_default_model

USER: Any = [{"role": "user", "content": "Say something."}]
PROMPT_TOKENS = 1 + len("user\nSay something.") + 2 + len("assistant\n")
TOOL: Any = {
    "name": "weather",
    "description": "Tells the weather.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
CALL = b'<tool_call>\n{"name": "weather", "arguments": {"city": "K\xc3\xb6ln", "days": 2}}\n</tool_call>'


@pytest.fixture
def client(served: Served) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=served.url, api_key="none", max_retries=0, timeout=30) as client:
        yield client


def ask(client: anthropic.Anthropic, **options: Any) -> Any:
    return client.messages.create(**{"model": "toy", "max_tokens": 40, "messages": USER, **options})


def post(served: Served, body: dict[str, Any], path: str = "/v1/messages") -> Any:
    return served.http.post(path, json={"model": "toy", "max_tokens": 8, "messages": USER, **body})


def refusal(served: Served, body: dict[str, Any]) -> str:
    answer = post(served, body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["type"] == "error"
    assert answer.json()["error"]["type"] == "invalid_request_error"
    return str(answer.json()["error"]["message"])


def events(text: str) -> list[tuple[str, Any]]:
    """Name and data of each frame."""
    frames = [frame.split("\n", 1) for frame in text.strip().split("\n\n")]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in frames]


def test_an_answer_has_every_field_clients_read(served: Served, client: anthropic.Anthropic) -> None:
    served.script("Grüße 🌲".encode())
    raw = client.messages.with_raw_response.create(model="toy", max_tokens=40, messages=USER)
    answer = raw.parse()
    assert answer.id.startswith("msg_")
    assert (answer.type, answer.role, answer.model) == ("message", "assistant", "toy")
    assert [(block.type, block.text) for block in answer.content if block.type == "text"] == [
        ("text", "Grüße 🌲")
    ]
    assert (answer.stop_reason, answer.stop_sequence) == ("end_turn", None)
    usage = answer.usage
    assert (usage.input_tokens, usage.output_tokens) == (PROMPT_TOKENS, len("Grüße 🌲".encode()) + 1)
    assert (usage.cache_read_input_tokens, usage.cache_creation_input_tokens) == (0, 0)
    assert raw.headers["request-id"] == f"req-{answer.id.partition('-')[2]}"
    explained = served.http.get(f"/v1/requests/{answer.id}/cache").json()
    assert explained["prompt_tokens"] == PROMPT_TOKENS


def test_the_stream_helper_builds_the_whole_answer(served: Served, client: anthropic.Anthropic) -> None:
    served.script("Zwei Bäume 🌳🌲, ein Wald.".encode())
    whole = ask(client)
    with client.messages.stream(model="toy", max_tokens=40, messages=USER) as stream:
        text = "".join(stream.text_stream)
        streamed = stream.get_final_message()
    assert text == whole.content[0].text == "Zwei Bäume 🌳🌲, ein Wald."
    assert [block.model_dump()["text"] for block in streamed.content] == [text]
    assert streamed.usage == whole.usage
    assert (streamed.stop_reason, streamed.stop_sequence) == ("end_turn", None)


def test_each_frame_is_named_after_its_type(served: Served) -> None:
    served.script(b"ab")
    answer = post(served, {"stream": True}, "/v1/messages?beta=true")
    assert answer.headers["content-type"].startswith("text/event-stream")
    named = events(answer.text)
    assert all(name == data["type"] for name, data in named)
    assert [name for name, _ in named] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert "[DONE]" not in answer.text
    start, delta = named[0][1]["message"], named[-2][1]
    assert start["usage"]["input_tokens"] == PROMPT_TOKENS
    assert (start["content"], start["stop_reason"]) == ([], None)
    assert delta["usage"] == {**start["usage"], "output_tokens": 3}


def test_a_stop_sequence_is_named(served: Served, client: anthropic.Anthropic) -> None:
    served.script(b"one STOP two")
    answer = ask(client, stop_sequences=["ST", "STOP", "two"])
    assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", "ST")
    assert answer.content[0].text == "one "
    assert ask(client, max_tokens=3, stop_sequences=["two"]).stop_reason == "max_tokens"


def test_an_answer_may_ask_for_more_than_the_context_holds(
    serve: Callable[..., AbstractContextManager[Served]],
) -> None:
    with serve(FakeFacts(max_context=100)) as small:
        small.script(b"x" * 200)
        answer = post(small, {"max_tokens": 20_000}).json()
    assert answer["stop_reason"] == "model_context_window_exceeded"
    assert answer["usage"]["input_tokens"] + answer["usage"]["output_tokens"] == 100


def test_an_answer_without_text_has_no_block(served: Served, client: anthropic.Anthropic) -> None:
    served.script(b"")
    answer = ask(client)
    assert (answer.content, answer.stop_reason) == ([], "end_turn")
    names = [name for name, _ in events(post(served, {"stream": True}).text)]
    assert names == ["message_start", "message_delta", "message_stop"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_call_is_a_block_of_its_own(served: Served, client: anthropic.Anthropic, stream: bool) -> None:
    served.script(b"Let me see.\n" + CALL)
    options: Any = {"model": "toy", "max_tokens": 200, "messages": USER, "tools": [TOOL]}
    if stream:
        with client.messages.stream(**options) as opened:
            answer: Any = opened.get_final_message()
    else:
        answer = client.messages.create(**options)
    text, call = answer.content
    assert text.text == "Let me see."
    assert (call.type, call.name, call.input) == ("tool_use", "weather", {"city": "Köln", "days": 2})
    assert list(call.input) == ["city", "days"]
    assert answer.stop_reason == "tool_use"


def test_without_leave_to_call_in_parallel_only_the_first_call_is_given(
    served: Served, client: anthropic.Anthropic
) -> None:
    served.script(CALL + CALL)
    both = ask(client, max_tokens=200, tools=[TOOL])
    choice: Any = {"type": "auto", "disable_parallel_tool_use": True}
    one = ask(client, max_tokens=200, tools=[TOOL], tool_choice=choice)
    assert [len(both.content), len(one.content)] == [2, 1]


def test_with_tool_choice_none_a_call_is_text(served: Served, client: anthropic.Anthropic) -> None:
    served.script(CALL)
    answer = ask(client, max_tokens=200, tools=[TOOL], tool_choice={"type": "none"})
    assert [block.type for block in answer.content] == ["text"]
    assert answer.stop_reason == "end_turn"


def test_a_conversation_with_calls_results_and_thoughts_goes_on(
    served: Served, client: anthropic.Anthropic
) -> None:
    served.script(b"Mild.")
    call = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Köln"}}
    thought = {"type": "thinking", "thinking": "Look it up.", "signature": "s"}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "18 °C"}]}
    turns = [
        *USER,
        {"role": "assistant", "content": [thought, {"type": "text", "text": "A moment."}, call]},
        {"role": "user", "content": [result, {"type": "text", "text": "In one word?"}]},
    ]
    answer = ask(client, messages=turns, tools=[TOOL])
    assert answer.content[0].text == "Mild."
    prompt = served.http.post("/v1/messages/count_tokens", json={"model": "toy", "messages": turns}).json()
    assert prompt["input_tokens"] > PROMPT_TOKENS + len("A moment. 18 °C In one word?")


def test_an_assistants_last_turn_is_continued(served: Served, client: anthropic.Anthropic) -> None:
    served.script(b" pump.")
    count = client.messages.count_tokens(model="toy", messages=USER).input_tokens
    turns = [*USER, {"role": "assistant", "content": "The"}]
    answer = ask(client, messages=turns)
    assert answer.usage.input_tokens == count + len("The")


def test_errors_have_the_dialects_shape_and_the_requests_id(served: Served) -> None:
    answer = post(served, {"max_tokens": -1})
    assert answer.status_code == 400
    told = answer.json()
    assert (told["type"], told["error"]["type"]) == ("error", "invalid_request_error")
    assert "max_tokens" in told["error"]["message"]
    assert told["request_id"] == answer.headers["request-id"] == answer.headers["x-request-id"]


def test_the_sdk_raises_its_own_errors(client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError) as missing:
        ask(client, model="other")
    assert missing.value.body["error"]["type"] == "not_found_error"  # type: ignore[index]
    with pytest.raises(anthropic.BadRequestError) as long:
        ask(client, messages=[{"role": "user", "content": "x" * 5000}])
    assert "4096" in long.value.message
    assert long.value.request_id is not None


def test_a_failure_in_mid_stream_is_an_error_event(
    served: Served, client: anthropic.Anthropic, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.script(b"x" * 50)
    steps = iter(range(4))

    def fail_in_time(plan: StepPlan) -> frozenset[SeqId]:
        return frozenset() if next(steps, None) is not None else frozenset(work.seq for work in plan.works)

    monkeypatch.setattr(served.built.runner, "hook", fail_in_time)
    with (
        pytest.raises(anthropic.APIStatusError) as failure,
        client.messages.stream(model="toy", max_tokens=50, messages=USER) as stream,
    ):
        stream.until_done()
    assert stream.current_message_snapshot.content[0].model_dump()["text"].startswith("xxx")
    assert failure.value.body["error"]["type"] == "api_error"  # type: ignore[index]


def body(**options: Any) -> dict[str, Any]:
    return {"model": "toy", "max_tokens": 8, "messages": USER, **options}


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": []}]}, "messages[0].content"),
        ({"messages": [{"role": "tool", "content": "a"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, '"image"'),
        ({"messages": [{"role": "user", "content": [{"type": "document", "source": {}}]}]}, "source.type"),
        ({"system": 7}, "system"),
        ({"system": [{"type": "image"}]}, "system[0]"),
        ({"tools": [{"name": "a"}]}, "tools[0].input_schema"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"thinking": {"type": "enabled", "budget_tokens": 10}}, "thinking.budget_tokens"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config.format.type"),
        ({"stop_sequences": [""]}, "stop_sequences[0]"),
        ({"temperature": "hot"}, "temperature"),
    ],
)
def test_what_is_wrong_or_not_served_is_refused_by_name(
    served: Served, wrong: dict[str, Any], told: str
) -> None:
    assert told in refusal(served, wrong)


def test_what_claude_code_sends_along_is_tolerated(served: Served) -> None:
    served.script(b"ok")
    extras = {
        "thinking": {"type": "adaptive"},
        "context_management": {"edits": []},
        "output_config": {"effort": "high"},
        "metadata": {"user_id": "u"},
        "tools": [{**TOOL, "strict": True, "defer_loading": False, "eager_input_streaming": True}],
        "some_new_field": 1,
    }
    headers = {"anthropic-version": "2023-06-01", "anthropic-beta": "a,b", "x-claude-code-session-id": "s"}
    answer = served.http.post("/v1/messages?beta=true", json=body(**extras), headers=headers)
    assert answer.status_code == 200
    assert answer.headers["x-sapwood-ignored"] == "some_new_field"
    thinking = {"type": "enabled", "budget_tokens": 1024}
    answer = post(served, {"thinking": thinking, "max_tokens": 2000})
    assert answer.headers["x-sapwood-ignored"] == "thinking"


def test_counting_tokens_counts_the_prompt_and_leaves_the_cache_alone(
    served: Served, client: anthropic.Anthropic
) -> None:
    served.script(b"ok")
    options: Any = {"system": "Be short.", "tools": [TOOL], "messages": USER, "model": "toy"}
    counted = client.messages.count_tokens(**options).input_tokens
    answer = client.messages.with_raw_response.create(max_tokens=4, **options)
    assert answer.parse().usage.input_tokens == counted
    assert answer.headers["x-sapwood-cache"].startswith("reused=0;")


def test_models_are_read_by_both_sdks(served: Served, client: anthropic.Anthropic) -> None:
    (listed,) = client.models.list(limit=1000).data
    assert (listed.id, listed.type, listed.display_name) == ("toy", "model", "toy")
    assert listed.created_at.year >= 2026
    assert client.models.retrieve("toy") == listed
    assert [model.id for model in served.openai.models.list().data] == ["toy"]


def test_claude_codes_probe_is_answered(served: Served) -> None:
    assert served.http.head("/api/hello").status_code == 200


def test_a_server_whose_engine_has_stopped_is_overloaded(
    serve: Callable[..., AbstractContextManager[Served]],
) -> None:
    with serve() as other:
        other.built.loop.shutdown()
        answer = post(other, {})
        assert answer.status_code == 529
        assert answer.json()["error"]["type"] == "overloaded_error"
        assert answer.headers["retry-after"] == "1"


def test_silence_is_filled_with_pings_that_the_sdk_skips(
    served: Served, client: anthropic.Anthropic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sapwood.server.generate.HEADER_PATIENCE", 0.0)
    served.script(b"ok")
    text = post(served, {"stream": True}).text
    assert ("ping", {"type": "ping"}) in events(text)
    with client.messages.stream(model="toy", max_tokens=8, messages=USER) as stream:
        assert stream.get_final_text() == "ok"


FULL: dict[str, Any] = {
    "model": "toy",
    "max_tokens": 2,
    "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
    "tools": [{**TOOL, "cache_control": {"type": "ephemeral"}}],
    "tool_choice": {"type": "auto"},
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "u", "cache_control": {"type": "ephemeral"}}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "t", "signature": "s"},
                {"type": "tool_use", "id": "1", "name": "weather", "input": {"city": "Bonn"}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "r"}]},
    ],
    "stop_sequences": ["zz"],
    "temperature": 0.5,
    "top_k": 5,
    "thinking": {"type": "adaptive"},
    "diagnostics": {"previous_message_id": None},
    "output_config": {"effort": "high"},
    "cache_control": {"type": "ephemeral"},
}
ODD: list[Any] = [
    *(None, True, -1, 10**30, 1.5, "", "a", "\ud800", "\0", [], {}, [[]], [{}], [None]),
    *({"type": "ephemeral"}, {"type": "text", "text": "x"}, [{"type": "text", "text": "x"}], "assistant"),
]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    entries = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for step, inner in entries:
        yield (*path, step)
        yield from places(inner, (*path, step))


def test_no_body_however_odd_is_the_servers_fault(served: Served) -> None:
    served.script(b"ok")
    draw = random.Random(7)
    seen: Counter[int] = Counter()
    for *outer, last in places(FULL):
        altered = copy.deepcopy(FULL)
        holder: Any = altered
        for step in outer:
            holder = holder[step]
        holder[last] = draw.choice(ODD)
        path = draw.choice(["/v1/messages", "/v1/messages/count_tokens"])
        answer = served.http.post(path, content=json.dumps(altered).encode())
        seen[answer.status_code] += 1
        assert answer.status_code in (200, 400, 404), (altered, answer.text)
        assert answer.headers["request-id"]
        if answer.status_code != 200:
            assert answer.json()["error"]["message"]
    assert min(seen[200], seen[400]) > 5


def test_the_default_model_answers_is_reused_and_calls_a_tool_when_it_must() -> None:
    system: Any = [
        {"type": "text", "text": "The pump is fed by F7. " * 200, "cache_control": {"type": "ephemeral"}}
    ]
    with (
        serving_default_model("--kv-memory", "256MiB") as (_, url),
        anthropic.Anthropic(base_url=url, api_key="none", max_retries=0, timeout=120) as client,
    ):
        options: Any = {"model": "smollm2-135m", "extra_body": {"temperature": 0}}
        asked: Any = {"max_tokens": 8, "system": system, **options}
        first = client.messages.create(messages=[{"role": "user", "content": "What feeds it?"}], **asked)
        with client.messages.stream(
            messages=[{"role": "user", "content": "What feeds the pump?"}], **asked
        ) as stream:
            second = stream.get_final_message()
        schema = {**TOOL["input_schema"], "additionalProperties": False}
        schema["properties"] = {"city": {"type": "string", "maxLength": 16}}
        tools: Any = [{**TOOL, "input_schema": schema}]
        with client.messages.stream(
            messages=USER,
            max_tokens=90,
            tools=tools,
            tool_choice={"type": "tool", "name": "weather"},
            **options,
        ) as stream:
            forced = stream.get_final_message()
    assert first.usage.cache_read_input_tokens == 0
    assert (first.usage.cache_creation_input_tokens or 0) > 1024
    assert second.usage.cache_read_input_tokens == first.usage.cache_creation_input_tokens
    assert second.usage.cache_creation_input_tokens == 0
    assert 0 < second.usage.output_tokens <= 8
    (call,) = forced.content
    assert call.type == forced.stop_reason == "tool_use"
    assert list(call.model_dump()["input"]) == ["city"]
