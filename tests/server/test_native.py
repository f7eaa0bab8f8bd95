"""What every native dialect keeps to: bodies that are no calls, clients that leave, a model that is not there."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

import pytest
from starlette.testclient import TestClient

from sapwood.config import ServerConfig
from sapwood.server.app import create_app
from sapwood.server.slot import Slot
from server.conftest import Served
from server.test_disconnect import idle
from waiting import eventually

LONG: dict[str, dict[str, Any]] = {
    "/generate": {"text": "a story: ", "sampling_params": {"max_new_tokens": 2000, "ignore_eos": True}},
    "/completion": {"prompt": "a story: ", "n_predict": 2000, "ignore_eos": True},
    "/api/chat": {"messages": [{"role": "user", "content": "a story"}]},
    "/api/generate": {"prompt": "a story"},
}


def message_of(path: str, body: dict[str, Any]) -> str:
    said: str = body["error"] if path.startswith("/api") else body["error"]["message"]
    return said


@pytest.mark.parametrize("path", LONG)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"text"',
        b"\xff\xfe",
        b'{"prompt": NaN}',
        b'{"text": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"prompt": "\\ud800", "text": "\\ud800", "messages": "\\ud800"}',
        b'{"prompt": "a", "text": "a", "messages": "a", "stream": "yes"}',
        b'{"prompt": 1' + b"0" * 5000 + b"}",
    ],
)
def test_bodies_that_are_no_calls_are_refused_in_the_dialects_shape(
    served: Served, path: str, body: bytes
) -> None:
    answer = served.http.post(path, content=body)
    assert answer.status_code == 400
    assert message_of(path, answer.json())


@pytest.mark.parametrize("path", [*LONG, "/api/show"])
def test_a_body_has_a_limit(serve: Any, path: str) -> None:
    with serve(max_body_bytes=1000) as served:
        answer = served.http.post(path, content=b" " * 1001)
        assert answer.status_code == 413
        assert "1000 bytes" in message_of(path, answer.json())


@pytest.mark.parametrize("path", LONG)
@pytest.mark.parametrize("stream", [True, False])
def test_hanging_up_frees_everything(served: Served, path: str, stream: bool) -> None:
    served.script(b"a" * 3000)
    served.built.runner.hook = lambda _: time.sleep(0.002) or frozenset()  # type: ignore[func-returns-value]
    try:
        before = served.built.loop.stats()
        raw = json.dumps({**LONG[path], "stream": stream}).encode()
        host, port = served.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(raw)}\r\n\r\n"
            connection.sendall(head.encode() + raw)
            assert eventually(
                lambda: served.built.loop.stats().generated_tokens > before.generated_tokens + 5
            )
        assert eventually(lambda: idle(served))
        assert served.built.loop.stats().aborts == before.aborts + 1
    finally:
        served.built.runner.hook = lambda _: frozenset()


@pytest.mark.parametrize("path", [*LONG, "/api/show"])
def test_a_model_that_still_loads_is_a_503_in_the_dialects_shape(path: str) -> None:
    client = TestClient(create_app(Slot(), ServerConfig()))
    answer = client.post(path, json=LONG.get(path, {"model": "toy"}))
    assert answer.status_code == 503
    assert "loading" in message_of(path, answer.json())


@pytest.mark.parametrize("path", ["/api/tags", "/api/ps", "/slots", "/props", "/model_info", "/server_info"])
def test_what_is_told_of_the_model_waits_for_it_too(path: str) -> None:
    answer = TestClient(create_app(Slot(), ServerConfig())).get(path)
    assert answer.status_code == 503
    assert "loading" in message_of(path, answer.json())


@pytest.mark.parametrize("path", ["/generate", "/completion", "/api/generate"])
def test_a_failure_in_a_stream_is_told_in_the_stream(served: Served, path: str) -> None:
    served.script(b"abcdef")
    steps = 0

    def fail(_: object) -> frozenset[int]:
        nonlocal steps
        steps += 1
        if steps > 2:
            raise RuntimeError("the fake model broke")
        return frozenset()

    served.built.runner.hook = fail  # type: ignore[assignment]
    try:
        answer = served.http.post(path, json={**LONG[path], "stream": True})
    finally:
        served.built.runner.hook = lambda _: frozenset()
    assert answer.status_code == 200
    last = answer.text.strip().splitlines()[-1].removeprefix("data: ")
    assert "broke" in message_of(path, json.loads(last))
