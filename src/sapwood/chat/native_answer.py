"""One answer of a native dialect as it grows, and how long its parts took. The clock is an argument."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sapwood.chat.openai_render import LOGPROB_FLOOR, Json, Render, TokenNames
from sapwood.types import Delta, Event, FinishReason, Started, TokenLogprob, Usage

Clock = Callable[[], float]
"""Seconds that never go back."""


@dataclass(slots=True)
class Growing:
    """All that one sample has said so far."""

    text: str = ""
    tokens: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    finish: FinishReason | None = None

    def add(self, delta: Delta) -> None:
        self.text += delta.text
        self.tokens.extend(delta.token_ids)
        self.logprobs.extend(delta.logprobs)
        self.finish = delta.finish or self.finish


@dataclass(frozen=True, slots=True)
class Ending:
    """What ended a sample: a token, or one of the stop strings. Neither when it ran into a limit."""

    token: int | None = None
    stop: str | None = None


def ending_of(answer: Growing, stops: Sequence[str], stop_tokens: Sequence[int], names: TokenNames) -> Ending:
    """Looks for it, as an answer's text ends before its stop string; linear in the answer's length."""
    if answer.finish != "stop" or not answer.tokens:
        return Ending()
    last = answer.tokens[-1]
    if last in names.special_ids or last in stop_tokens:
        return Ending(token=last)
    spelled = b"".join(names.token_bytes(token) for token in answer.tokens if token not in names.special_ids)
    tail = spelled[len(answer.text.encode()) :].decode("utf-8", "replace")
    # The text may lack its first space, so a stop string need not stand at the very start of the tail.
    found = [(tail.find(stop), -len(stop), stop) for stop in stops if stop in tail]
    return Ending(stop=min(found)[2]) if found else Ending(token=last)


class Watch:
    """When a call's prompt began to be read, had been read, and when the last token came, in seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._called = clock()
        self._started = self._read = self._last = self._called
        self._usage: Usage | None = None
        self._seen_token = False
        self.predicted = 0
        """Tokens drawn, over all samples."""

    def note(self, event: Event) -> None:
        now = self._clock()
        if isinstance(event, Started):
            self._usage, self._started = event.usage, now
            self._read = self._last = now
        elif isinstance(event, Delta) and event.token_ids:
            self._read = self._read if self._seen_token else now
            self._seen_token, self._last = True, now
            self.predicted += len(event.token_ids)
        elif not self._seen_token:
            self._read = self._last = now

    @property
    def prompt_tokens(self) -> int:
        return 0 if self._usage is None else self._usage.prompt_tokens

    @property
    def reused(self) -> int:
        return 0 if self._usage is None else self._usage.reused

    @property
    def total_seconds(self) -> float:
        return self._clock() - self._called

    @property
    def prompt_seconds(self) -> float:
        return self._read - self._started

    @property
    def predicted_seconds(self) -> float:
        return self._last - self._read

    def timings(self) -> Json:
        """llama.cpp's `timings`; `cache_n + prompt_n + predicted_n` is the context in use."""
        prompt_n = self.prompt_tokens - self.reused
        return {
            "cache_n": self.reused,
            **_pace("prompt", prompt_n, self.prompt_seconds * 1000),
            **_pace("predicted", self.predicted, self.predicted_seconds * 1000),
        }


class Timed:
    """Any render of one prompt, with llama.cpp's `timings` beside its last chunks."""

    def __init__(self, render: Render, clock: Clock) -> None:
        self._render, self._watch = render, Watch(clock)

    def feed(self, prompt: int, event: Event) -> list[Json]:
        self._watch.note(event)
        chunks = self._render.feed(prompt, event)
        if chunks and isinstance(event, Delta) and event.finish is not None:
            chunks[-1] = {**chunks[-1], "timings": self._watch.timings()}
        return chunks

    def end(self, usages: Sequence[Usage]) -> list[Json]:
        return [{**chunk, "timings": self._watch.timings()} for chunk in self._render.end(usages)]


def logprob_of(entry: TokenLogprob | None) -> float | None:
    """As JSON can write it: there is no infinity."""
    return None if entry is None else max(entry.logprob, LOGPROB_FLOOR)


def _pace(name: str, count: int, milliseconds: float) -> dict[str, Any]:
    return {
        f"{name}_n": count,
        f"{name}_ms": milliseconds,
        f"{name}_per_token_ms": milliseconds / count if count else 0.0,
        f"{name}_per_second": count / milliseconds * 1000 if milliseconds > 0 else 0.0,
    }
