"""Engine events → Ollama's objects: one, or one a line, the last of which says what it all cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from sapwood.chat.native_answer import Clock, Growing, Watch
from sapwood.chat.openai_render import Json
from sapwood.types import Delta, Event, Usage


@dataclass(frozen=True, slots=True)
class OllamaShape:
    """Attributes:
    model: as the client named it.
    created: seconds since 1970.
    kind: which route answers.
    prompt: its tokens; with those of the answer they are told as `context`, if `with_context`.
    """

    model: str
    created: int
    kind: Literal["chat", "generate"]
    prompt: tuple[int, ...] = ()
    with_context: bool = False

    def line(self, text: str, *, done: bool) -> Json:
        created = datetime.fromtimestamp(self.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        said: Json = {"response": text}
        if self.kind == "chat":
            said = {"message": {"role": "assistant", "content": text}}
        return {"model": self.model, "created_at": created, **said, "done": done}


class OllamaAnswer:
    """In one piece."""

    def __init__(self, shape: OllamaShape, clock: Clock) -> None:
        self._shape, self._answer, self._watch = shape, Growing(), Watch(clock)

    def feed(self, prompt: int, event: Event) -> list[Json]:  # noqa: ARG002 (there is one)
        self._watch.note(event)
        if isinstance(event, Delta):
            self._answer.add(event)
        return []

    def end(self, usages: Sequence[Usage]) -> list[Json]:
        return [self._last(self._answer.text, usages)]

    def _last(self, text: str, usages: Sequence[Usage]) -> Json:
        """The counts are of the whole prompt, whatever was reused: a hit shows as a short duration."""
        line = self._shape.line(text, done=True)
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


class OllamaStream(OllamaAnswer):
    """A line for each piece of text, and the last."""

    def feed(self, prompt: int, event: Event) -> list[Json]:
        super().feed(prompt, event)
        if isinstance(event, Delta) and event.text:
            return [self._shape.line(event.text, done=False)]
        return []

    def end(self, usages: Sequence[Usage]) -> list[Json]:
        return [self._last("", usages)]


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)
