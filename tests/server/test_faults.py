"""Whatever arrives, the answer is an OpenAI error body, and the server goes on."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import httpx
import pytest

from sapwood.server import body, generate
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
        ("POST", "/v1/embeddings", 404, "unknown_url"),
        ("GET", CHAT, 405, "method_not_allowed"),
        ("DELETE", "/v1/models", 405, "method_not_allowed"),
        ("GET", "/tokenize", 405, "method_not_allowed"),
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
    "body", [b"", b"{", b"null", b"[]", b"\xff\xfe", b'{"messages": NaN}', b"[" * 100_000, b'"x"', b"{}x"]
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
            {"messages": [{"role": "user", "content": [{"type": "text", "text": ""}] * 4096}] * 10},
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


def test_a_body_sent_whole_before_its_answer_is_read_gets_the_413(serve: Serve) -> None:
    with serve(max_body_bytes=1000) as served:
        host, port = served.url.removeprefix("http://").split(":")
        for framing in ({"content-length": str(8 * 2**20)}, {"transfer-encoding": "chunked"}):
            connection = http.client.HTTPConnection(host, int(port), timeout=30)
            connection.putrequest("POST", "/v1/completions")
            for name, value in framing.items():
                connection.putheader(name, value)
            connection.endheaders()
            for _ in range(128):
                piece = b"x" * 2**16
                connection.send(b"10000\r\n" + piece + b"\r\n" if "transfer-encoding" in framing else piece)
            if "transfer-encoding" in framing:
                connection.send(b"0\r\n\r\n")
            answer = connection.getresponse()
            assert answer.status == 413
            assert json.loads(answer.read())["error"]["code"] == "body_too_large"
            connection.close()


def test_who_asks_before_sending_too_much_is_told_at_once(serve: Serve) -> None:
    with serve(max_body_bytes=1000) as served:
        host, port = served.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=3) as raw:
            raw.sendall(
                b"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 2000\r\nExpect: 100-continue\r\n\r\n"
            )
            assert raw.recv(1000).startswith(b"HTTP/1.1 413 ")


def test_a_body_that_stops_coming_is_given_up(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "PATIENCE_SECONDS", 0.5)
    host, port = served.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as raw:
        raw.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        answer = b"".join(iter(lambda: raw.recv(1000), b""))
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"body_timeout"' in answer
    assert b"connection: close" in answer.lower()


def test_a_body_of_two_lengths_is_refused(served: Served) -> None:
    host, port = served.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as raw:
        raw.sendall(
            b"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
            b'e\r\n{"prompt":"a"}\r\n0\r\n\r\n'
        )
        answer = b"".join(iter(lambda: raw.recv(1000), b""))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"not both" in answer
    assert answer.count(b"HTTP/1.1") == 1


def test_a_long_path_is_not_said_back_whole(served: Served) -> None:
    for path in ("/" + "x" * 20_000, f"/v1/requests/{'x' * 20_000}/cache", f"/v1/models/{'x' * 20_000}"):
        assert len(served.http.get(path).content) < 500


def test_health_answers_while_hostile_bodies_are_refused(served: Served) -> None:
    bodies = [
        b'{"messages":[' + b"1," * 2_000_000 + b"1]}",
        b'{"messages":[],"stop_token_ids":[' + b'"x",' * 2_000_000 + b'"x"]}',
        b'{"messages":[' + b'{"role":"user","content":""},' * 500_000 + b"1]}",
    ]
    for hostile in bodies:
        before = time.monotonic()
        assert served.http.post(CHAT, content=hostile).status_code == 400
        # Seconds to a minute before bodies were looked at; generous, for machines that are busy.
        assert time.monotonic() - before < 5
    assert served.http.get("/health").status_code == 200


def test_half_a_surrogate_pair_that_is_told_again_can_be_sent(served: Served) -> None:
    body = b'{"prompt": [1], "cache_retention": {"\\ud800": 1}}'
    error = error_of(served.http.post("/v1/completions", content=body), 400)
    assert error["param"] == "cache_retention.?"


def test_infinity_is_refused_wherever_json_is_passed_on(served: Served) -> None:
    tool = '{"type": "function", "function": {"name": "f", "parameters": {"maximum": 1e999}}}'
    bodies = {
        CHAT: (f'{{"messages": [{{"role": "user", "content": "hi"}}], "tools": [{tool}]}}', "tools[0]"),
        "/v1/responses": ('{"input": "hi", "text": {"verbosity": -1e999}}', "text"),
    }
    for path, (raw, param) in bodies.items():
        error = error_of(served.http.post(path, content=raw.encode()), 400)
        assert (error["param"], "not finite" in error["message"]) == (param, True)


def test_the_scores_of_long_prompts_do_not_keep_others_waiting(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a million scores take a while to write: a worker thread does it."""
    writers = []
    write = generate._encoded

    def watched(*args: Any) -> bytes:
        writers.append(threading.current_thread().name)
        return write(*args)

    monkeypatch.setattr(generate, "_encoded", watched)
    body = {"prompt": "s" * 600, "n": 2, "max_tokens": 1, "echo": True, "logprobs": 1}
    choices = served.http.post("/v1/completions", json=body).json()["choices"]
    assert [len(choice["logprobs"]["tokens"]) for choice in choices] == [601, 601]
    assert writers[0].startswith("AnyIO worker")
