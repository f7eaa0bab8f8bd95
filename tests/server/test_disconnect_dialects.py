"""Clients of every dialect that hang up or stop reading: all that was held for them is freed, over real sockets."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import pytest

from sapwood.server import generate
from server.conftest import Served
from server.test_disconnect import idle
from server.test_reports import held
from waiting import eventually

SAY = [{"role": "user", "content": "a long story: "}]
STREAMS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "/v1/chat/completions": {"messages": SAY, "stream": True, "ignore_eos": True},
        "/v1/completions": {"prompt": "a", "stream": True, "max_tokens": 3000, "ignore_eos": True},
        "/v1/messages": {"model": "toy", "max_tokens": 3000, "messages": SAY, "stream": True},
        "/v1/responses": {"input": "a long story: ", "stream": True},
        "/v1beta/models/toy:streamGenerateContent?alt=sse": {"contents": [{"parts": [{"text": "a"}]}]},
        "/generate": {
            "text": "a",
            "sampling_params": {"max_new_tokens": 3000, "ignore_eos": True},
            "stream": True,
        },
        "/completion": {"prompt": "a", "stream": True, "ignore_eos": True},
        "/api/chat": {"model": "toy", "messages": SAY},
        "/api/generate": {"model": "toy", "prompt": "a"},
    }
)
WAITING = MappingProxyType(
    {
        "/v1/chat/completions": b": keep\n\n",
        "/v1/completions": b": keep\n\n",
        "/v1/messages": b'event: ping\ndata: {"type":"ping"}\n\n',
        "/v1/responses": b": keep\n\n",
        "/v1beta/models/toy:streamGenerateContent?alt=sse": b"\n",
        "/generate": b": keep\n\n",
        "/completion": b": keep\n\n",
    }
)
"""What a stream says in silence. Ollama's clients read every line as an answer, so theirs says nothing."""


def posted(served: Served, path: str, body: Mapping[str, Any], cut: int | None = None) -> socket.socket:
    """A connection on which a body was posted, or its first `cut` bytes."""
    host, port = served.url.removeprefix("http://").split(":")
    raw = json.dumps(body).encode()
    connection = socket.create_connection((host, int(port)), timeout=10)
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(raw)}\r\n\r\n"
    connection.sendall(head.encode() + raw[:cut])
    return connection


@contextmanager
def endless(served: Served) -> Iterator[None]:
    """The model says letters, a step every other millisecond, until it is stopped."""
    served.script(b"abcdefgh " * 1000)
    served.built.runner.hook = lambda _: time.sleep(0.002) or frozenset()  # type: ignore[func-returns-value]
    try:
        yield
    finally:
        served.built.runner.hook = lambda _: frozenset()


@pytest.mark.parametrize("path", STREAMS)
def test_hanging_up_in_the_midst_of_an_answer_frees_it(served: Served, path: str) -> None:
    before = served.built.loop.stats()
    with endless(served):
        connection = posted(served, path, STREAMS[path])
        assert eventually(lambda: served.built.loop.stats().generated_tokens > before.generated_tokens + 5)
        assert b"200 OK" in connection.recv(100)
        connection.close()
        assert eventually(lambda: idle(served))
    after = served.built.loop.stats()
    assert (after.aborts, after.finished) == (before.aborts + 1, before.finished)
    served.built.loop.call(lambda engine: engine.cache.check()).result(10)


@pytest.mark.parametrize("path", STREAMS)
def test_hanging_up_before_the_prompt_was_read_frees_it(served: Served, path: str) -> None:
    before = served.built.loop.stats().aborts
    with held(served) as waiting:
        connection = posted(served, path, STREAMS[path])
        assert waiting.wait(10)
        connection.close()
    assert eventually(lambda: served.built.loop.stats().aborts == before + 1)
    assert idle(served)


@pytest.mark.parametrize("path", STREAMS)
def test_hanging_up_before_the_body_was_sent_starts_nothing(served: Served, path: str) -> None:
    before = served.built.loop.stats()
    posted(served, path, STREAMS[path], cut=10).close()
    assert served.http.get("/health").status_code == 200
    after = served.built.loop.stats()
    assert idle(served)
    assert (after.prompt_tokens, after.aborts) == (before.prompt_tokens, before.aborts)


def test_a_client_that_stops_reading_keeps_no_page_once_it_is_gone(served: Served) -> None:
    """Its answer ends meanwhile: what it did not read waits in the server, not in the cache."""
    served.script(b"abcdefgh " * 1000)
    long = {**STREAMS["/v1/chat/completions"], "max_tokens": 600, "logprobs": True, "top_logprobs": 20}
    connection = posted(served, "/v1/chat/completions", long)
    others = {"prompt": "b", "max_tokens": 3}
    assert served.http.post("/v1/completions", json=others).json()["choices"][0]["text"] == "abc"
    assert eventually(lambda: idle(served))
    connection.close()
    assert served.http.post("/v1/completions", json=others).status_code == 200
    assert eventually(lambda: idle(served))
    served.built.loop.call(lambda engine: engine.cache.check()).result(10)


@pytest.mark.parametrize("path", STREAMS)
def test_a_stream_says_in_its_own_way_that_a_long_prompt_is_still_read(
    served: Served, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generate, "HEADER_PATIENCE", 0.05)
    monkeypatch.setattr(generate, "KEEP_ALIVE_SECONDS", 0.05)
    body = {**STREAMS[path]}
    with held(served):
        connection = posted(served, path, body)
        read, expected = b"", WAITING.get(path)
        # A chunk of the transfer: its length, a line break, and what was said.
        said = b"" if expected is None else b"%x\r\n%s\r\n" % (len(expected), expected)
        while b"\r\n\r\n" not in read or read.count(said) < 2:
            read += connection.recv(1000)
    assert read.startswith(b"HTTP/1.1 200 OK")
    connection.close()
    assert eventually(lambda: idle(served))
