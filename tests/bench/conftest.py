"""A server that answers at once from a script, in every dialect that the harness speaks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from bench.asking import Abilities, Dialect, Server
from bench.client import Address


@dataclass
class Stub:
    """What one stub was asked, in order, and how it misbehaves."""

    name: str
    dialect: Dialect
    log: list[tuple[str, str, dict[str, Any]]]
    """(name, path, body) of every request; shared by the stubs of a test."""
    drifts: bool = False
    """Whether an answer changes once its prompt is cached."""
    short: bool = False
    """Whether it generates one token too few."""
    key: str | None = None
    """The API key that it wants."""
    refuses: frozenset[str] = frozenset()
    """Fields that it answers with 400, "ids" for prompts of token ids, and routes that it has not."""
    seen: set[str] = field(default_factory=set)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, path, _ = head.split(" ", 2)
        length = int(head.lower().split("content-length:")[1].split()[0])
        body = json.loads(await reader.readexactly(length)) if length else {}
        self.log.append((self.name, path, body))
        if self.key is not None and f"authorization: bearer {self.key}" not in head.lower():
            _send_json(writer, 401, {"error": "no key"})
        elif path in self.refuses:
            _send_json(writer, 404, {"error": f"there is no {path}"})
        elif refused := self.refuses & {*body, *_kind(body)}:
            _send_json(writer, 400, {"error": f"unknown: {sorted(refused)}"})
        elif path == "/v1/models":
            _send_json(writer, 200, {"data": [{"id": "stub-model"}]})
        elif path == "/flush_cache":
            self.seen.clear()
            _send_json(writer, 200, {"flushed_tokens": 0})
        elif method == "POST" and path in ("/completion", "/v1/completions", "/v1/chat/completions"):
            _send_events(writer, self._events(path, body))
        else:
            _send_json(writer, 404, {"error": f"there is no {path}"})
        await writer.drain()
        writer.close()

    def _events(self, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
        prompt: Any = body["prompt"] if "prompt" in body else body["messages"]
        key = json.dumps(prompt)
        warm = key in self.seen and body.get("cache_prompt", True)
        self.seen.add(key)
        count = int(body["n_predict"] if path == "/completion" else body["max_tokens"]) - self.short
        count *= int(body.get("n", 1))
        words = [f"w{(len(key) + i) % 97} " for i in range(count)]
        if warm and self.drifts:
            words[-1] = "drift "
        cached = len(prompt) - 1 if warm else 0
        if path == "/completion":
            return _llama_events(words, len(prompt), cached)
        events = _openai_events(words, len(prompt), cached, chat="chat" in path)
        return events if "stream_options" in body else events[:-1]


def _kind(body: dict[str, Any]) -> set[str]:
    return {"ids"} if isinstance(body.get("prompt"), list) else set()


def _llama_events(words: list[str], prompt: int, cached: int) -> list[dict[str, Any]]:
    pieces: list[dict[str, Any]] = [
        {"content": word, "stop": False, "completion_probabilities": [{"logprob": -0.5}]} for word in words
    ]
    last = {
        "content": "",
        "stop": True,
        "tokens_evaluated": prompt,
        "tokens_predicted": len(words),
        "timings": {"cache_n": cached},
        "completion_probabilities": [{"logprob": -0.5} for _ in words],
    }
    return [*pieces, last]


def _openai_events(words: list[str], prompt: int, cached: int, *, chat: bool) -> list[dict[str, Any]]:
    def choice(word: str, finish: str | None) -> dict[str, Any]:
        text = {"delta": {"content": word}} if chat else {"text": word}
        logprobs = None if chat else {"token_logprobs": [-0.25]}
        return {"choices": [{**text, "logprobs": logprobs, "finish_reason": finish}], "usage": None}

    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": len(words),
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    role = (
        [{"choices": [{"delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}]
        if chat
        else []
    )
    pieces = [choice(word, "length" if i == len(words) - 1 else None) for i, word in enumerate(words)]
    return [*role, *pieces, {"choices": [], "usage": usage}]


def _send_json(writer: asyncio.StreamWriter, status: int, body: dict[str, Any]) -> None:
    data = json.dumps(body).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    writer.write(head.encode() + data)


def _send_events(writer: asyncio.StreamWriter, events: list[dict[str, Any]]) -> None:
    """Chunked, and cut where no event ends."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    data = b": hello\n\n" + b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
    data += b"data: [DONE]\n\n"
    for start in range(0, len(data), 37):
        piece = data[start : start + 37]
        writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
    writer.write(b"0\r\n\r\n")


StubMaker = Callable[..., Stub]
Opener = Callable[[Stub], AbstractAsyncContextManager[Server]]


@pytest.fixture
def make_stub() -> StubMaker:
    log: list[tuple[str, str, dict[str, Any]]] = []

    def make(name: str, dialect: Dialect, **ways: Any) -> Stub:
        return Stub(name, dialect, log, **ways)

    return make


@pytest.fixture
def serving() -> Opener:
    @asynccontextmanager
    async def serve(stub: Stub) -> AsyncIterator[Server]:
        async with await asyncio.start_server(stub.handle, "127.0.0.1", 0) as listener:
            port = listener.sockets[0].getsockname()[1]
            able = Abilities(forget="/flush_cache" if stub.dialect == "sapwood" else None)
            address = Address("127.0.0.1", port, key=stub.key)
            yield Server(stub.name, address, stub.dialect, "stub-model", abilities=able)

    return serve
