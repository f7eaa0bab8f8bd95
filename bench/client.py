"""One HTTP exchange over asyncio streams, by hand: as little client as possible, the same for every server.

Bytes are stamped when they arrive and parsed when the answer is over.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from .errors import BenchError, BenchUsageError, StatusError

HEAD_LIMIT = 2**16


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens, and the API key that it wants."""

    host: str
    port: int
    tls: bool = False
    key: str | None = field(default=None, repr=False)

    @staticmethod
    def parse(url: str) -> Address:
        """From `http://host:port` or `host:port`, with or without `/v1`. Raises BenchUsageError for anything else."""
        parts = urlsplit(url if "//" in url else f"http://{url}")
        try:
            port = parts.port
        except ValueError:
            port = 0  # no number, or none of a port
        bare = "//" not in url and port is None  # `nonsense`, which might be a name of anything
        if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or bare:
            raise BenchUsageError(
                f"{url!r} is not the URL of a server; expected something like http://host:8000"
            )
        if parts.path.strip("/") not in ("", "v1"):
            raise BenchUsageError(f"{url!r} has the path {parts.path!r}; give the server's root or its /v1")
        tls = parts.scheme == "https"
        return Address(parts.hostname, port or (443 if tls else 80), tls)


@dataclass(frozen=True, slots=True)
class Arrival:
    """The data of one server-sent event; `at` is on the clock of time.perf_counter."""

    at: float
    data: bytes


@dataclass(frozen=True, slots=True)
class Exchange:
    """Attributes:
    arrivals: the events of a `text/event-stream` answer, without the final `[DONE]`.
    body: the whole answer otherwise.
    """

    status: int
    sent_at: float
    ended_at: float
    arrivals: tuple[Arrival, ...]
    body: bytes


class EventSplitter:
    """Cuts a byte stream into server-sent events, wherever the network cut it."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> list[bytes]:
        """The data of each event that `piece` completes. Comments and other fields are dropped."""
        *whole, self._rest = (self._rest + piece).replace(b"\r\n", b"\n").split(b"\n\n")
        events = [
            b"\n".join(
                line[5:].removeprefix(b" ") for line in event.split(b"\n") if line.startswith(b"data:")
            )
            for event in whole
        ]
        return [event for event in events if event]


async def exchange(
    address: Address, method: str, path: str, body: Mapping[str, Any] | None = None, timeout: float = 600.0
) -> Exchange:
    """Raises BenchError for a status other than 2xx, a broken answer, or none in `timeout` seconds."""
    payload = b"" if body is None else json.dumps(body).encode()
    what = f"{method} {path} on port {address.port}"
    try:
        async with asyncio.timeout(timeout):
            answer = await _exchange(address, _request(address, method, path, payload))
    except TimeoutError as error:
        raise BenchError(f"{what} gave no whole answer in {timeout:g} s") from error
    except (OSError, ValueError, EOFError) as error:
        raise BenchError(f"{what} failed: {error or type(error).__name__}") from error
    if not 200 <= answer.status < 300:
        said = answer.body[:500].decode(errors="replace")
        raise StatusError(f"{what} gave status {answer.status}: {said}", answer.status)
    return answer


def _request(address: Address, method: str, path: str, payload: bytes) -> bytes:
    key = "" if address.key is None else f"Authorization: Bearer {address.key}\r\n"
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: {address.host}:{address.port}\r\nConnection: close\r\n{key}"
        f"Content-Type: application/json\r\nContent-Length: {len(payload)}\r\n\r\n"
    )
    return head.encode() + payload


async def _exchange(address: Address, request: bytes) -> Exchange:
    reader, writer = await asyncio.open_connection(
        address.host, address.port, ssl=address.tls or None, limit=HEAD_LIMIT
    )
    try:
        sent_at = time.perf_counter()
        writer.write(request)
        await writer.drain()
        status, headers = _head(await reader.readuntil(b"\r\n\r\n"))
        events = EventSplitter() if "event-stream" in headers.get("content-type", "") else None
        arrivals: list[Arrival] = []
        body = b""
        async for piece in _pieces(reader, headers):
            at = time.perf_counter()
            if events is None:
                body += piece
            else:
                arrivals += [Arrival(at, data) for data in events.feed(piece) if data != b"[DONE]"]
        return Exchange(status, sent_at, time.perf_counter(), tuple(arrivals), body)
    finally:
        writer.close()


def _head(raw: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = raw.decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines if line)
    return int(first.split()[1]), {name.strip().lower(): value.strip().lower() for name, _, value in pairs}


async def _pieces(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
    if "chunked" in headers.get("transfer-encoding", ""):
        while size := int((await reader.readline()).split(b";")[0], 16):
            yield (await reader.readexactly(size + 2))[:-2]
    elif "content-length" in headers:
        yield await reader.readexactly(int(headers["content-length"]))
    else:
        while piece := await reader.read(HEAD_LIMIT):
            yield piece
