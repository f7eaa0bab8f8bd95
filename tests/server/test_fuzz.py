"""Whatever is sent to any route: an answer of its dialect, never a crash, and afterwards nothing is left behind."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from random import Random
from types import MappingProxyType
from typing import Any

import httpx
import pytest
from starlette.routing import Route

from sapwood.chat.body import Body
from sapwood.config import ServerConfig
from sapwood.server.app import create_app
from sapwood.server.slot import Slot
from server.conftest import Served
from server.good_bodies import BODILESS, GOOD
from server.hostile import NAMES, ODD, any_json, places, twice, with_odd, without
from server.test_disconnect import idle
from waiting import eventually

ROUTES = tuple(route for route in create_app(Slot(), ServerConfig()).routes if isinstance(route, Route))
PER_BODY = 16
"""Odd bodies for each good one; which, differs from body to body."""
NEED_AN_OBJECT = ("cachedContents/{id}", "models/{id:path}")

Check = Callable[[httpx.Response], None]


def _openai(answer: httpx.Response) -> None:
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert error["code"] is None or isinstance(error["code"], str)
    _said(error["message"])


def _anthropic(answer: httpx.Response) -> None:
    told = answer.json()
    assert set(told) == {"type", "error", "request_id"}
    assert told["type"] == "error"
    assert set(told["error"]) == {"type", "message"}
    assert told["error"]["type"].endswith("_error") or told["error"]["type"] == "request_too_large"
    _said(told["error"]["message"])


def _gemini(answer: httpx.Response) -> None:
    error = answer.json()["error"]
    assert set(error) == {"code", "message", "status"}
    assert error["code"] == answer.status_code
    assert error["status"].isupper()
    _said(error["message"])


def _coded(answer: httpx.Response) -> None:
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "code"}
    assert error["code"] == answer.status_code
    _said(error["message"])


def _ollama(answer: httpx.Response) -> None:
    told = answer.json()
    assert set(told) == {"error"}
    _said(told["error"])


def _said(message: object) -> None:
    assert isinstance(message, str)
    assert 0 < len(message) < 2000
    assert "Traceback" not in message


DIALECTS: Mapping[str, Check] = MappingProxyType(
    {
        "/v1/messages": _anthropic,
        "/v1/models/{id:path}:": _gemini,
        "POST /v1/models/": _gemini,
        "/v1/cachedContents": _gemini,
        "/v1beta/": _gemini,
        "/api/": _ollama,
        "/generate": _coded,
        "/open_session": _coded,
        "/close_session": _coded,
        "/completion": _coded,
        "/slots": _coded,
    }
)
"""How a path begins → the shape of its errors. What is not here speaks as OpenAI does."""


def shape_of(method: str, path: str) -> Check:
    for start, check in DIALECTS.items():
        if path.startswith(start) or f"{method} {path}".startswith(start):
            return check
    return _openai


def url_of(path: str, id: str = "toy") -> str:
    return path.replace("{id:path}", id).replace("{id}", id)


def known_names() -> list[str]:
    """Of all fields of all bodies, in both spellings."""
    names: set[str] = set()
    waiting: list[type[Body]] = [Body]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        for name, field in kind.model_fields.items():
            names |= {name, field.alias or name}
    return sorted(names)


def odd_bodies(route: str, body: Mapping[str, Any], count: int) -> Iterator[bytes]:
    """Some of all that can be made odd in a body; always the same of the same."""
    draw = Random(f"{route} {json.dumps(body)}")
    where, names = list(places(body)), [*known_names(), *NAMES]
    for _ in range(count):
        match draw.randrange(10):
            case 0 if where:
                yield without(body, draw.choice(where))
            case 1:
                yield with_odd(body, (draw.choice(names),), draw.choice(ODD))
            case 2 if body:
                yield twice(body, (draw.choice(list(body)),), draw.choice(ODD))
            case 3:
                yield json.dumps({**body, draw.choice(names): any_json(draw)}).encode()
            case 4:
                whole = json.dumps(body).encode()
                at = draw.randrange(len(whole))
                yield whole[:at] + draw.choice((b"", b"\xff", b"\0", b",", b"]", b'"')) + whole[at + 1 :]
            case _:
                yield with_odd(body, draw.choice(where or [("x",)]), draw.choice(ODD))


@contextmanager
def unharmed(served: Served) -> Iterator[None]:
    """After the block nothing runs and nothing is held, the cache's books are right, and a request is answered."""
    yield
    served.script(b"fine")
    for pin in served.http.get("/v1/cache/pins").json()["pins"]:
        served.http.delete(f"/v1/cache/pins/{pin['id']}")
    assert eventually(lambda: idle(served))
    served.built.loop.call(lambda engine: engine.cache.check()).result(10)
    answer = served.http.post("/v1/completions", json={"prompt": "once more", "max_tokens": 4})
    assert answer.json()["choices"][0]["text"] == "fine"


def check_answer(answer: httpx.Response, route: str, method: str = "POST") -> None:
    """A success that can be read, or a refusal in the route's own shape."""
    if answer.status_code == 200:
        assert '"error":{' not in answer.text.replace(" ", "")
        assert '"response.failed"' not in answer.text
        if answer.headers["content-type"].startswith("application/json"):
            json.loads(answer.text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
        return
    assert answer.status_code in (400, 403, 404, 413, 429, 501), answer.text
    shape_of(method, route)(answer)


def test_every_route_that_takes_a_body_has_a_good_one() -> None:
    taking = {r.path for r in ROUTES if r.methods is not None and r.methods & {"POST", "PUT", "PATCH"}}
    assert taking - BODILESS == set(GOOD)
    assert taking >= BODILESS


@pytest.mark.parametrize("path", [path for path in GOOD if not path.endswith(NEED_AN_OBJECT)])
def test_the_good_bodies_are_good(served: Served, path: str) -> None:
    with unharmed(served):
        for body in GOOD[path]:
            answer = served.http.post(url_of(path), json={k: v for k, v in body.items() if v is not None})
            assert answer.status_code == 200, answer.text
            check_answer(answer, path)


@pytest.mark.parametrize("path", GOOD)
def test_odd_bodies_are_answered_in_the_route_s_dialect(served: Served, path: str) -> None:
    method = "PATCH" if path.endswith("cachedContents/{id}") else "POST"
    with unharmed(served):
        for good in GOOD[path]:
            for body in odd_bodies(path, good, PER_BODY // (4 if path.startswith("/v1beta") else 1)):
                answer = served.http.request(method, url_of(path), content=body)
                try:
                    check_answer(answer, path, method)
                except (AssertionError, KeyError, ValueError) as error:
                    pytest.fail(f"{answer.status_code} {answer.text[:300]} to {body[:3000]!r}: {error}")


IDS = (
    "%00",
    "%ff",
    "..%2F..",
    "a%2Fb",
    "%F0%9F%8E%84",
    "x" * 3000,
    "{}",
    "toy",
    ":",
    "toy:x:countTokens",
    "%0d%0ax: y",
)
QUERIES = (
    "%00=%ff",
    "&&=&==",
    "limit=1e9&after=%00&order=%ff",
    "limit=" + "9" * 3000,
    "pageSize=-1&pageToken=%F0%9F%8E%84",
    "pageSize=" + "9" * 300 + "&pageToken=x",
    "alt=sse&alt=x&key=",
    "stream=true&stream=1",
    "reset_running_requests=%00",
    "a=b&" * 3000,
)
HEADERS: tuple[Mapping[str, str | bytes], ...] = (
    {"content-type": "\xff/\xfe".encode("latin-1"), "accept": "x/y;q=z"},
    {"content-encoding": "gzip"},
    {"anthropic-version": "\xe4".encode("latin-1"), "anthropic-beta": ",,," * 500},
    {"authorization": "Bearer \xff".encode("latin-1"), "x-api-key": "\xff".encode("latin-1")},
    {"x-goog-api-key": "", "x-goog-api-client": "x" * 4000},
    {"x-request-id": "a" * 4000, "range": "bytes=5-1", "if-none-match": "*"},
    {"cookie": "=" * 4000, "host": "[::", "origin": "null"},
    {"expect": "5", "te": "x", "trailer": "y"},
    {
        "upgrade": "websocket",
        "connection": "upgrade",
        "sec-websocket-version": "13",
        "sec-websocket-key": "x",
    },
)
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW")


def test_odd_requests_are_answered_on_every_path(served: Served) -> None:
    """Methods, ids, queries and headers, with and without a body. Flushing and the like are done: they do no harm."""
    draw = Random(1)
    served.script(b"ok")
    with unharmed(served):
        paths = sorted({route.path for route in ROUTES})
        for path, method in [(path, method) for path in paths for method in draw.sample(METHODS, 4)]:
            query, headers = draw.choice(QUERIES), draw.choice(HEADERS)
            body = draw.choice((b"", b"{}", b"\xff", b"[" * 200))
            url = f"{url_of(path, draw.choice(IDS))}?{query}"
            answer = served.http.request(method, url, headers=headers, content=body)  # type: ignore[arg-type]
            assert answer.status_code < 500 or answer.status_code == 501, (method, url, headers, answer.text)
            assert len(answer.content) < 5000 or answer.status_code == 200
            assert answer.headers["x-request-id"].startswith("req-")
            if answer.status_code >= 400 and method != "HEAD":
                assert json.loads(answer.text)["error"], (method, url, answer.text)


def test_connections_that_speak_no_http_do_not_hurt(served: Served) -> None:
    host, port = served.url.removeprefix("http://").split(":")
    draw = Random(1)
    good = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 30\r\n\r\n" + b"{" * 30
    with unharmed(served):
        for _ in range(60):
            raw = bytearray(good)
            for _ in range(draw.randrange(1, 6)):
                raw[draw.randrange(len(raw))] = draw.randrange(256)
            with socket.create_connection((host, int(port)), timeout=5) as connection:
                connection.sendall(raw)
                connection.shutdown(socket.SHUT_WR)
                answer = b"".join(iter(lambda: connection.recv(65536), b""))
            assert not answer.startswith(b"HTTP/1.1 5"), (bytes(raw), answer)
