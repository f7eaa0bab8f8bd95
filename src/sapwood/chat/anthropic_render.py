"""Engine events → an Anthropic message, in one piece or as the events of a stream."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sapwood.chat.openai_render import Json, TokenNames
from sapwood.chat.tool_answer import NumberedCall, ToolReading
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
    reading: how its tool calls are found; None if it may make none.
    parallel: whether it may make several.
    """

    id: str
    model: str
    max_tokens: int
    settle: Settle
    stops: tuple[str, ...] = ()
    reading: ToolReading | None = None
    parallel: bool = True


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
        self._text: list[str] = []

    def feed(self, prompt: int, event: Event) -> list[Json]:  # noqa: ARG002 (a message has one prompt)
        if isinstance(event, Started):
            self._settled = self._shape.settle(event.usage)
        elif isinstance(event, Delta):
            self._ending.add(event)
            self._take(self._reader.read(event))
        return []

    def end(self, usages: Sequence[Usage]) -> list[Json]:
        (usage,) = usages
        self._end_text()
        stop = self._ending.stop(usage, called=self._reader.called)
        return [_message(self._shape, self._settled, self._content, stop, usage.completion_tokens)]

    def _take(self, pieces: Sequence[str | NumberedCall]) -> None:
        for piece in pieces:
            if isinstance(piece, str):
                self._text.append(piece)
            else:
                self._end_text()
                self._content.append({**_call_head(piece), "input": json.loads(piece.call.arguments)})

    def _end_text(self) -> None:
        text = "".join(self._text)
        self._text.clear()
        if text:
            self._content.append({"type": "text", "text": text})


class MessageStream:
    """A message as events: its head with the prompt's counters, then its blocks, then why it ended."""

    def __init__(self, shape: MessageShape, names: TokenNames) -> None:
        self._shape, self._reader, self._ending = shape, _Reader(shape), _Ending(shape, names)
        self._settled = Settled(Counters(0))
        self._block = 0
        self._in_text = False

    def feed(self, prompt: int, event: Event) -> list[Json]:  # noqa: ARG002 (a message has one prompt)
        if isinstance(event, Started):
            self._settled = self._shape.settle(event.usage)
            return [{"type": "message_start", "message": _message(self._shape, self._settled, [], None, 0)}]
        if not isinstance(event, Delta):
            return []
        self._ending.add(event)
        return self._events(self._reader.read(event))

    def end(self, usages: Sequence[Usage]) -> list[Json]:
        (usage,) = usages
        last = self._end_text()
        stop = self._ending.stop(usage, called=self._reader.called)
        delta = {"stop_reason": stop.reason, "stop_sequence": stop.sequence}
        counted = usage_json(self._settled.counters, usage.completion_tokens)
        return [*last, {"type": "message_delta", "delta": delta, "usage": counted}, {"type": "message_stop"}]

    def _events(self, pieces: Sequence[str | NumberedCall]) -> list[Json]:
        events: list[Json] = []
        for piece in pieces:
            if isinstance(piece, NumberedCall):
                delta = {"type": "input_json_delta", "partial_json": piece.call.arguments}
                events += [
                    *self._end_text(),
                    self._start(_call_head(piece)),
                    self._delta(delta),
                    self._stop(),
                ]
            elif piece:
                events += [] if self._in_text else [self._start({"type": "text", "text": ""})]
                self._in_text = True
                events.append(self._delta({"type": "text_delta", "text": piece}))
        return events

    def _end_text(self) -> list[Json]:
        if not self._in_text:
            return []
        self._in_text = False
        return [self._stop()]

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


def _call_head(call: NumberedCall) -> Json:
    return {"type": "tool_use", "id": f"toolu_{call.id}", "name": call.call.name, "input": {}}


class _Reader:
    """Tells text from tool calls. Without leave to call several, only the first is given."""

    def __init__(self, shape: MessageShape) -> None:
        self._reader = None if shape.reading is None else shape.reading.reader(shape.id)
        self._most = None if shape.parallel else 1

    @property
    def called(self) -> bool:
        return self._reader is not None and self._reader.calls > 0

    def read(self, delta: Delta) -> list[str | NumberedCall]:
        if self._reader is None:
            return [delta.text] if delta.text else []
        pieces = self._reader.read(delta)
        return [
            piece
            for piece in pieces
            if isinstance(piece, str) or self._most is None or piece.index < self._most
        ]


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
