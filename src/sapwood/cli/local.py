"""A model in this process, as `run` and `chat` use it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from sapwood.cli.talk import Talk
from sapwood.config import ModelConfig
from sapwood.errors import SapwoodError
from sapwood.llm import LLM
from sapwood.types import Delta, Event, Finished, SamplingParams, Started, Usage


@dataclass(frozen=True, slots=True)
class Options:
    """How to answer. `max_tokens` None takes as many as fit."""

    max_tokens: int | None = None
    temperature: float = 0.0
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """What one answer cost."""

    prompt_tokens: int
    reused_tokens: int


class LocalModel:
    """Answers as a stream of text; afterwards `turn` and `report` tell about the last answer."""

    def __init__(self, config: ModelConfig, talk: Talk) -> None:
        """Loads the model, which takes seconds. Raises UsageError or ModelError."""
        self._talk = talk
        with talk.working(f"loading {config.model}") as progress:
            self._llm = LLM(
                config.model,
                kv_memory=config.kv_memory,
                weights=config.weights,
                threads=config.threads,
                progress=progress,
            )
        self._fold = _Fold()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._llm.close()

    def answer(self, messages: Sequence[Mapping[str, str]], options: Options) -> Iterator[str]:
        """The assistant's next message, piece by piece."""
        return self.complete(self._llm.encode_chat(messages), options)

    def complete(self, prompt: str | Sequence[int], options: Options) -> Iterator[str]:
        """What follows a raw prompt, piece by piece. Raises RequestError if it cannot be served."""
        params = SamplingParams(
            max_tokens=options.max_tokens, temperature=options.temperature, seed=options.seed
        )
        self._fold = _Fold()
        events = self._llm.stream(prompt, params)
        yield from self._texts(events)

    @property
    def turn(self) -> Turn:
        usage = self._fold.usage
        return Turn(0, 0) if usage is None else Turn(usage.prompt_tokens, usage.reused)

    def report(self) -> dict[str, Any]:
        """The last answer as one JSON document."""
        return {
            "text": "".join(self._fold.texts),
            "token_ids": self._fold.token_ids,
            "finish_reason": self._fold.finish,
            "prompt_tokens": self.turn.prompt_tokens,
            "reused_tokens": self.turn.reused_tokens,
            "completion_tokens": len(self._fold.token_ids),
        }

    def _texts(self, events: Iterator[Event]) -> Iterator[str]:
        # The first piece comes when the prompt is read, which can take long.
        with self._talk.working("reading the prompt"):
            first = next((piece for piece in map(self._fold.add, events) if piece), "")
        yield first
        yield from filter(None, map(self._fold.add, events))


class _Fold:
    """The events of one answer as they add up."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.token_ids: list[int] = []
        self.finish: str | None = None
        self.usage: Usage | None = None

    def add(self, event: Event) -> str:
        """The text that `event` brings. Raises SapwoodError when the request failed."""
        if isinstance(event, Started | Finished):
            self.usage = event.usage
        if isinstance(event, Finished) and event.error is not None:
            raise SapwoodError(event.error)
        if not isinstance(event, Delta):
            return ""
        self.texts.append(event.text)
        self.token_ids += event.token_ids
        self.finish = event.finish or self.finish
        return event.text
