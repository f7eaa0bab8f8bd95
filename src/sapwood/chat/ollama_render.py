"""Engine events → Ollama's objects: one, or one a line, the last of which says what it all cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from sapwood.chat.native_answer import Clock, Growing, Watch
from sapwood.chat.ollama_tools import call_json
from sapwood.chat.openai_render import LOGPROB_FLOOR, Json, TokenNames
from sapwood.chat.tool_answer import AnswerReader, NumberedCall, Thought, ToolReading
from sapwood.types import Delta, Event, TokenLogprob, Usage


@dataclass(frozen=True, slots=True)
class OllamaShape:
    """Attributes:
    model: as the client named it.
    created: seconds since 1970.
    kind: which route answers.
    prompt: its tokens; with those of the answer they are told as `context`, if `with_context`.
    reading: how thoughts and calls are found in the answer; None where it is all text.
    logprobs: whether those of its tokens are told.
    """

    model: str
    created: int
    kind: Literal["chat", "generate"]
    prompt: tuple[int, ...] = ()
    with_context: bool = False
    reading: ToolReading | None = None
    logprobs: bool = False

    def line(self, said: Said, *, done: bool) -> Json:
        created = datetime.fromtimestamp(self.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        told: Json = {"response": said.text, **said.beside}
        if self.kind == "chat":
            told = {"message": {"role": "assistant", "content": said.text, **said.beside}}
        return {"model": self.model, "created_at": created, **told, "done": done}


@dataclass(slots=True)
class Said:
    """A part of an answer, or all of it."""

    text: str = ""
    thinking: str = ""
    calls: list[Json] = field(default_factory=list)

    @property
    def beside(self) -> Json:
        """What is told beside the text, if there is any."""
        parts: dict[str, Any] = {"thinking": self.thinking, "tool_calls": self.calls}
        return {name: part for name, part in parts.items() if part}

    def add(self, piece: object) -> None:
        """A piece as an AnswerReader reads it; other kinds are parts of a call that comes whole later."""
        if isinstance(piece, str):
            self.text += piece
        elif isinstance(piece, Thought):
            self.thinking += piece.text
        elif isinstance(piece, NumberedCall):
            self.calls.append(call_json(piece.call))

    def __bool__(self) -> bool:
        return bool(self.text or self.thinking or self.calls)


class OllamaAnswer:
    """In one piece."""

    def __init__(self, shape: OllamaShape, names: TokenNames, clock: Clock) -> None:
        self._shape, self._names, self._watch = shape, names, Watch(clock)
        self._reader: AnswerReader | None = None if shape.reading is None else shape.reading.reader("")
        self._answer, self._whole = Growing(), Said()

    def feed(self, prompt: int, event: Event) -> list[Json]:  # noqa: ARG002 (there is one)
        self._watch.note(event)
        if isinstance(event, Delta):
            self._answer.add(event)
            self._read(event, self._whole)
        return []

    def end(self, usages: Sequence[Usage]) -> list[Json]:
        return [self._last(self._whole, usages) | self._probabilities(self._answer.logprobs)]

    def _read(self, delta: Delta, said: Said) -> None:
        for piece in [delta.text] if self._reader is None else self._reader.read(delta):
            said.add(piece)

    def _last(self, said: Said, usages: Sequence[Usage]) -> Json:
        """The counts are of the whole prompt, whatever was reused: a hit shows as a short duration."""
        line = self._shape.line(said, done=True)
        if not usages:
            return {**line, "done_reason": "load"}
        line |= {
            "done_reason": self._answer.finish,
            "total_duration": _nanoseconds(self._watch.total_seconds),
            "load_duration": 0,
            "prompt_eval_count": usages[0].prompt_tokens,
            "prompt_eval_duration": _nanoseconds(self._watch.prompt_seconds),
            "eval_count": len(self._answer.tokens),
            "eval_duration": _nanoseconds(self._watch.predicted_seconds),
        }
        if self._shape.with_context:
            line["context"] = [*self._shape.prompt, *self._answer.tokens]
        return line

    def _probabilities(self, entries: Sequence[TokenLogprob]) -> Json:
        if not self._shape.logprobs or not entries:
            return {}
        listed = [
            {
                **self._entry(each.token, each.logprob),
                "top_logprobs": [self._entry(*pair) for pair in each.top],
            }
            for each in entries
        ]
        return {"logprobs": listed}

    def _entry(self, token: int, logprob: float) -> Json:
        return {
            "token": self._names.token_text(token),
            "logprob": max(logprob, LOGPROB_FLOOR),
            "bytes": list(self._names.token_bytes(token)),
        }


class OllamaStream(OllamaAnswer):
    """A line for each piece of text, thought or call, and the last."""

    def feed(self, prompt: int, event: Event) -> list[Json]:  # noqa: ARG002
        self._watch.note(event)
        if not isinstance(event, Delta):
            return []
        self._answer.add(event)
        said = Said()
        self._read(event, said)
        beside = self._probabilities(event.logprobs)
        return [self._shape.line(said, done=False) | beside] if said or beside else []

    def end(self, usages: Sequence[Usage]) -> list[Json]:
        return [self._last(Said(), usages)]


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)
