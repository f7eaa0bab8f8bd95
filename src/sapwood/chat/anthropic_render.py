"""Engine events → an Anthropic message, in one piece or as the events of a stream."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sapwood.chat.openai_render import Json, TokenNames
from sapwood.chat.tool_answer import (
    CallEnd,
    CallPart,
    CallStart,
    Fragment,
    Thought,
    ToolReading,
    whole_arguments,
)
from sapwood.types import Delta, Event, FinishReason, Started, Usage


@dataclass(frozen=True, slots=True)
class Counters:
    """How a prompt's tokens are billed. `plain + read + written_5m + written_1h` are all of them."""

    plain: int
    read: int = 0
    written_5m: int = 0
    written_1h: int = 0


@dataclass(frozen=True, slots=True)
class Settled:
    """Attributes:
    diagnostics: why less was read from the cache than could have been, as the dialect says it.
    """

    counters: Counters
    diagnostics: Json | None = None


Settle = Callable[[Usage], Settled]
"""Says how a prompt is billed, once what was reused of it is known. Asked once a call."""


@dataclass(frozen=True, slots=True)
class MessageShape:
    """Attributes:
    max_tokens: as asked for; the answer ends before it only where the context does.
    stops: the stop sequences.
    reading: how its thoughts and tool calls are found; None if there are none.
    """

    id: str
    model: str
    max_tokens: int
    settle: Settle
    stops: tuple[str, ...] = ()
    reading: ToolReading | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """Why an answer ended, and the sequence that ended it, if one did."""

    reason: str
    sequence: str | None = None


class MessageAnswer:
    """A message in one piece."""

    def __init__(self, shape: MessageShape, names: TokenNames) -> None:
        self._shape, self._reader, self._ending = shape, _Reader(shape), _Ending(shape, names)
        self._settled = Settled(Counters(0))
        self._content: list[Json] = []
        self._open: Json | None = None
        self._written: list[str] = []

    def feed(self, prompt: int, event: Event) -> list[Json]:  # noqa: ARG002 (a message has one prompt)
        if isinstance(event, Started):
            self._settled = self._shape.settle(event.usage)
        elif isinstance(event, Delta):
            self._ending.add(event)
            for piece in self._reader.read(event):
                self._take(piece)
        return []

    def end(self, usages: Sequence[Usage]) -> list[Json]:
        (usage,) = usages
        self._close()
        stop = self._ending.stop(usage, called=self._reader.called)
        return [_message(self._shape, self._settled, self._content, stop, usage.completion_tokens)]

    def _take(self, piece: Fragment) -> None:
        if isinstance(piece, CallEnd):
            self._close()
            return
        if not _goes_on(self._open, piece):
            self._close()
            self._open = _block_head(piece)
        self._written.append(_written(piece))

    def _close(self) -> None:
        block, written = self._open, "".join(self._written)
        self._open = None
        self._written.clear()
        if block is None:
            return
        match block["type"]:
            case "text":
                block["text"] = written
            case "thinking":
                block |= {"thinking": written, "signature": _signature(self._shape)}
            case _:  # Arguments that were cut short are no object, which a message must have.
                block["input"] = json.loads(whole_arguments(written))
        self._content.append(block)


class MessageStream:
    """A message as events: its head with the prompt's counters, then its blocks, then why it ended."""

    def __init__(self, shape: MessageShape, names: TokenNames) -> None:
        self._shape, self._reader, self._ending = shape, _Reader(shape), _Ending(shape, names)
        self._settled = Settled(Counters(0))
        self._block = 0
        self._open: Json | None = None

    def feed(self, prompt: int, event: Event) -> list[Json]:  # noqa: ARG002 (a message has one prompt)
        if isinstance(event, Started):
            self._settled = self._shape.settle(event.usage)
            return [{"type": "message_start", "message": _message(self._shape, self._settled, [], None, 0)}]
        if not isinstance(event, Delta):
            return []
        self._ending.add(event)
        return [told for piece in self._reader.read(event) for told in self._events(piece)]

    def end(self, usages: Sequence[Usage]) -> list[Json]:
        (usage,) = usages
        last = self._close()
        stop = self._ending.stop(usage, called=self._reader.called)
        delta = {"stop_reason": stop.reason, "stop_sequence": stop.sequence}
        counted = usage_json(self._settled.counters, usage.completion_tokens)
        return [*last, {"type": "message_delta", "delta": delta, "usage": counted}, {"type": "message_stop"}]

    def _events(self, piece: Fragment) -> list[Json]:
        if isinstance(piece, CallEnd):
            return self._close()
        events: list[Json] = []
        if not _goes_on(self._open, piece):
            events = self._close()
            self._open = _block_head(piece)
            events.append(self._start(self._open))
        written = _written(piece)
        match piece:
            case CallPart():
                events.append(self._delta({"type": "input_json_delta", "partial_json": written}))
            case Thought():
                events.append(self._delta({"type": "thinking_delta", "thinking": written}))
            case str():
                events.append(self._delta({"type": "text_delta", "text": written}))
        return events

    def _close(self) -> list[Json]:
        if self._open is None:
            return []
        kind, self._open = self._open["type"], None
        signed = self._delta({"type": "signature_delta", "signature": _signature(self._shape)})
        return [*([signed] if kind == "thinking" else []), self._stop()]

    def _start(self, block: Json) -> Json:
        return {"type": "content_block_start", "index": self._block, "content_block": block}

    def _delta(self, delta: Json) -> Json:
        return {"type": "content_block_delta", "index": self._block, "delta": delta}

    def _stop(self) -> Json:
        self._block += 1
        return {"type": "content_block_stop", "index": self._block - 1}


def usage_json(counters: Counters, output: int) -> Json:
    """The `usage` object: `input_tokens` are those neither read from the cache nor written to it."""
    return {
        "input_tokens": counters.plain,
        "cache_read_input_tokens": counters.read,
        "cache_creation_input_tokens": counters.written_5m + counters.written_1h,
        "cache_creation": {
            "ephemeral_5m_input_tokens": counters.written_5m,
            "ephemeral_1h_input_tokens": counters.written_1h,
        },
        "output_tokens": output,
        "service_tier": "standard",
    }


def _message(
    shape: MessageShape, settled: Settled, content: list[Json], stop: Stop | None, output: int
) -> Json:
    return {
        "id": shape.id,
        "type": "message",
        "role": "assistant",
        "model": shape.model,
        "content": content,
        "stop_reason": None if stop is None else stop.reason,
        "stop_sequence": None if stop is None else stop.sequence,
        "usage": usage_json(settled.counters, output),
        "diagnostics": settled.diagnostics,
    }


def _goes_on(block: Json | None, piece: Fragment) -> bool:
    """Whether the piece belongs to the block that is open."""
    return block is not None and (isinstance(piece, CallPart) or block["type"] == _kind(piece))


def _kind(piece: Fragment) -> str | None:
    return "text" if isinstance(piece, str) else "thinking" if isinstance(piece, Thought) else None


def _block_head(piece: Fragment) -> Json:
    """A block that holds nothing yet."""
    match piece:
        case CallStart():
            return {"type": "tool_use", "id": f"toolu_{piece.id}", "name": piece.name, "input": {}}
        case Thought():
            return {"type": "thinking", "thinking": "", "signature": ""}
    return {"type": "text", "text": ""}


def _written(piece: Fragment) -> str:
    if isinstance(piece, str):
        return piece
    return piece.text if isinstance(piece, Thought | CallPart) else ""


def _signature(shape: MessageShape) -> str:
    """Clients send it back with the thought; nothing is done with it."""
    return base64.b64encode(hashlib.blake2b(shape.id.encode(), digest_size=48).digest()).decode()


class _Reader:
    """Tells text from thoughts and tool calls."""

    def __init__(self, shape: MessageShape) -> None:
        self._reader = None if shape.reading is None else shape.reading.fragments(shape.id)

    @property
    def called(self) -> bool:
        return self._reader is not None and self._reader.calls > 0

    def read(self, delta: Delta) -> list[Fragment]:
        if self._reader is None:
            return [delta.text] if delta.text else []
        return self._reader.read(delta)


class _Ending:
    """Why an answer ended. The text does not tell: a stop sequence is cut from it. Its tokens do."""

    def __init__(self, shape: MessageShape, names: TokenNames) -> None:
        self._shape, self._names = shape, names
        self._finish: FinishReason | None = None
        self._longest = max((len(stop.encode()) for stop in shape.stops), default=0)
        self._tail = b""

    def add(self, delta: Delta) -> None:
        self._finish = delta.finish or self._finish
        if self._longest:
            pieces = [
                b"" if token in self._names.special_ids else self._names.token_bytes(token)
                for token in delta.token_ids
            ]
            # A sequence that ended the answer ends within the last token.
            room = self._longest + max((len(piece) for piece in pieces), default=0)
            self._tail = (self._tail + b"".join(pieces))[-room:]

    def stop(self, usage: Usage, *, called: bool) -> Stop:
        if self._finish == "stop":
            sequence = self._sequence()
            if sequence is not None:
                return Stop("stop_sequence", sequence)
            return Stop("tool_use" if called else "end_turn")
        if self._finish == "length" and usage.completion_tokens < self._shape.max_tokens:
            return Stop("model_context_window_exceeded")
        return Stop("max_tokens")

    def _sequence(self) -> str | None:
        """The sequence whose end comes first; of several that end there, the longest."""
        found = [
            (start + len(stop.encode()), start, stop)
            for stop in self._shape.stops
            if (start := self._tail.find(stop.encode())) >= 0
        ]
        return min(found)[2] if found else None
