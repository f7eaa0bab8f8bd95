"""Engine events → a Gemini answer, in one piece or as the partial answers of a stream."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from sapwood.chat.openai_render import LOGPROB_FLOOR, Json, TokenNames
from sapwood.chat.tool_answer import AnswerReader, NumberedCall, Thought, ToolReading
from sapwood.types import Delta, Event, FinishReason, Started, TokenLogprob, Usage

Piece = str | Thought | NumberedCall


@dataclass(frozen=True, slots=True)
class GeminiShape:
    """Attributes:
    n: candidates.
    cached: how many tokens of the prompt are told to be cached, once its reuse is known. Asked once a call.
    reading: how thoughts and calls are found in an answer; None if it can hold none.
    thoughts: whether thoughts are told.
    """

    id: str
    model: str
    n: int
    cached: Callable[[Usage], int]
    logprobs: bool = False
    reading: ToolReading | None = None
    thoughts: bool = False


@dataclass(slots=True)
class _Candidate:
    """One answer as it grows."""

    index: int
    reader: AnswerReader | None
    finish: FinishReason | None = None
    parts: list[Json] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)


class _Answer:
    """What both forms share."""

    def __init__(self, shape: GeminiShape, names: TokenNames) -> None:
        self._shape, self._names = shape, names
        self._cached = 0
        self._candidates = [_Candidate(index, self._reader(index)) for index in range(shape.n)]

    def _reader(self, index: int) -> AnswerReader | None:
        reading = self._shape.reading
        return None if reading is None else reading.reader(f"{self._shape.id}-{index}")

    def _take(self, event: Event) -> None:
        if isinstance(event, Started):
            self._cached = self._shape.cached(event.usage)
        if not isinstance(event, Delta):
            return
        candidate = self._candidates[event.sample]
        pieces: Sequence[Piece] = [event.text] if candidate.reader is None else candidate.reader.read(event)
        for piece in pieces:
            _append(candidate.parts, piece, thoughts=self._shape.thoughts)
        candidate.logprobs += event.logprobs
        candidate.finish = event.finish or candidate.finish

    def _told(self, candidate: _Candidate, *, last: bool) -> Json:
        told: Json = {
            "content": {"role": "model", "parts": candidate.parts or [{"text": ""}]},
            "index": candidate.index,
        }
        if last:
            told["finishReason"] = _reason(candidate.finish)
        if self._shape.logprobs and candidate.logprobs:
            told["avgLogprobs"] = _mean(candidate.logprobs)
            told["logprobsResult"] = _logprobs(candidate.logprobs, self._names)
        return told

    def _response(self, candidates: Sequence[Json]) -> Json:
        return {
            "candidates": list(candidates),
            "modelVersion": self._shape.model,
            "responseId": self._shape.id,
        }

    def _usage(self, usages: Sequence[Usage]) -> Json:
        (usage,) = usages
        readers = [each.reader for each in self._candidates if each.reader is not None]
        return usage_json(usage, self._cached, sum(reader.reasoning_tokens for reader in readers))


class GeminiAnswer(_Answer):
    """An answer in one piece."""

    def feed(self, prompt: int, event: Event) -> list[Json]:  # noqa: ARG002 (there is one prompt)
        self._take(event)
        return []

    def end(self, usages: Sequence[Usage]) -> list[Json]:
        told = [self._told(candidate, last=True) for candidate in self._candidates]
        return [{**self._response(told), "usageMetadata": self._usage(usages)}]


class GeminiStream(_Answer):
    """Partial answers, each with what is new; why it ended, and the usage, are in the last.

    What is newest waits for what comes next, so that the last is not without text: of a chat's turn in which one
    is, Google's SDK keeps nothing (google-genai 1.x, `chats.py`).
    """

    def feed(self, prompt: int, event: Event) -> list[Json]:  # noqa: ARG002 (there is one prompt)
        if not isinstance(event, Delta):
            self._take(event)
            return []
        candidate = self._candidates[event.sample]
        waiting = replace(candidate)
        candidate.parts, candidate.logprobs = [], []
        self._take(event)
        if waiting.parts and candidate.parts:
            return [self._response([self._told(waiting, last=False)])]
        candidate.parts = candidate.parts or waiting.parts
        candidate.logprobs = [*waiting.logprobs, *candidate.logprobs]
        return []

    def end(self, usages: Sequence[Usage]) -> list[Json]:
        told = [self._told(candidate, last=True) for candidate in self._candidates]
        return [{**self._response(told), "usageMetadata": self._usage(usages)}]


def usage_json(usage: Usage, cached: int, thought: int = 0) -> Json:
    """`usageMetadata`: the prompt includes what is cached, the total includes what was thought.

    What is nothing is left out.
    """
    told: Json = {
        "promptTokenCount": usage.prompt_tokens,
        "candidatesTokenCount": usage.completion_tokens - thought,
        "totalTokenCount": usage.prompt_tokens + usage.completion_tokens,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": usage.prompt_tokens}],
    }
    if cached:
        told["cachedContentTokenCount"] = cached
        told["cacheTokensDetails"] = [{"modality": "TEXT", "tokenCount": cached}]
    if thought:
        told["thoughtsTokenCount"] = thought
    return told


def _append(parts: list[Json], piece: Piece, *, thoughts: bool) -> None:
    """Text goes on in a part of its kind."""
    match piece:
        case Thought(text):
            if thoughts:
                _append_text(parts, text, {"thought": True})
        case NumberedCall():
            call = {"id": piece.id, "name": piece.call.name, "args": json.loads(piece.call.arguments)}
            parts.append({"functionCall": call})
        case str():
            _append_text(parts, piece, {})


def _append_text(parts: list[Json], text: str, kind: Json) -> None:
    if not text:
        return
    if parts and "text" in parts[-1] and parts[-1].keys() == {"text", *kind}:
        parts[-1]["text"] += text
    else:
        parts.append({"text": text, **kind})


def _reason(finish: FinishReason | None) -> str:
    match finish:
        case "stop":
            return "STOP"
        case "length":
            return "MAX_TOKENS"
    return "OTHER"


def _mean(logprobs: Sequence[TokenLogprob]) -> float:
    return math.fsum(max(each.logprob, LOGPROB_FLOOR) for each in logprobs) / len(logprobs)


def _logprobs(logprobs: Sequence[TokenLogprob], names: TokenNames) -> Json:
    def entry(token: int, logprob: float) -> Json:
        value = max(logprob, LOGPROB_FLOOR)
        return {"token": names.token_text(token), "tokenId": token, "logProbability": value}

    return {
        "chosenCandidates": [entry(each.token, each.logprob) for each in logprobs],
        "topCandidates": [{"candidates": [entry(*pair) for pair in each.top]} for each in logprobs],
        "logProbabilitySum": math.fsum(max(each.logprob, LOGPROB_FLOOR) for each in logprobs),
    }
