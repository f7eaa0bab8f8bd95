"""An answer whose own grammar lets it go no further: the client's error in each dialect, not the server's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from server.conftest import Served

TURN = [{"role": "user", "content": "hi"}]
SCHEMA: Mapping[str, Any] = MappingProxyType(
    {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
)
PLAIN = dict(SCHEMA) | {"additionalProperties": False}
GEMINI = "/v1beta/models/toy"
CALLS: Mapping[str, tuple[str, dict[str, Any]]] = MappingProxyType(
    {
        "openai": (
            "/v1/chat/completions",
            {
                "messages": TURN,
                "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": PLAIN}},
            },
        ),
        "completions": ("/v1/completions", {"prompt": "hi", "guided_json": PLAIN}),
        "responses": (
            "/v1/responses",
            {
                "model": "toy",
                "input": "hi",
                "text": {"format": {"type": "json_schema", "name": "s", "schema": PLAIN}},
            },
        ),
        "anthropic": (
            "/v1/messages",
            {
                "model": "toy",
                "max_tokens": 30,
                "messages": TURN,
                "output_config": {"format": {"type": "json_schema", "schema": PLAIN}},
            },
        ),
        "gemini": (
            GEMINI,
            {
                "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
                "generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": PLAIN},
            },
        ),
        "ollama": ("/api/chat", {"model": "toy", "messages": TURN, "format": PLAIN}),
        "sglang": ("/generate", {"text": "hi", "sampling_params": {"json_schema": json.dumps(PLAIN)}}),
        "llamacpp": ("/completion", {"prompt": "hi", "json_schema": PLAIN}),
    }
)


@pytest.fixture
def astray(served: Served) -> Served:
    """Its model says a token that no schema allows, after which nothing may follow."""
    served.script(b"?!")
    return served


def called(served: Served, dialect: str, *, stream: bool) -> Any:
    path, body = CALLS[dialect]
    if dialect == "gemini":
        path += ":streamGenerateContent?alt=sse" if stream else ":generateContent"
        return served.http.post(path, json=body)
    return served.http.post(path, json={**body, "stream": stream})


def frames(text: str) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in text.splitlines()]
    return [json.loads(line) for line in lines if line.startswith("{")]


@pytest.mark.parametrize("dialect", CALLS)
def test_when_nothing_was_sent_it_is_a_bad_request(astray: Served, dialect: str) -> None:
    answer = called(astray, dialect, stream=False)
    assert answer.status_code == 400, answer.text
    assert "the grammar cannot go on" in answer.text
    assert "model failed" not in answer.text


@pytest.mark.parametrize("dialect", CALLS)
def test_in_a_stream_it_is_the_dialects_own_last_word(astray: Served, dialect: str) -> None:
    answer = called(astray, dialect, stream=True)
    assert answer.status_code == 200
    last = frames(answer.text)[-1]
    match dialect:
        case "responses":
            assert last["type"] == "response.failed"
            told = last["response"]["error"]
        case "ollama":
            told = {"message": last["error"]}
        case "anthropic":
            assert (last["type"], last["error"]["type"]) == ("error", "invalid_request_error")
            told = last["error"]
        case "gemini":
            assert (last["error"]["code"], last["error"]["status"]) == (400, "INVALID_ARGUMENT")
            told = last["error"]
        case _:
            told = last["error"]
    assert "the grammar cannot go on" in told["message"]
    assert "server_error" not in json.dumps(last)


def test_the_field_that_asked_for_the_grammar_is_named(astray: Served) -> None:
    error = called(astray, "openai", stream=False).json()["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "constraint_dead_end")
    assert error["param"] == "response_format.json_schema.schema"


def test_the_next_call_is_answered(astray: Served) -> None:
    called(astray, "openai", stream=False)
    answer = astray.http.post("/v1/completions", json={"prompt": "hi", "max_tokens": 2}).json()
    assert answer["choices"][0]["text"] == "?!"
