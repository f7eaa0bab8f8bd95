"""Ollama's routes, through its own Python client and over plain HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import ollama
import pytest

from server.conftest import Served

OPTIONS = {"temperature": 0, "num_predict": 5}
HELLO = [{"role": "user", "content": "hello"}]
CALL: dict[str, Any] = {"function": {"name": "f", "arguments": {}}}


@pytest.fixture
def client(served: Served) -> Iterator[ollama.Client]:
    with ollama.Client(host=served.url, timeout=30) as client:
        yield client


def test_a_chat_is_answered_as_the_openai_route_answers_it(served: Served, client: ollama.Client) -> None:
    theirs = served.openai.chat.completions.create(
        model="toy",
        messages=[{"role": "user", "content": "hello"}],
        temperature=0,
        max_tokens=5,
    )
    ours = client.chat("toy", messages=HELLO, options=OPTIONS)
    assert ours.message.content == theirs.choices[0].message.content
    assert ours.message.role == "assistant"
    assert ours.done is True
    assert ours.done_reason == theirs.choices[0].finish_reason
    assert theirs.usage is not None
    assert ours.prompt_eval_count == theirs.usage.prompt_tokens
    assert ours.eval_count == theirs.usage.completion_tokens


def test_the_prompt_is_counted_in_full_cold_and_warm(served: Served, client: ollama.Client) -> None:
    before = served.built.loop.stats().reused_tokens
    counts = [client.chat("toy", messages=HELLO, options=OPTIONS).prompt_eval_count for _ in range(2)]
    assert counts[0] == counts[1]
    assert counts[0] is not None
    assert served.built.loop.stats().reused_tokens - before == counts[0] - 1


def test_pieces_join_to_the_whole_answer_and_durations_add_up(served: Served, client: ollama.Client) -> None:
    served.script("häst".encode())
    pieces = list(client.chat("toy", messages=HELLO, stream=True))
    assert "".join(piece.message.content or "" for piece in pieces) == "häst"
    assert [piece.done for piece in pieces] == [False] * 4 + [True]
    last = pieces[-1]
    assert last.done_reason == "stop"
    assert last.eval_count == 6
    durations = [last.load_duration, last.prompt_eval_duration, last.eval_duration]
    assert all(isinstance(each, int) and each >= 0 for each in durations)
    assert last.total_duration is not None
    assert sum(each or 0 for each in durations) <= last.total_duration


def test_lines_are_streamed_unless_they_are_refused(served: Served) -> None:
    body = {"model": "toy", "messages": HELLO, "options": OPTIONS}
    streamed = served.http.post("/api/chat", json=body)
    assert streamed.headers["content-type"] == "application/x-ndjson"
    lines = [json.loads(line) for line in streamed.text.splitlines()]
    assert lines[-1]["done"] is True
    whole = served.http.post("/api/chat", json={**body, "stream": False})
    assert whole.headers["content-type"] == "application/json"
    said = "".join(line["message"]["content"] for line in lines)
    assert whole.json()["message"]["content"] == said


def test_a_raw_prompt_is_taken_as_it_is(served: Served, client: ollama.Client) -> None:
    theirs = served.openai.completions.create(model="toy", prompt="the sky", temperature=0, max_tokens=5)
    raw = client.generate("toy", "the sky", raw=True, options=OPTIONS)
    assert raw.response == theirs.choices[0].text
    assert (raw.prompt_eval_count, raw.context) == (7, None)


def test_a_prompt_is_a_users_turn_after_the_system_text(served: Served, client: ollama.Client) -> None:
    messages = [{"role": "system", "content": "be brief"}, *HELLO]
    chat = client.chat("toy", messages=messages, options=OPTIONS)
    generated = client.generate("toy", "hello", system="be brief", options=OPTIONS)
    assert generated.response == chat.message.content
    assert generated.prompt_eval_count == chat.prompt_eval_count
    tokens = served.http.post("/tokenize", json={"messages": messages}).json()["tokens"]
    assert list(generated.context or ())[: len(tokens)] == tokens
    assert len(generated.context or ()) == len(tokens) + (generated.eval_count or 0)


def test_an_earlier_context_goes_before_the_prompt_and_is_reused(
    served: Served, client: ollama.Client
) -> None:
    first = client.generate("toy", "hello", options=OPTIONS)
    assert first.context is not None
    before = served.built.loop.stats().reused_tokens
    second = client.generate("toy", "and then?", context=first.context, options=OPTIONS)
    assert second.context is not None
    assert list(second.context)[: len(first.context)] == list(first.context)
    # What the first answer's last token would have needed was never computed.
    assert served.built.loop.stats().reused_tokens - before == len(first.context) - 1


def test_an_assistants_last_message_is_gone_on_with(served: Served, client: ollama.Client) -> None:
    served.script(b"o")
    messages = [*HELLO, {"role": "assistant", "content": "hell"}]
    answer = client.chat("toy", messages=messages)
    tokens = served.http.post(
        "/tokenize",
        json={"messages": messages, "continue_final_message": True, "add_generation_prompt": False},
    ).json()["tokens"]
    assert answer.message.content == "o"
    assert answer.prompt_eval_count == len(tokens)


@pytest.mark.parametrize("path", ["/api/chat", "/api/generate"])
def test_nothing_to_say_sees_that_the_model_is_there(served: Served, path: str) -> None:
    body: dict[str, Any] = {"model": "toy", "messages": [], "prompt": "", "keep_alive": "10m"}
    body.pop("prompt" if path == "/api/chat" else "messages")
    answer = served.http.post(path, json=body)
    assert answer.status_code == 200
    assert (answer.json()["done"], answer.json()["done_reason"]) == (True, "load")
    for never in (0, "0s", "0"):
        refused = served.http.post(path, json={**body, "keep_alive": never})
        assert refused.status_code == 400
        assert "cannot unload" in refused.json()["error"]


def test_a_stop_string_and_a_seed_are_obeyed(served: Served, client: ollama.Client) -> None:
    options = {"seed": 7, "temperature": 1.0, "num_predict": 8}
    drawn = [client.generate("toy", "x", options=options).response for _ in range(2)]
    assert drawn[0] == drawn[1]
    served.script(b"one. two.")
    assert client.generate("toy", "x", options={"stop": ["."]}).response == "one"


def test_an_answer_ends_where_the_context_does(served: Served, client: ollama.Client) -> None:
    served.script(b"a" * 100)
    answer = client.generate("toy", "x" * 4090, raw=True, options={"num_predict": -1})
    assert (answer.eval_count, answer.done_reason) == (6, "length")


def test_the_tag_latest_may_be_left_out_and_other_models_are_not_found(
    client: ollama.Client,
) -> None:
    assert client.chat("toy:latest", messages=HELLO, options=OPTIONS).model == "toy:latest"
    for call in (client.show, lambda name: client.chat(name, messages=HELLO)):
        with pytest.raises(ollama.ResponseError, match="'other' not found") as caught:
            call("other")
        assert caught.value.status_code == 404


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"messages": [{"role": "alien", "content": "x"}]}, "'messages[0].role'"),
        ({"messages": [{"role": "user", "content": 3}]}, "'messages[0].content' is 3"),
        ({"messages": [{"role": "user", "content": "x", "images": ["aa"]}]}, "'messages[0].images'"),
        ({"messages": HELLO, "format": "xml"}, "'format' is \"xml\""),
        ({"messages": HELLO, "format": {"type": 3}}, "'format' cannot be used"),
        ({"messages": HELLO, "think": True}, "'toy' does not support thinking"),
        ({"messages": HELLO, "think": "much"}, "'think' is \"much\""),
        ({"messages": HELLO, "tools": [{"type": "function"}]}, "'tools[0].function'"),
        ({"messages": HELLO, "top_logprobs": 21}, "'top_logprobs' is 21"),
        ({"messages": [{**HELLO[0], "tool_calls": [CALL]}]}, "'messages[0].tool_calls' is the assistant's"),
        ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "'messages[0].tool_calls[0].function'"),
        (
            {
                "messages": [
                    {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}
                ]
            },
            "'messages[0].tool_calls[0].function.arguments'",
        ),
        ({"messages": HELLO, "options": {"temperature": "x"}}, "'options.temperature'"),
        ({"messages": HELLO, "options": {"num_predict": 1.5}}, "'options.num_predict'"),
        ({"messages": HELLO, "options": {"mirostat": 1}}, "'options.mirostat'"),
        ({"messages": HELLO, "options": {"stop": ["a"] * 100}}, "'options.stop'"),
        ({"messages": "x"}, "'messages'"),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(served: Served, body: dict[str, Any], named: str) -> None:
    answer = served.http.post("/api/chat", json={"model": "toy", **body})
    assert answer.status_code == 400
    assert list(answer.json()) == ["error"]
    assert named in answer.json()["error"]


@pytest.mark.parametrize(
    "body",
    [
        {"prompt": "x", "raw": True, "system": "y"},
        {"prompt": "x", "context": [259]},
        {"prompt": "x", "suffix": "y"},
        {"prompt": "x", "template": "{{ .Prompt }}"},
        {"prompt": "x" * 5000},
    ],
)
def test_generate_refuses_in_the_same_shape(served: Served, body: dict[str, Any]) -> None:
    answer = served.http.post("/api/generate", json={"model": "toy", **body})
    assert answer.status_code == 400
    assert isinstance(answer.json()["error"], str)


def test_options_without_a_meaning_here_are_named(served: Served) -> None:
    options = {"num_ctx": 8192, "num_gpu": 1, "num_predict": 1}
    body = {"model": "toy", "messages": HELLO, "options": options, "think": False, "format": ""}
    answer = served.http.post("/api/chat", json=body)
    assert answer.status_code == 200
    assert answer.headers["x-sapwood-ignored"] == "options.num_ctx,options.num_gpu"


def test_the_model_is_listed_shown_and_running(client: ollama.Client) -> None:
    (listed,) = client.list().models
    assert listed.model == "toy:latest"
    assert listed.modified_at is not None
    (running,) = client.ps().models
    assert (running.model, running.context_length) == ("toy:latest", 4096)
    shown = client.show("toy")
    assert shown.capabilities == ["completion", "tools"]
    assert shown.modelinfo is not None
    assert shown.modelinfo["general.basename"] == "toy"
    assert shown.modelinfo[f"{shown.modelinfo['general.architecture']}.context_length"] == 4096
    assert "temperature 1.0" in (shown.parameters or "").splitlines()
    assert "<|start|>" in (shown.template or "")
    assert shown.details is not None


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_its_root_says_that_it_is_running(served: Served, method: str) -> None:
    answer = served.http.request(method, "/")
    assert (answer.status_code, answer.text) == (200, "Ollama is running" if method == "GET" else "")


def test_what_there_is_not_is_not_found_in_the_same_shape(served: Served, client: ollama.Client) -> None:
    with pytest.raises(ollama.ResponseError, match="/api/embed") as caught:
        client.embed("toy", "text")
    assert caught.value.status_code == 404
    assert isinstance(served.http.post("/api/nothing").json()["error"], str)


def test_the_version_is_told_and_a_show_without_a_name_is_refused(served: Served) -> None:
    version = served.http.get("/v1/server").json()["version"]
    assert served.http.get("/api/version").json() == {"version": version}
    answer = served.http.post("/api/show", json={})
    assert (answer.status_code, answer.json()) == (400, {"error": "'model' is required"})
