"""Server-sent events, both ways: lines of `data:` with a blank line after each event."""

from __future__ import annotations

import json
from codecs import getincrementaldecoder
from collections.abc import Mapping

DONE = b"data: [DONE]\n\n"
"""The end of an OpenAI-shaped stream."""

KEEP_ALIVE = b": keep\n\n"
"""A comment: clients skip it, proxies see a byte."""

_ONE_LINE = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_LINE_BREAKS = str.maketrans({"\x85": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"})


def encode_event(payload: Mapping[str, object]) -> bytes:
    """One event whose data is `payload` as JSON on one line. Raises ValueError for NaN and infinities."""
    text = _ONE_LINE.encode(payload)
    # JSON lets these three stand bare inside a string, yet many line readers cut there.
    return f"data: {text.translate(_LINE_BREAKS)}\n\n".encode()


def encode_named_event(payload: Mapping[str, object]) -> bytes:
    """As `encode_event`, with the payload's `type` as the event's name."""
    return f"event: {payload['type']}\n".encode() + encode_event(payload)


class SseReader:
    """Takes bytes as the network cuts them and gives the `data` of each complete event."""

    def __init__(self) -> None:
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._line = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> list[str]:
        """The data of the events that `chunk` completes; comments and other fields are skipped."""
        lines = (self._line + self._decoder.decode(chunk)).split("\n")
        self._line = lines.pop()
        events = (self._take(line.removesuffix("\r")) for line in lines)
        return [event for event in events if event is not None]

    def _take(self, line: str) -> str | None:
        if line.startswith("data:"):
            self._data.append(line[5:].removeprefix(" "))
        elif not line and self._data:
            event = "\n".join(self._data)
            self._data.clear()
            return event
        return None
