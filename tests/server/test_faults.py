"""Whatever arrives, the answer is an OpenAI error body, and the server goes on."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import httpx
import pytest

from server.conftest import Served

CHAT = "/v1/chat/completions"
HI = [{"role": "user", "content": "hi"}]


def error_of(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert set(body) == {"error"}
    error = body["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    assert error["message"]
    assert error["code"] is None or isinstance(error["code"], str)
    assert answer.headers["x-request-id"].startswith("req-")
    return dict(error)


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing", 404, "unknown_url"),
        ("POST", "/v1/chat/completions/", 404, "unknown_url"),
        ("POST", "/v1/responses", 404, "unknown_url"),
        ("GET", CHAT, 405, "method_not_allowed"),
        ("DELETE", "/v1/models", 405, "method_not_allowed"),
        ("GET", "/flush_cache", 405, "method_not_allowed"),
    ],
)
def test_routes_that_are_not_there(served: Served, method: str, path: str, status: int, code: str) -> None:
    answer = served.http.request(method, path)
    error = error_of(answer, status)
    assert error["code"] == code
    assert path in error["message"]
    assert answer.headers["x-should-retry"] == "false"
    if status == 405:
        assert "allow" in answer.headers


@pytest.mark.parametrize(
    "body", [b"", b"{", b"null", b"[]", b"\xff\xfe", b'{"messages": NaN}', b"[" * 200_000, b'"x"', b"{}x"]
)
@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/tokenize", "/detokenize"])
def test_bodies_that_are_no_json_object(served: Served, path: str, body: bytes) -> None:
    assert error_of(served.http.post(path, content=body), 400)["code"] == "invalid_json"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 0),
        ("n", True),
        ("n", 129),
        ("n", 10**40),
        ("temperature", -1),
        ("temperature", "warm"),
        ("top_p", 0),
        ("max_tokens", -5),
        ("max_tokens", 1e9),
        ("seed", 2**80),
        ("stop", [""]),
        ("stop", {"a": 1}),
        ("stream", "true"),
        ("logit_bias", {"9999": 1}),
        ("stop_token_ids", [259]),
        ("messages", []),
        ("messages", [{"role": "user", "content": "a\0"}]),
        ("cache_salt", 5),
    ],
)
def test_wrong_values_are_named(served: Served, field: str, value: Any) -> None:
    error = error_of(served.http.post(CHAT, json={"messages": HI, field: value}), 400)
    assert error["type"] == "invalid_request_error"
    assert error["param"].startswith(field)
    assert field in error["message"]


def test_half_a_surrogate_pair_in_json_is_refused(served: Served) -> None:
    body = b'{"messages": [{"role": "user", "content": "\\ud83d"}]}'
    assert error_of(served.http.post(CHAT, content=body), 400)["param"] == "messages[0].content"
    pair = b'{"messages": [{"role": "user", "content": "\\ud83c\\udf32"}], "max_tokens": 1}'
    assert served.http.post(CHAT, content=pair).status_code == 200


def test_infinities_spelled_as_numbers_are_refused(served: Served) -> None:
    body = b'{"messages": [{"role": "user", "content": "hi"}], "temperature": 1e999}'
    assert error_of(served.http.post(CHAT, content=body), 400)["param"] == "temperature"


def test_the_content_type_does_not_matter(served: Served) -> None:
    body = json.dumps({"messages": HI, "max_tokens": 1}).encode()
    assert served.http.post(CHAT, content=body, headers={"content-type": "text/plain"}).status_code == 200


Serve = Callable[..., AbstractContextManager[Served]]


def test_a_long_body_is_refused_with_its_limit(serve: Serve) -> None:
    with serve(max_body_bytes=1000) as served:
        long = {"messages": [{"role": "user", "content": "x" * 2000}]}
        error = error_of(served.http.post(CHAT, json=long), 413)
        assert error["code"] == "body_too_large"
        assert "1000" in error["message"]

        def pieces() -> Iterator[bytes]:
            for _ in range(20):
                yield b"x" * 100

        assert "1000" in error_of(served.http.post(CHAT, content=pieces()), 413)["message"]
        assert "1000" in error_of(served.http.post("/tokenize", content=b"x" * 1001), 413)["message"]
        assert served.http.post(CHAT, json={"messages": HI, "max_tokens": 1}).status_code == 200


def test_a_crash_tells_the_client_nothing(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object) -> None:
        raise ZeroDivisionError("secret path")

    monkeypatch.setattr(type(served.built.tokenizer), "decode", crash)
    answer = served.http.post("/detokenize", json={"tokens": [1]})
    error = error_of(answer, 500)
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text
    assert (error["type"], error["code"]) == ("server_error", "internal_error")
    assert answer.headers["x-should-retry"] == "false"


def test_a_model_failure_is_a_500_or_an_error_event(served: Served) -> None:
    served.built.runner.hook = lambda plan: frozenset(work.seq for work in plan.works)
    try:
        error = error_of(served.http.post(CHAT, json={"messages": HI}), 500)
        assert "told to fail" in error["message"]
        streamed = served.http.post(CHAT, json={"messages": HI, "stream": True})
    finally:
        served.built.runner.hook = lambda _: frozenset()
    # The prompt had been admitted, so the stream had begun.
    assert streamed.status_code == 200
    last = streamed.text.strip().split("\n\n")[-1]
    assert "told to fail" in json.loads(last.removeprefix("data: "))["error"]["message"]
    assert "[DONE]" not in streamed.text
    assert served.http.post(CHAT, json={"messages": HI, "max_tokens": 1}).status_code == 200


def test_garbage_on_the_socket_does_not_hurt(served: Served) -> None:
    host, port = served.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as raw:
        raw.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        assert b"400" in raw.recv(100)
    assert served.http.get("/health").status_code == 200


LIMIT = 4096 * len("<|start|>")
"""Bytes of the longest prompt that could fit."""
PART = "x" * (LIMIT // 3 + 1)


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/completions", {"prompt": "x" * (LIMIT + 1)}, "prompt"),
        ("/v1/completions", {"prompt": ["a", "x" * (LIMIT + 1)], "stream": True}, "prompt[1]"),
        ("/v1/completions", {"prompt": ["x" * LIMIT] * 120}, "prompt"),
        (CHAT, {"messages": [*HI, {"role": "user", "content": "x" * (LIMIT + 1)}]}, "messages[1].content"),
        (CHAT, {"messages": [{"role": "user", "content": PART}] * 3}, "messages"),
        (
            CHAT,
            {"messages": [{"role": "user", "content": [{"type": "text", "text": ""}] * LIMIT}]},
            "messages",
        ),
        (CHAT, {"messages": [{"role": "user", "content": "", "name": PART}] * 3}, "messages"),
        (CHAT, {"messages": HI, "chat_template_kwargs": {"a": [PART] * 3}}, "messages"),
        ("/tokenize", {"prompt": "x" * (LIMIT + 1)}, "prompt"),
        ("/tokenize", {"messages": [{"role": "user", "content": PART}] * 3}, "messages"),
        ("/detokenize", {"tokens": [1] * (LIMIT + 1)}, "tokens"),
    ],
    ids=[str(i) for i in range(11)],
)
def test_what_cannot_fit_is_refused_without_touching_the_tokenizer(
    served: Served, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any], param: str
) -> None:
    for name in ("encode", "decode"):
        monkeypatch.setattr(type(served.built.tokenizer), name, lambda *_, **__: pytest.fail("was tokenised"))
    error = error_of(served.http.post(path, json=body), 400)
    assert (error["code"], error["param"]) == ("context_length_exceeded", param)


def test_no_text_is_encoded_after_one_that_is_too_long(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode, seen = type(served.built.tokenizer).encode, []

    def watched(tokenizer: Any, text: str, **options: Any) -> list[int]:
        seen.append(text)
        return encode(tokenizer, text, **options)

    monkeypatch.setattr(type(served.built.tokenizer), "encode", watched)
    body = {"prompt": ["fine", "x" * 5000, "not reached"]}
    assert error_of(served.http.post("/v1/completions", json=body), 400)["code"] == "context_length_exceeded"
    assert seen == ["fine", "x" * 5000]


def test_too_many_samples_are_refused_with_the_limit(served: Served) -> None:
    error = error_of(served.http.post("/v1/completions", json={"prompt": ["a"] * 300, "n": 100}), 400)
    assert error["param"] == "prompt"
    assert "30000 samples" in error["message"]
    assert "256" in error["message"]
