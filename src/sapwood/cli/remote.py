"""A model behind an OpenAI-compatible URL, as `chat` uses it. Standard library only."""

from __future__ import annotations

import http
import http.client
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

from sapwood.chat import SseReader
from sapwood.chat.thinking import Thought
from sapwood.cli.local import Options, Turn
from sapwood.errors import RequestError, SapwoodError, UsageError

_TIMEOUT_SECONDS = 600.0


class RemoteModel:
    """Answers from a server; `turn` tells about the last answer."""

    def __init__(self, url: str, model: str | None, api_key: str | None = None) -> None:
        """`url` with or without `/v1`; `model` None takes the server's first one. Raises SapwoodError."""
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = 0  # no number, or none of a port
        if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
            raise UsageError(f"--url is {url!r}; it must look like http://127.0.0.1:8000")
        self._secure, self._host, self._port = parts.scheme == "https", parts.hostname, port
        self._base = parts.path.rstrip("/").removesuffix("/v1") + "/v1"
        self._headers = {"content-type": "application/json"}
        if api_key is not None:
            self._headers["authorization"] = f"Bearer {_checked(api_key)}"
        self._turn = Turn(0, 0)
        self._model = model or self._first_model()

    @property
    def turn(self) -> Turn:
        return self._turn

    def answer(self, messages: Sequence[Mapping[str, str]], options: Options) -> Iterator[str | Thought]:
        """What the assistant thinks and says next, piece by piece. Raises RequestError when the server refuses it."""
        body = {
            "model": self._model,
            "messages": list(messages),
            "temperature": options.temperature,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if options.max_tokens is not None:
            body["max_tokens"] = options.max_tokens
        if options.seed is not None:
            body["seed"] = options.seed
        with closing(self._connection()) as connection:
            response = self._send(connection, "POST", "/chat/completions", body)
            try:
                for event in _events(response):
                    yield from self._take(event)
            except (OSError, http.client.HTTPException) as error:
                raise SapwoodError(f"the server broke off: {error}") from None

    def _take(self, event: Mapping[str, Any]) -> Iterator[str | Thought]:
        if event.get("error"):
            raise SapwoodError(f"the server broke off: {_message(event)}")
        if event.get("usage"):
            usage = event["usage"]
            details = usage.get("prompt_tokens_details") or {}
            self._turn = Turn(usage["prompt_tokens"], details.get("cached_tokens") or 0)
        for choice in event.get("choices", ()):
            delta = choice["delta"]
            # Some servers call it one, some the other.
            if thought := delta.get("reasoning_content") or delta.get("reasoning"):
                yield Thought(thought)
            if text := delta.get("content"):
                yield text

    def _first_model(self) -> str:
        with closing(self._connection()) as connection:
            listed = json.loads(self._send(connection, "GET", "/models", None).read())
        try:
            return str(listed["data"][0]["id"])
        except (KeyError, IndexError, TypeError):
            raise SapwoodError(
                "the server lists no model", hint="name one: sapwood chat MODEL --url …"
            ) from None

    def _connection(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        return kind(self._host, self._port, timeout=_TIMEOUT_SECONDS)

    def _send(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: Mapping[str, Any] | None
    ) -> http.client.HTTPResponse:
        data = None if body is None else json.dumps(body).encode()
        try:
            connection.request(method, self._base + path, data, self._headers)
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            where = f"{self._host}:{connection.port}"
            raise SapwoodError(f"no answer from {where}: {error}", hint="is the server running?") from None
        if response.status != 200:
            raise _refusal(response, has_key="authorization" in self._headers)
        return response


def _events(response: http.client.HTTPResponse) -> Iterator[Mapping[str, Any]]:
    reader = SseReader()
    while chunk := response.read1():
        for data in reader.feed(chunk):
            if data == "[DONE]":
                return
            yield json.loads(data)


def _checked(api_key: str) -> str:
    """A key that a header can carry. Raises UsageError, which does not tell the key."""
    if not api_key.isascii() or not api_key.isprintable() or " " in api_key:
        raise UsageError("--api-key must be printable ASCII without spaces")
    return api_key


def _refusal(response: http.client.HTTPResponse, *, has_key: bool) -> SapwoodError:
    try:
        body = json.loads(response.read())
    except ValueError:
        body = {}
    message = _message(body) or f"the server answers {response.status} {response.reason}"
    if response.status == http.HTTPStatus.UNAUTHORIZED:
        if has_key:
            return SapwoodError(f"the server does not take this key: {message}", hint="check --api-key")
        hint = "--api-key KEY, or SAPWOOD_API_KEY in the environment"
        return SapwoodError(f"the server wants a key: {message}", hint=hint)
    return RequestError(message) if response.status == 400 else SapwoodError(message)


def _message(body: Any) -> str:
    error = body.get("error") if isinstance(body, dict) else None
    return str(error.get("message", "")) if isinstance(error, dict) else ""
