"""Clients that hang up: their work stops, their pages go back, everyone else goes on. Over real sockets."""

from __future__ import annotations

import json
import socket
import time

import pytest

from server.conftest import Served
from waiting import eventually

LONG = {"max_tokens": 2000, "ignore_eos": True, "prompt": "a long story: "}


def send(served: Served, body: dict[str, object]) -> socket.socket:
    """Posts a completion and leaves the connection open."""
    host, port = served.url.removeprefix("http://").split(":")
    raw = json.dumps(body).encode()
    connection = socket.create_connection((host, int(port)), timeout=10)
    head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(raw)}\r\n\r\n"
    connection.sendall(head.encode() + raw)
    return connection


def idle(served: Served) -> bool:
    stats = served.built.loop.stats()
    return stats.running == stats.waiting == 0 and stats.pages.leased == stats.pages.private == 0


@pytest.mark.parametrize("stream", [True, False])
def test_hanging_up_aborts_the_request(served: Served, stream: bool) -> None:
    served.built.runner.hook = lambda _: time.sleep(0.002) or frozenset()  # type: ignore[func-returns-value]
    try:
        before = served.built.loop.stats()
        connection = send(served, {**LONG, "stream": stream})
        assert eventually(lambda: served.built.loop.stats().generated_tokens > before.generated_tokens + 5)
        connection.close()
        assert eventually(lambda: idle(served))
        after = served.built.loop.stats()
    finally:
        served.built.runner.hook = lambda _: frozenset()
    assert after.aborts == before.aborts + 1
    assert after.finished == before.finished
    assert after.generated_tokens - before.generated_tokens < 2000


def test_what_was_computed_for_a_lost_client_is_reused(served: Served) -> None:
    served.built.runner.hook = lambda _: time.sleep(0.002) or frozenset()  # type: ignore[func-returns-value]
    try:
        connection = send(served, {**LONG, "stream": True})
        assert b"200 OK" in connection.recv(100)
        connection.close()
        assert eventually(lambda: idle(served))
    finally:
        served.built.runner.hook = lambda _: frozenset()
    prompt = str(LONG["prompt"])
    usage = served.http.post("/v1/completions", json={"prompt": prompt, "max_tokens": 1}).json()["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == len(prompt) - 1


def test_hanging_up_on_a_batch_aborts_all_its_prompts(served: Served) -> None:
    served.built.runner.hook = lambda _: time.sleep(0.002) or frozenset()  # type: ignore[func-returns-value]
    try:
        before = served.built.loop.stats().aborts
        connection = send(served, {**LONG, "prompt": ["a", "b", "c"], "n": 2})
        assert eventually(lambda: served.built.loop.stats().running == 3)
        connection.close()
        assert eventually(lambda: idle(served))
    finally:
        served.built.runner.hook = lambda _: frozenset()
    assert served.built.loop.stats().aborts == before + 3


def test_normal_ends_are_not_aborts(served: Served) -> None:
    served.script(b"done")
    before = served.built.loop.stats()
    for i in range(20):
        body = {"prompt": f"p{i}", "stream": i % 2 == 0}
        assert served.http.post("/v1/completions", json=body).status_code == 200
    after = served.built.loop.stats()
    assert (after.aborts, after.finished) == (before.aborts, before.finished + 20)


def test_a_body_that_never_comes_is_let_go(served: Served) -> None:
    host, port = served.url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)))
    connection.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 500\r\n\r\n{")
    connection.close()
    assert served.http.get("/health").status_code == 200
    assert idle(served)
